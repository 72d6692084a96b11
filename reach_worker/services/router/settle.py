"""SETTLE: outcomes, each acted on if it is of its task's current dispatch; what follows is in :mod:`consequences`."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from reach_worker.core import answer
from reach_worker.core.dispatch import (
    OUTCOME,
    SPOKE_NOTE,
    STARTED_NOTE,
    Dispatch,
    dispatch_from,
    outcome_from,
)
from reach_worker.core.duplicates import KnownTask, TaskState
from reach_worker.core.envelope import BadHeaders
from reach_worker.core.message import Delivery
from reach_worker.core.outcome import OutcomeClass, cut
from reach_worker.core.recovery import MICROSECONDS
from reach_worker.ports import KnownDispatch, OutcomeSeen, Standing, Started, Store
from reach_worker.services.effects import Step
from reach_worker.services.router.bind import Binder
from reach_worker.services.router.consequences import AGAIN_S, Consequences
from reach_worker.services.router.desk import Desk, Moment
from reach_worker.services.router.dispatcher import Dispatcher
from reach_worker.services.router.groups import Groups
from reach_worker.services.router.handoffs import Handoffs
from reach_worker.services.router.judge import AgentJudge
from reach_worker.services.router.longest_out import DOUBT_S, longest_out_us
from reach_worker.services.router.messages import dead_letter_of_outcome
from reach_worker.services.router.standing import DispatchStanding
from reach_worker.services.router.told import Told, found_out, outcome_row

log = logging.getLogger(__name__)


class Settlement:
    """Takes outcomes, from agents or found out by the router itself."""

    def __init__(
        self,
        desk: Desk,
        binder: Binder,
        dispatcher: Dispatcher,
        judge: AgentJudge,
        store: Store,
        groups: Groups,
    ) -> None:
        self._desk = desk
        self._binder = binder
        self._dispatcher = dispatcher
        self._groups = groups
        self._store = store
        self._standing = DispatchStanding(desk, dispatcher)
        self._handoffs = Handoffs(desk)
        self._consequences = Consequences(desk, binder, judge, self._standing, self._handoffs)

    async def settle(self, deliveries: Sequence[Delivery]) -> list[Step]:
        """Outcome messages, from our own queue or from one that we stand by for."""
        steps: list[Step] = []
        told: list[Told] = []
        for delivery in deliveries:
            read = self._read(delivery)
            if isinstance(read, Told):
                told.append(read)
            else:
                steps.append(read)
        return [*steps, *await self.conclude(told)]

    async def conclude(self, told: Sequence[Told]) -> list[Step]:
        """Act on outcomes, each if it is of its task's current dispatch; record the others as stale."""
        await self._desk.before_deciding({t.dispatch.envelope.task_id for t in told})
        unsure = [t for t in told if t.outcome.crashed or not self._standing.is_current(t)]
        dispatches: dict[str, KnownDispatch] = {}
        tasks: dict[str, KnownTask] = {}
        if unsure:
            dispatches = await self._store.known_dispatches([t.dispatch.dispatch_id for t in unsure])
            tasks = await self._store.known_tasks(list({t.dispatch.envelope.task_id for t in unsure}))
            told = self._waited_for_first(told, tasks)
        steps, at = [], self._desk.moment()
        for each in told:
            if each.delivery is None and self._found_out_later(
                each, dispatches.get(each.dispatch.dispatch_id)
            ):
                continue
            step = self._one(each, dispatches, tasks, at)
            if step is not None:
                steps.append(step)
        return steps

    def _waited_for_first(self, told: Sequence[Told], tasks: Mapping[str, KnownTask]) -> list[Told]:
        """What is waited for comes first: an earlier outcome that has come again raises no doubt about it then."""

        def not_waited_for(one: Told) -> bool:
            task_id, dispatch_id = one.dispatch.envelope.task_id, one.dispatch.dispatch_id
            known = tasks.get(task_id)
            by_us = self._desk.hands.by_task.get(task_id) == dispatch_id
            return not by_us and (known is None or known.dispatch_id != dispatch_id)

        return sorted(told, key=not_waited_for)

    async def over(self, dispatches: Sequence[Dispatch]) -> dict[str, str]:
        """Those of these dispatches that are not their task's current one (any more), each with why."""
        known = await self._store.known_dispatches([each.dispatch_id for each in dispatches])
        tasks = await self._store.known_tasks(list({each.envelope.task_id for each in dispatches}))
        found = {}
        for each in dispatches:
            task_id = each.envelope.task_id
            ended = self._desk.hands.ended.get(task_id) or tasks.get(task_id)
            if why := self._standing.why_stale(each, known.get(each.dispatch_id), ended):
                found[each.dispatch_id] = why
        return found

    def overdue(self) -> list[Told]:
        """Dispatches of which nothing was heard for longer than their agent may take: the router's own clock decides."""
        now, now_us = self._desk.clock.monotonic(), self._desk.clock.utc_us()
        found = []
        for lease in list(self._desk.fleet.leases.by_dispatch.values()):
            flight = self._desk.hands.in_flight.get(lease.dispatch_id)
            if now < lease.backstop_at or flight is None:
                continue
            if flight.admitted is None:
                self._desk.fleet.leases.release(lease.dispatch_id)
                self._desk.hands.land(lease.dispatch_id)
                continue
            waited_s = (now_us - flight.dispatch.dispatched_at) / MICROSECONDS
            error = f"no word from {lease.agent_id} for {waited_s:.0f} s"
            found.append(
                Told(
                    flight.dispatch,
                    found_out(flight.dispatch, OutcomeClass.TIMEOUT, error, started=True),
                    None,
                )
            )
        return found

    def _found_out_later(self, told: Told, known: KnownDispatch | None) -> bool:
        """Another router may have settled it while we heard nothing, and the store does not tell: looked at again soon.

        Whether there is another one now says nothing of that time. Not for ever: a store that is away stops no task.
        """
        desk, dispatch = self._desk, told.dispatch
        flight = desk.hands.in_flight.get(dispatch.dispatch_id)
        if flight is None or flight.session == desk.session:
            return False
        # One that we have not recorded nobody has settled, or its record would be there.
        told_by_store = not desk.recording.away and (known is not None or bool(flight.rows))
        longest_us = longest_out_us(desk, dispatch.envelope.capability) + int(DOUBT_S * MICROSECONDS)
        if told_by_store or desk.clock.utc_us() > dispatch.dispatched_at + longest_us:
            return False
        return desk.fleet.leases.put_off(dispatch.dispatch_id, desk.clock.monotonic() + AGAIN_S)

    # -- reading

    def _read(self, delivery: Delivery) -> Told | Step:
        dispatch = self._desk.hands.sent_with(delivery.headers) or dispatch_from(delivery.headers)
        if isinstance(dispatch, BadHeaders):
            return self._unreadable(delivery, dispatch.error)
        if delivery.headers.get(OUTCOME) == STARTED_NOTE:
            return self._started(dispatch, delivery)
        if delivery.headers.get(OUTCOME) == SPOKE_NOTE:
            return self._groups.spoke(dispatch, delivery)
        outcome = outcome_from(delivery.headers, dispatch)
        if isinstance(outcome, BadHeaders):
            return self._unreadable(delivery, outcome.error)
        if outcome.outcome is OutcomeClass.HANDOFF:
            return self._handoffs.read(dispatch, outcome, delivery)
        return Told(dispatch, outcome, delivery)

    def _unreadable(self, delivery: Delivery, error: str) -> Step:
        """Kept for a person, marked as an outcome so that it is never replayed as a task."""
        letter_id, now_us = self._desk.clock.new_id(), self._desk.clock.utc_us()
        why = f"an outcome: {error}"
        letter = dead_letter_of_outcome(self._desk.names, letter_id, delivery.body, why, now_us)
        log.error("an outcome cannot be read: %s", error)
        return Step([delivery], send=[letter])

    def _started(self, dispatch: Dispatch, delivery: Delivery) -> Step:
        flight = self._desk.hands.in_flight.get(dispatch.dispatch_id)
        if flight is not None:
            flight.started = True
        return Step([delivery], rows=[Started(dispatch.dispatch_id, self._desk.clock.utc_us())])

    # -- current or stale

    def _one(
        self, told: Told, dispatches: dict[str, KnownDispatch], tasks: dict[str, KnownTask], at: Moment
    ) -> Step | None:
        """Mostly it is the outcome that is waited for; else it is looked at more closely."""
        hands, dispatch_id = self._desk.hands, told.dispatch.dispatch_id
        alone = hands.by_task.get(told.dispatch.envelope.task_id) == dispatch_id
        if alone and self._standing.is_current(told):
            flight, known = hands.in_flight.get(dispatch_id), dispatches.get(dispatch_id)
            return self._consequences.act(told, flight, known, at)
        return self._looked_at(told, dispatches, tasks, at)

    def _looked_at(
        self, told: Told, dispatches: dict[str, KnownDispatch], tasks: dict[str, KnownTask], at: Moment
    ) -> Step | None:
        hands = self._desk.hands
        dispatch_id, task_id = told.dispatch.dispatch_id, told.dispatch.envelope.task_id
        recalled = hands.recall(told.delivery, task_id) if told.delivery is not None else None
        if recalled is not None and told.delivery is not None:
            return self._binder.place(recalled.admitted, told.delivery, rows=recalled.rows)
        if dispatch_id not in hands.in_flight:
            self._dispatcher.forget_settled(told.dispatch.envelope, tasks.get(task_id))
        again = self._sent_again(told, dispatches.get(dispatch_id))
        if again is not None:
            return again
        flight, known = hands.in_flight.get(dispatch_id), dispatches.get(dispatch_id)
        ended = hands.ended.get(task_id) or tasks.get(task_id)
        if self._standing.is_current(told):
            return self._consequences.act(told, flight, known, at)
        why = self._standing.why_stale(told.dispatch, known, ended)
        if why is None:
            return self._consequences.act(told, flight, known, at)
        if flight is not None:
            self._dispatcher.release(flight.dispatch)
        return self._too_late(told, why, ended)

    def _too_late(self, told: Told, why: str, task: KnownTask | None) -> Step:
        """An outcome that is not of the current dispatch: recorded, and but for two cases that is all."""
        hands, envelope, delivery = self._desk.hands, told.dispatch.envelope, told.delivery
        in_hand = any(envelope.task_id in held for held in (hands.by_task, hands.waiting, hands.closing))
        led_on = task is not None and task.dispatch_id != told.dispatch.dispatch_id
        if delivery is not None and led_on and not in_hand:
            following, body = self._handoffs.following(told)
            in_doubt = self._dispatcher.in_doubt(following, delivery, task, outcome=True, body=body)
            if in_doubt is not None:
                return in_doubt
        well = told.outcome.outcome is OutcomeClass.SUCCEEDED and envelope.task_id not in hands.closing
        unknown = task is not None and task.outcome_unknown
        return self._resolved(told, why) if well and unknown else self._stale(told, why)

    def _sent_again(self, told: Told, known: KnownDispatch | None) -> Step | None:
        """An outcome led to another dispatch, came again, and nobody knows whether that dispatch was sent.

        Whether it led there an earlier process of this router has recorded; while the store does not tell, it is put off.
        """
        other, dispatch_id = (
            self._desk.hands.of_task(told.dispatch.envelope.task_id),
            told.dispatch.dispatch_id,
        )
        if other is None or told.delivery is None or other.dispatch.dispatch_id == dispatch_id:
            return None
        if other.admitted is None:
            if told.delivery.redelivered and known is None:
                return Step([told.delivery], put_off=True)
            led_there = told.delivery.redelivered and known is not None and known.settled
        else:
            led_there = other.uncertain and other.dispatch.envelope.knows_end_of(dispatch_id)
        if not led_there:
            return None
        following, body = self._handoffs.following(told)
        return self._dispatcher.sent_before(other, following, told.delivery, body)

    def _stale(self, told: Told, why: str) -> Step:
        self._desk.counts.stale_outcomes += 1
        log.info("stale outcome of dispatch %s: %s", told.dispatch.dispatch_id, why)
        return Step([told.delivery], rows=[self._seen_late(told, why)]) if told.delivery else Step()

    def _resolved(self, told: Told, why: str) -> Step:
        """Nobody knew how it had gone, so it became a dead letter; now it is known that it went well."""
        envelope, delivery = told.dispatch.envelope, told.delivery
        log.info("task %s had an unknown outcome, and has succeeded", envelope.task_id)
        body = delivery.body if delivery is not None else b""
        told_caller = answer.succeeded(
            envelope, told.dispatch.agent_id, envelope.next_attempt, body, told.outcome.chunks
        )
        return self._desk.end(
            envelope,
            TaskState.SUCCEEDED,
            told_caller,
            delivery=delivery,
            rows=[self._seen_late(told, why)],
            by=told.dispatch.dispatch_id,
        )

    def _seen_late(self, told: Told, why: str) -> OutcomeSeen:
        row = outcome_row(told.dispatch, told.outcome, Standing.STALE, self._desk.clock.utc_us())
        return replace(row, message=cut(f"{why}; {row.message}"))
