"""BIND: give a task to an agent that has a free slot, or let it wait where it holds up nobody."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from reach_worker.core import answer
from reach_worker.core.admission import Admitted, ask_of
from reach_worker.core.duplicates import KnownTask, StaleCopy, standing_of_returned
from reach_worker.core.envelope import Envelope
from reach_worker.core.gates import Ask
from reach_worker.core.group import cannot_work
from reach_worker.core.message import Delivery
from reach_worker.core.outcome import DeadLetterReason
from reach_worker.core.recovery import MICROSECONDS
from reach_worker.core.routing import (
    Chosen,
    Decision,
    PayloadRefused,
    Unmatched,
    Wait,
    plan,
    somebody_may,
    why_none_is_free,
)
from reach_worker.ports import Parked, Row, Unsent
from reach_worker.services.effects import Step
from reach_worker.services.router.cancels import cancelled_end
from reach_worker.services.router.desk import Desk
from reach_worker.services.router.dispatcher import Dispatcher
from reach_worker.services.router.group_begin import GroupBegin
from reach_worker.services.router.hands import Waiting
from reach_worker.services.router.lanes import Lanes
from reach_worker.services.router.messages import retry_message, unmatched_message

log = logging.getLogger(__name__)

AHEAD: Final = "others of its capability are ahead"
NOT_RECORDED: Final = "it has side effects, and the store does not take the record that must come first"


class Binder:
    """Plans, and turns each choice into what must be sent. Once ``closed`` (the router stops) it binds nothing more."""

    def __init__(self, desk: Desk, dispatcher: Dispatcher, lanes: Lanes, groups: GroupBegin) -> None:
        self._desk = desk
        self._dispatcher = dispatcher
        self._lanes = lanes
        self._groups = groups
        self._none_free: dict[str, str] = {}
        self.closed = False

    # -- one task

    def place(
        self, admitted: Admitted, delivery: Delivery, *, rows: list[Row], from_lane: bool = False
    ) -> Step | None:
        """Find a place for a task: an agent, the window (``None``), unmatched or the dead letters."""
        now, envelope = self._desk.clock.monotonic(), admitted.envelope
        if request := self._desk.hands.unwanted(envelope, now):
            return cancelled_end(self._desk, envelope, delivery, rows, request.why)
        if envelope.asks_budget:
            if not self._may_retry(now):
                return self._turned_away(admitted, delivery, rows)
            admitted = replace(admitted, envelope=replace(envelope, paid=envelope.next_attempt))
        ask = ask_of(admitted, self._desk.tags)
        unsent = bool(rows) and any(isinstance(row, Unsent) for row in rows)
        waiting = Waiting(admitted, ask, delivery, now, "", rows, unsent)
        if not from_lane and self._only_waits(waiting, now):
            return self._wait(waiting)
        decision = self._plan(ask, admitted.envelope, now)
        return self._of_group(waiting, decision) or self._place(waiting, decision, now, from_lane=from_lane)

    def _place(self, waiting: Waiting, decision: Decision, now: float, *, from_lane: bool) -> Step | None:
        match decision.choice:
            case Chosen() if self.closed:
                waiting.reason = "the router stops"
            case Chosen() if not from_lane and self._queued_before(waiting.capability):
                waiting.reason = AHEAD
            case Chosen() if self._may_be_sent(waiting.admitted, now):
                return self._dispatcher.dispatch(waiting, decision, decision.choice, now)
            case Chosen():
                waiting.reason = NOT_RECORDED
            case Wait(reason):
                waiting.reason = reason
                self._see_who_is_free(waiting.capability, now)
            case Unmatched() | PayloadRefused():
                return self._nobody(waiting, decision, decision.choice)
        if from_lane:
            return self._lanes.step_aside(waiting)
        return self._wait(waiting)

    def _wait(self, waiting: Waiting) -> Step | None:
        """In the window. What was told to another router, for which we stand by, waits in its lane instead.

        An agent may tell it again, and to that router, which is back: what only we hold it would not see.
        """
        names, queue = self._desk.names, waiting.delivery.queue
        if queue.startswith(names.outcomes("")) and queue != names.outcomes(self._desk.router_id):
            return self._lanes.to_lane(waiting)
        self._desk.hands.wait(waiting)
        return None

    # -- all that wait

    def bind(self) -> list[Step]:
        """Give what waits in the window to agents with free slots, oldest first."""
        now = self._desk.clock.monotonic()
        self._none_free.clear()
        steps: list[Step] = []
        free: dict[str, int] = {}
        for waiting in list(self._desk.hands.waiting.values()):
            capability = waiting.capability
            if capability not in free:
                free[capability] = self._desk.fleet.free_slots(capability, now)
            none_free = free[capability] <= 0 and self._desk.fleet.by_capability.get(capability)
            if none_free and not waiting.admitted.envelope.race:  # one whose agent has gone leaves its race
                continue
            step = self._try(waiting, now)
            if step is not None:
                steps.append(step)
                free[capability] -= 1
        return steps

    def overdue(self) -> list[str]:
        """Tasks that wait beyond their deadlines."""
        now_us = self._desk.clock.utc_us()
        return [
            task_id
            for task_id, waiting in self._desk.hands.waiting.items()
            if (left_us := waiting.admitted.envelope.remaining_us(now_us)) is not None and left_us <= 0
        ]

    def expire(self, overdue: Sequence[str], known: Mapping[str, KnownTask]) -> list[Step]:
        """Bury what waits beyond its deadline, but for copies of what another router has done, or goes on with."""
        return [self._expired(self._desk.hands.take(task_id), known.get(task_id)) for task_id in overdue]

    def _expired(self, waiting: Waiting, known: KnownTask | None) -> Step:
        """One of which a dispatch of ours was recorded and never sent is ours, whatever the store knows of it yet."""
        envelope = waiting.admitted.envelope
        if not waiting.unsent and isinstance(standing_of_returned(envelope, known), StaleCopy):
            in_doubt = self._dispatcher.in_doubt(envelope, waiting.delivery, known, copy=True)
            step = in_doubt or Step([waiting.delivery])
            step.rows += waiting.rows
        else:
            error = f"it waited until its deadline: {waiting.reason}"
            step = self._bury(waiting, DeadLetterReason.EXPIRED, error)
        step.undo = lambda _worst: self._desk.hands.wait(waiting)
        return step

    # -- inside

    def _see_who_is_free(self, capability: str, now: float) -> None:
        """Something waits. Where that is because nobody is free, others need no plan to know that they wait too."""
        if capability not in self._none_free:
            self._none_free[capability] = why_none_is_free(capability, self._desk.fleet, now)

    def _only_waits(self, waiting: Waiting, now: float) -> bool:
        """It is not its turn, or nobody was free for its capability a moment ago; and somebody may have it."""
        capability, admitted = waiting.capability, waiting.admitted
        ahead = self._queued_before(capability)
        if ahead:
            self._see_who_is_free(capability, now)
        waiting.reason = self._none_free.get(capability) or (AHEAD if ahead else "")
        if not waiting.reason or admitted.for_several or admitted.envelope.race:
            return False
        return somebody_may(waiting.ask, self._desk.fleet, now)

    def _of_group(self, waiting: Waiting, decision: Decision) -> Step | None:
        """What is for several agents at once gets its legs; a leg of a race whose agent has gone leaves the race."""
        admitted = waiting.admitted
        if admitted.for_several and not self.closed:
            return self._groups.begin(waiting, decision)
        envelope = admitted.envelope
        to_agent, choice = envelope.to_agent, decision.choice
        if envelope.race and to_agent and isinstance(choice, Wait) and cannot_work(decision, to_agent):
            return self._bury(waiting, DeadLetterReason.EXPIRED, choice.reason)
        return None

    def _may_retry(self, now: float) -> bool:
        budget = self._desk.retry_budget
        budget.routers = self._desk.fleet.routers
        return budget.take(now)

    def _turned_away(self, admitted: Admitted, delivery: Delivery, rows: list[Row]) -> Step:
        """A retry over the budget: it waits on a rung, and no attempt is spent."""
        desk, envelope = self._desk, admitted.envelope
        now_us = desk.clock.utc_us()
        wait_s, left_us = desk.retry_budget.wait_s(desk.clock.draw()), envelope.remaining_us(now_us)
        if left_us is not None:
            wait_s = min(wait_s, max(0.0, left_us / MICROSECONDS))
        retry = desk.policies.retry
        reason = (
            f"over the retry budget ({retry.budget_share:.0%} of recent first attempts, but always "
            f"{retry.budget_floor_per_min:g} a minute): it asks again in {wait_s:.0f} s"
        )
        waits = Decision(
            envelope.task_id, envelope.capability, desk.policies.routing.name, Wait(reason), candidates=()
        )
        decided = self._dispatcher.decided(desk.clock.new_id(), envelope, waits)
        message = retry_message(desk.names, envelope, admitted.body, wait_s, now_us)
        step = Step([delivery], send=[message], rows=[desk.accepted(envelope), *rows, decided])
        step.done = lambda: desk.hands.go_on(envelope.task_id, envelope.life)
        desk.counts.over_budget += 1
        return step

    def _queued_before(self, capability: str) -> bool:
        waiting_for = self._desk.hands.waiting_for
        return self._lanes.depths.get(capability, 0) > 0 or waiting_for.get(capability, 0) > 0

    def _may_be_sent(self, admitted: Admitted, now: float) -> bool:
        """What has side effects is recorded before it is sent: while the store takes nothing it waits."""
        return not admitted.envelope.side_effects or self._desk.recording.admits(now)

    def _plan(self, ask: Ask, envelope: Envelope, now: float) -> Decision:
        policy = self._desk.policies.routing
        if ask.capability in policy.fallback:
            ready_at = max([envelope.first_seen, *(attempt.ended_at for attempt in envelope.attempts)])
            waited_s = max(0.0, (self._desk.clock.utc_us() - ready_at) / MICROSECONDS)
            ask = replace(ask, waited_s=waited_s)
        return plan(ask, self._desk.fleet, policy, now)

    def _try(self, waiting: Waiting, now: float) -> Step | None:
        decision = self._plan(waiting.ask, waiting.admitted.envelope, now)
        step = self._of_group(waiting, decision)
        if step is not None:
            self._desk.hands.take(waiting.ask.task_id)
            return step
        match decision.choice:
            case Wait(reason):
                waiting.reason = reason
                return None
            case Chosen() if not self._may_be_sent(waiting.admitted, now):
                waiting.reason = NOT_RECORDED
                return None
            case Chosen() as chosen:
                self._desk.hands.take(waiting.ask.task_id)
                return self._dispatcher.dispatch(waiting, decision, chosen, now)
            case Unmatched() | PayloadRefused() as nobody:
                self._desk.hands.take(waiting.ask.task_id)
                return self._nobody(waiting, decision, nobody)

    def _nobody(self, waiting: Waiting, decision: Decision, choice: Unmatched | PayloadRefused) -> Step:
        decision_id = self._desk.clock.new_id()
        envelope = waiting.admitted.envelope
        waiting.rows.append(self._dispatcher.decided(decision_id, envelope, decision))
        if envelope.group is not None:
            return self._bury(waiting, DeadLetterReason.EXPIRED, choice.reason)
        if isinstance(choice, PayloadRefused):
            return self._bury(waiting, DeadLetterReason.PAYLOAD_REFUSED, choice.reason)
        return self._park(waiting, decision, decision_id, choice.reason)

    def _bury(self, waiting: Waiting, reason: DeadLetterReason, error: str) -> Step:
        admitted = waiting.admitted
        return self._desk.bury(
            admitted.envelope, admitted.body, reason, error, delivery=waiting.delivery, rows=waiting.rows
        )

    def _park(self, waiting: Waiting, decision: Decision, decision_id: str, reason: str) -> Step:
        desk, envelope = self._desk, waiting.admitted.envelope
        desk.hands.closing[envelope.task_id] = envelope.life
        step = Step([waiting.delivery])
        step.send.append(
            unmatched_message(
                desk.names, envelope, waiting.admitted.body, reason, decision.as_dict(), decision_id
            )
        )
        step.rows = [
            desk.accepted(envelope), *waiting.rows, Parked(envelope.task_id, envelope.life, reason, desk.clock.utc_us())
        ]  # fmt: skip
        if envelope.reply_to:
            told = answer.unmatched(envelope, reason)
            step.offer.append(desk.offer(envelope.task_id, envelope.reply_to, envelope.correlation_id, told))
        step.done = lambda: desk.hands.go_on(envelope.task_id, envelope.life)
        desk.counts.unmatched += 1
        return step
