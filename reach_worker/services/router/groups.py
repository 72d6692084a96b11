"""Race and fan-out: begins the legs, decides by what comes back, ends the task. See :mod:`reach_worker.core.group`."""

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, assert_never

from reach_worker.core import answer
from reach_worker.core.announcement import cancel_key, go_key
from reach_worker.core.dispatch import Dispatch
from reach_worker.core.duplicates import KnownTask, StaleCopy, TaskState, standing_of_returned
from reach_worker.core.envelope import GROUP, BadHeaders, Envelope, envelope_from, text
from reach_worker.core.group import (
    ROUND,
    Gathered,
    Leg,
    LegEnd,
    Open,
    Round,
    RoundFailed,
    Won,
    aggregate,
    fanout_agents,
    fanout_verdict,
    leg_end,
    leg_envelope,
    leg_id,
    nobody,
    race_agents,
    race_verdict,
    room,
    round_from,
)
from reach_worker.core.message import Delivery, Message
from reach_worker.core.outcome import Attempt, Outcome, OutcomeClass
from reach_worker.core.recovery import MICROSECONDS, Bury, Cancelled, TryAgain, next_round, not_again
from reach_worker.core.routing import Decision
from reach_worker.core.task import Refusal, Task, decode_task
from reach_worker.ports import Decided, Sent, Store
from reach_worker.services.effects import Step
from reach_worker.services.router.cancels import Cancels
from reach_worker.services.router.desk import Desk
from reach_worker.services.router.hands import Waiting
from reach_worker.services.router.led import Group
from reach_worker.services.router.longest_out import DOUBT_S
from reach_worker.services.router.lost_legs import LostLegs
from reach_worker.services.router.messages import retry_message, returned_message, watch_message

log = logging.getLogger(__name__)

REMEMBERED: Final = 10_000


class Groups:
    """Leads groups. ``lives`` of the desk tells whether another router still leads one of its own."""

    def __init__(self, desk: Desk, store: Store, cancels: Cancels) -> None:
        self._desk = desk
        self._store = store
        self._cancels = cancels
        self._lost = LostLegs(desk, store)
        self._open: dict[str, Group] = {}
        self._over: OrderedDict[str, int] = OrderedDict()
        self._doubted: OrderedDict[str, float] = OrderedDict()
        self._out: list[Message] = []
        self._deciding: set[str] = set()

    def begin_turn(self) -> None:
        """What the last turn decided is carried out, or to be decided again."""
        self._deciding.clear()

    def _room(self, task: Task) -> int:
        return room(task, self._desk.policies.intake.max_body_bytes)

    # -- beginning

    def begin(self, waiting: Waiting, decision: Decision) -> Step | None:
        """Give each agent its leg; ``None`` where there is nobody to give one to now."""
        admitted, desk = waiting.admitted, self._desk
        envelope, race = admitted.envelope, admitted.task.mode == "race"
        if self._begun(envelope):
            return Step([waiting.delivery], rows=list(waiting.rows))
        agents, missing = (race_agents(decision), []) if race else fanout_agents(decision)
        if not agents:
            return None
        legs = tuple(Leg(leg_id(envelope, agent_id), agent_id) for agent_id in agents)
        until = envelope.deadline
        if until is None and not race:
            until = desk.clock.utc_us() + int(desk.policies.timeouts.fanout_s * MICROSECONDS)
        of = Round(envelope.next_attempt, desk.router_id, until, legs, tuple(missing))
        group = Group(envelope, admitted.task, admitted.body, of, self._room(admitted.task), desk.session)
        step = Step([waiting.delivery])
        step.send = [
            *(
                returned_message(desk.names, leg_envelope(envelope, leg, of, race=race), admitted.body)
                for leg in legs
            ),
            watch_message(desk.names, envelope, admitted.body, of, desk.clock.utc_us()),
        ]
        step.rows = [desk.accepted(envelope), *waiting.rows, self._decided(envelope, decision, group)]
        step.done = lambda: self._began(group)
        step.undo = lambda worst: self._not_begun(waiting, worst)
        return step

    def _begun(self, envelope: Envelope) -> bool:
        """This very round, or a later one, was begun here: the message behind it has come again."""
        stamp, group = _stamp(envelope, envelope.next_attempt), self._open.get(envelope.task_id)
        later = group is not None and _stamp(group.envelope, group.round.number) >= stamp
        return later or self._over.get(envelope.task_id, -1) >= stamp

    def _began(self, group: Group) -> None:
        self._open[group.envelope.task_id] = group
        self._desk.hands.go_on(group.envelope.task_id, group.envelope.life)
        if group.round.number == 1:
            self._desk.retry_budget.first_attempt(self._desk.clock.monotonic())

    def _not_begun(self, waiting: Waiting, worst: Sent) -> None:
        """What was sent of it begins nothing twice; where the session ended its message comes again."""
        if worst is not Sent.UNCERTAIN:
            waiting.reason = f"the broker did not take its legs: {worst.value}"
            self._desk.hands.wait(waiting, first=True)

    def _decided(self, envelope: Envelope, decision: Decision, group: Group) -> Decided:
        legs = [leg.agent_id for leg in group.round.legs]
        return Decided(
            decision_id=self._desk.clock.new_id(),
            task_id=envelope.task_id,
            life=envelope.life,
            attempt=envelope.next_attempt,
            at=self._desk.clock.utc_us(),
            router=self._desk.router_id,
            decision={
                **decision.as_dict(),
                "mode": group.task.mode,
                "legs": legs,
                "missing": dict(group.round.missing),
            },
        )

    # -- what comes back

    def ended(self, deliveries: Sequence[Delivery]) -> list[Step]:
        """Ends of legs, as messages in a router's outcomes queue. One of a group that is not here is in the store too."""
        steps = []
        for delivery in deliveries:
            group = self._open.get(text(delivery.headers, GROUP) or "")
            leg = None if group is None else group.leg(delivery.correlation_id or "")
            end = None if leg is None else leg_end(delivery.body, leg)
            if group is None or leg is None or end is None:
                steps.append(Step([delivery]))
                continue
            group.take(leg, end)
            certain = group.session == self._desk.session  # else the next look asks the store before
            steps.append((self._judge(group, delivery) if certain else None) or Step([delivery]))
        return steps

    def spoke(self, dispatch: Dispatch, delivery: Delivery) -> Step:
        """A leg of a race has its first chunk: the first one wins, and is told so; another is stopped."""
        group = self._open.get(dispatch.envelope.group or "")
        if group is not None and group.leg(dispatch.envelope.task_id) is not None:
            if group.winner is None:
                group.winner = dispatch.envelope.task_id
                log.info("race %s: %s spoke first", group.envelope.task_id, dispatch.agent_id)
                self._stop_others(group)
            key = go_key if group.winner == dispatch.envelope.task_id else cancel_key
            self._tell(dispatch, key)
        elif not self._passed_on(dispatch.envelope, delivery) and dispatch.envelope.group in self._over:
            self._tell(dispatch, cancel_key)
        return Step([delivery])

    def _passed_on(self, envelope: Envelope, note: Delivery) -> bool:
        """A leg of a race that another router leads: an older agent tells who has sent it. It is told again anyway."""
        leader = self._desk.names.outcomes(envelope.group_owner)
        if not envelope.group_owner or note.queue == leader:
            return False
        self._out.append(Message(leader, note.body, note.headers, persistent=False, mandatory=False))
        return True

    async def watched(self, deliveries: Sequence[Delivery]) -> list[Step]:
        """Watches that came back from their rung, and what follows of those legs that are lost."""
        read = [
            (delivery, envelope_from(delivery.headers), round_from(delivery.headers))
            for delivery in deliveries
        ]
        led = [(e, of) for _, e, of in read if isinstance(e, Envelope) and of is not None]
        asked = {e.task_id for e, _ in led} | {task_id for e, of in led for task_id in self._unheard(e, of)}
        known = await self._store.known_tasks(list(asked)) if asked else {}
        steps = [self._watched(*one, known) for one in read]
        groups = (self._open.get(envelope.task_id) for envelope, _ in led)
        return [*steps, *await self._lost.given_up([group for group in groups if group is not None], known)]

    async def tick(self) -> list[Step]:
        """What time does: fan-outs that have waited long enough, and groups that nobody wants any more.

        This router may have heard nothing for long, and another one has led the group meanwhile: so the store is asked.
        """
        due = [group for group in self._open.values() if self._due(group)]
        asked = [
            id_
            for group in due
            for id_ in (group.envelope.task_id, *self._unheard(group.envelope, group.round))
        ]
        known = await self._store.known_tasks(asked) if asked else {}
        now = self._desk.clock.monotonic()
        steps = []
        for group in due:
            there = known.get(group.envelope.task_id)
            if isinstance(standing_of_returned(group.envelope, there), StaleCopy):
                self._close(group)
                continue
            if group.session != self._desk.session:
                if self._in_doubt(group.envelope, there):
                    continue
                group.session = self._desk.session
            self._take_ends(group, group.round, known)
            unwanted = self._desk.hands.unwanted(group.envelope, now)
            step = self._judge(group, None) if unwanted is None else self._cancelled(group, unwanted.why)
            steps += [step] if step is not None else []
        return steps

    def _due(self, group: Group) -> bool:
        """It is over, as far as is known here."""
        if group.envelope.task_id in self._deciding:
            return False
        unwanted = self._desk.hands.unwanted(group.envelope, self._desk.clock.monotonic())
        return unwanted is not None or not isinstance(self._verdict(group), Open)

    def messages(self) -> list[Message]:
        """What is to be sent now, on a best effort."""
        out, self._out = self._out, []
        return out

    # -- watches

    def _unheard(self, envelope: Envelope, of: Round) -> list[str]:
        """The legs of which nobody here knows the end. An answer may be long, and is not read at every look."""
        group = self._open.get(envelope.task_id)
        return [leg.task_id for leg in of.legs if group is None or leg.task_id not in group.ends]

    def _watched(
        self,
        delivery: Delivery,
        envelope: Envelope | BadHeaders,
        of: Round | None,
        known: dict[str, KnownTask],
    ) -> Step:
        if isinstance(envelope, BadHeaders) or of is None:
            error = envelope.error if isinstance(envelope, BadHeaders) else "its round cannot be read"
            return self._unreadable(delivery, error)
        if isinstance(standing_of_returned(envelope, known.get(envelope.task_id)), StaleCopy):
            return Step([delivery])
        if self._over.get(envelope.task_id, -1) >= _stamp(envelope, of.number):
            return Step([delivery])
        if of.owner != self._desk.router_id and self._desk.lives(of.owner):
            return self._not_ours(delivery, envelope, of)
        if envelope.task_id not in self._open and self._in_doubt(envelope, known.get(envelope.task_id)):
            return self._park(delivery, envelope, of)
        group = self._led(delivery, envelope, of)
        if isinstance(group, Refusal):
            return self._unreadable(delivery, group.error)
        if group is None:
            return Step([delivery])
        self._take_ends(group, of, known)
        return self._judge(group, delivery) or self._park(delivery, envelope, of)

    def _in_doubt(self, envelope: Envelope, known: KnownTask | None) -> bool:
        """Whoever led it may have ended it, and the store does not tell. Not for ever: it stops no task."""
        if known is not None and not self._desk.recording.away:
            self._doubted.pop(envelope.task_id, None)
            return False
        now = self._desk.clock.monotonic()
        since = self._doubted.setdefault(envelope.task_id, now)
        if len(self._doubted) > REMEMBERED:
            self._doubted.popitem(last=False)
        return now - since < DOUBT_S

    def _take_ends(self, group: Group, of: Round, known: dict[str, KnownTask]) -> None:
        """The ends of legs that the store knows."""
        for leg in of.legs:
            there = known.get(leg.task_id)
            if there is not None and there.over and there.answer is not None:
                end = leg_end(there.answer, leg)
                if end is not None:
                    group.take(leg, end)

    def _led(self, delivery: Delivery, envelope: Envelope, of: Round) -> Group | Refusal | None:
        """The group as it is led here from now on; ``None`` for a watch of a round that is behind it.

        After a crash a round may have begun twice, with other agents: one of the two goes on, the other's are stopped.
        """
        group = self._open.get(envelope.task_id)
        led = -1 if group is None else _stamp(group.envelope, group.round.number)
        if group is None or led < _stamp(envelope, of.number):
            return self._adopt(delivery, envelope, of)
        if led > _stamp(envelope, of.number):
            return None
        strange = [leg.task_id for leg in of.legs if group.leg(leg.task_id) is None]
        for task_id in strange:
            self._cancels.cancel_leg(task_id)
        return None if strange else group

    def _adopt(self, delivery: Delivery, envelope: Envelope, of: Round) -> Group | Refusal:
        task = decode_task(delivery.body, max_bytes=self._desk.policies.intake.max_body_bytes)
        if isinstance(task, Refusal):
            return task
        log.info("task %s: its %s is led here now", envelope.task_id, task.mode)
        session = self._desk.session
        group = Group(replace(envelope, not_before=0), task, delivery.body, of, self._room(task), session)
        self._open[envelope.task_id] = group
        return group

    def _not_ours(self, delivery: Delivery, envelope: Envelope, of: Round) -> Step:
        """To the router that leads it, by the queue that only one router consumes; from there it waits for that router.

        Left to who gets it next, two watches that come back together could find the wrong one of two routers for ever.
        """
        names = self._desk.names
        if delivery.queue != names.returns:
            return self._park(delivery, envelope, of)
        message = watch_message(names, envelope, delivery.body, of, self._desk.clock.utc_us())
        return Step([delivery], send=[replace(message, routing_key=names.outcomes(of.owner))])

    def _park(self, delivery: Delivery, envelope: Envelope, of: Round) -> Step:
        now_us = self._desk.clock.utc_us()
        return Step([delivery], send=[watch_message(self._desk.names, envelope, delivery.body, of, now_us)])

    def _unreadable(self, delivery: Delivery, error: str) -> Step:
        """Goes on as a task without a round: it begins one, or is buried with what is wrong."""
        log.error("a watch cannot be read: %s", error)
        headers = {name: value for name, value in delivery.headers.items() if name != ROUND}
        message = Message(
            self._desk.names.returns, delivery.body, headers, content_type=delivery.content_type
        )
        return Step([delivery], send=[message])

    # -- deciding

    def _judge(self, group: Group, delivery: Delivery | None) -> Step | None:
        """What the group has come to, ``None`` while it goes on, and where that is being carried out."""
        if group.envelope.task_id in self._deciding:
            return None
        match self._verdict(group):
            case Open():
                return None
            case Won(end):
                return self._won(group, end, delivery)
            case RoundFailed(end):
                return self._failed(group, end, delivery)
            case Gathered() as gathered:
                return self._gathered(group, gathered, delivery)
            case other:
                assert_never(other)

    def _verdict(self, group: Group) -> Open | Won | RoundFailed | Gathered:
        if group.task.mode == "race":
            return race_verdict(group.round.legs, group.ends, group.winner)
        now_us, waits = self._desk.clock.utc_us(), self._waits(group)
        return fanout_verdict(group.task, group.round, group.ends, waits, now_us=now_us)

    def _won(self, group: Group, end: LegEnd, delivery: Delivery | None) -> Step:
        envelope = group.envelope
        won = {"agent": end.agent_id, "attempt": group.round.number, "mode": "race", "result": end.result}
        told = answer.of_group(envelope, {**won, "chunks": end.chunks} if end.chunks else won)
        return self._over_with(
            group, self._desk.end(envelope, TaskState.SUCCEEDED, told, delivery=delivery, rows=[])
        )

    def _gathered(self, group: Group, gathered: Gathered, delivery: Delivery | None) -> Step:
        envelope, fields = group.envelope, aggregate(group.task, gathered)
        if fields is None:
            reason, error = nobody(gathered)
            step = self._desk.bury(envelope, group.body, reason, error, delivery=delivery, rows=[])
        else:
            told = answer.of_group(envelope, {"attempt": group.round.number, **fields})
            step = self._desk.end(envelope, TaskState.SUCCEEDED, told, delivery=delivery, rows=[])
        return self._over_with(group, step)

    def _failed(self, group: Group, end: LegEnd, delivery: Delivery | None) -> Step:
        """The round was an attempt of the task, and what follows is what follows from any other.

        A leg that was stopped has only left its race: that nobody wants the task any more is said of the task itself.
        """
        desk, envelope = self._desk, group.envelope
        if end.outcome is OutcomeClass.CANCELLED:
            end = replace(end, outcome=OutcomeClass.RELEASED, attempt=None)
        attempt = self._attempt(group, end)
        outcome = Outcome(
            attempt.dispatch_id, envelope.task_id, end.agent_id, "", end.outcome, attempt.message
        )
        step = next_round(envelope, attempt, outcome, policy=desk.policies.retry, draw=desk.clock.draw())
        if request := desk.hands.unwanted(envelope, desk.clock.monotonic()):
            step = not_again(step, request.why)
        match step:
            case Bury(tried, reason, error):
                done = desk.bury(tried, group.body, reason, error, delivery=delivery, rows=[])
            case Cancelled(tried, why):
                told = answer.cancelled(tried)
                done = desk.end(tried, TaskState.CANCELLED, told, delivery=delivery, rows=[], error=why)
            case TryAgain(tried, delay_s):
                message = retry_message(desk.names, tried, group.body, delay_s, desk.clock.utc_us())
                done = Step([delivery] if delivery is not None else [], send=[message])
            case _:
                raise AssertionError("a round that failed does not succeed")
        return self._over_with(group, done)

    def _attempt(self, group: Group, end: LegEnd) -> Attempt:
        now_us = self._desk.clock.utc_us()
        if end.attempt is None:
            leg = next((leg for leg in group.round.legs if leg.agent_id == end.agent_id), group.round.legs[0])
            return Attempt(
                group.round.number, end.agent_id, leg.task_id, "", end.outcome, end.message, now_us, now_us
            )
        return replace(end.attempt, number=group.round.number)

    def _cancelled(self, group: Group, why: str) -> Step:
        envelope = group.envelope
        told = answer.cancelled(envelope)
        step = self._desk.end(envelope, TaskState.CANCELLED, told, delivery=None, rows=[], error=why)
        return self._over_with(group, step)

    def _over_with(self, group: Group, step: Step) -> Step:
        """The round is over as soon as this step is carried out; what is left of its legs is stopped."""
        self._deciding.add(group.envelope.task_id)
        done = step.done

        def over() -> None:
            done()
            self._close(group)

        step.done = over
        if not step.acks:
            step.undo = lambda _worst: None  # nothing stands behind it: the next look finds the same
        return step

    def _close(self, group: Group) -> None:
        task_id = group.envelope.task_id
        self._open.pop(task_id, None)
        self._over[task_id] = _stamp(group.envelope, group.round.number)
        if len(self._over) > REMEMBERED:
            self._over.popitem(last=False)
        group.winner = group.winner or ""
        self._stop_others(group)

    def _stop_others(self, group: Group) -> None:
        """The legs that are not needed any more, wherever they are."""
        for leg in group.round.legs:
            if leg.task_id not in group.ends and leg.task_id != group.winner:
                self._cancels.cancel_leg(leg.task_id)

    def _waits(self, group: Group) -> dict[str, str]:
        waiting = self._desk.hands.waiting
        return {
            leg.task_id: f"no answer in time: {waiting[leg.task_id].reason}"
            for leg in group.round.legs
            if leg.task_id in waiting
        }

    def _tell(self, dispatch: Dispatch, key: Callable[[str], str]) -> None:
        events, body = self._desk.names.events, dispatch.dispatch_id.encode()
        self._out.append(Message(key(dispatch.agent_id), body, {}, events, persistent=False, mandatory=False))


def _stamp(envelope: Envelope, number: int) -> int:
    """Rounds in order, over all lives of a task."""
    return envelope.life * 1_000 + number
