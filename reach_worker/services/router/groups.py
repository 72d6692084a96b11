"""Race and fan-out: decides by what comes back of the legs, and ends the task. See :mod:`reach_worker.core.group`."""

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from reach_worker.core.announcement import cancel_key, go_key
from reach_worker.core.dispatch import Dispatch
from reach_worker.core.duplicates import KnownTask, StaleCopy, standing_of_returned
from reach_worker.core.envelope import GROUP, BadHeaders, Envelope, envelope_from, text
from reach_worker.core.group import (
    ROUND,
    Gathered,
    Open,
    Round,
    RoundFailed,
    Won,
    fanout_verdict,
    leg_end,
    race_verdict,
    room,
    round_from,
)
from reach_worker.core.message import Delivery, Message
from reach_worker.core.task import Refusal, decode_task
from reach_worker.ports import Store
from reach_worker.services.effects import Step
from reach_worker.services.router.cancels import Cancels
from reach_worker.services.router.desk import Desk
from reach_worker.services.router.group_ends import GroupEnds
from reach_worker.services.router.led import REMEMBERED, Group, Led, stamp
from reach_worker.services.router.longest_out import DOUBT_S
from reach_worker.services.router.lost_legs import LostLegs
from reach_worker.services.router.messages import watch_message

log = logging.getLogger(__name__)

STOOD_IN: Final = -1
"""No session: a group of another router's is led here, which may be back at any moment."""


class Groups:
    """Leads groups. ``lives`` of the desk tells whether another router still leads one of its own."""

    def __init__(self, desk: Desk, store: Store, cancels: Cancels, led: Led) -> None:
        self._desk = desk
        self._store = store
        self._cancels = cancels
        self._lost = LostLegs(desk, store)
        self._ends = GroupEnds(desk)
        self._led = led
        self._doubted: OrderedDict[str, float] = OrderedDict()
        self._out: list[Message] = []
        self._deciding: set[str] = set()

    def begin_turn(self) -> None:
        """What the last turn decided is carried out, or to be decided again."""
        self._deciding.clear()

    # -- what comes back

    async def ended(self, deliveries: Sequence[Delivery]) -> list[Step]:
        """Ends of legs, as messages in a router's outcomes queue. One of a group that is not here is in the store too.

        A router that was frozen for some seconds may find here what another one has acted on meanwhile: where there are
        others, the store is asked before anything ends.
        """
        led = [(delivery, self._heard(delivery)) for delivery in deliveries]
        over = [group for _, group in led if group is not None and not isinstance(self._verdict(group), Open)]
        ask = bool(over) and not self._desk.alone()
        known = await self._store.known_tasks([group.envelope.task_id for group in over]) if ask else {}
        steps = []
        for delivery, group in led:
            certain = (
                group is not None and group.session == self._desk.session
            )  # else the next look asks the store
            if group is None or not certain or self._dropped(group, known.get(group.envelope.task_id)):
                steps.append(Step([delivery]))
            else:
                steps.append(self._judge(group, delivery) or Step([delivery]))
        return steps

    def _heard(self, delivery: Delivery) -> Group | None:
        """The group of a leg that has ended, with that end."""
        group = self._led.open.get(text(delivery.headers, GROUP) or "")
        leg = None if group is None else group.leg(delivery.correlation_id or "")
        end = None if leg is None else leg_end(delivery.body, leg)
        if group is None or leg is None or end is None:
            return None
        group.take(leg, end)
        return group

    def _dropped(self, group: Group, there: KnownTask | None) -> bool:
        """It was ended elsewhere."""
        if not isinstance(standing_of_returned(group.envelope, there), StaleCopy):
            return False
        self._close(group)
        return True

    def spoke(self, dispatch: Dispatch, delivery: Delivery) -> Step:
        """A leg of a race has its first chunk: the first one wins, and is told so; another is stopped."""
        group = self._led.open.get(dispatch.envelope.group or "")
        if group is not None and group.leg(dispatch.envelope.task_id) is not None:
            if group.winner is None:
                group.winner = dispatch.envelope.task_id
                log.info("race %s: %s spoke first", group.envelope.task_id, dispatch.agent_id)
                self._stop_others(group)
            key = go_key if group.winner == dispatch.envelope.task_id else cancel_key
            self._tell(dispatch, key)
        elif not self._passed_on(dispatch.envelope, delivery) and dispatch.envelope.group in self._led.over:
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
        groups = (self._led.open.get(envelope.task_id) for envelope, _ in led)
        return [*steps, *await self._lost.given_up([group for group in groups if group is not None], known)]

    async def tick(self) -> list[Step]:
        """What time does: fan-outs that have waited long enough, and groups that nobody wants any more.

        This router may have heard nothing for long, and another one has led the group meanwhile: so the store is asked.
        """
        self._give_back()
        due = [group for group in self._led.open.values() if self._due(group)]
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
            if self._dropped(group, there):
                continue
            if group.session != self._desk.session:
                if self._in_doubt(group.envelope, there):
                    continue
                if self._own(group.round):
                    group.session = self._desk.session
            self._take_ends(group, group.round, known)
            unwanted = self._desk.hands.unwanted(group.envelope, now)
            if unwanted is not None:
                steps.append(self._over_with(group, self._ends.cancelled(group, unwanted.why)))
            elif (step := self._judge(group, None)) is not None:
                steps.append(step)
        return steps

    def _give_back(self) -> None:
        """Groups of a router that is there again: it leads them. Their watches go to it, if it has begun anew."""
        for task_id, group in list(self._led.open.items()):
            back = not self._own(group.round) and self._desk.lives(group.round.owner)
            if back and task_id not in self._deciding:
                log.info("task %s: %s leads its %s again", task_id, group.round.owner, group.task.mode)
                del self._led.open[task_id]

    def _own(self, of: Round) -> bool:
        return of.owner == self._desk.router_id

    def _due(self, group: Group) -> bool:
        """It is over, as far as is known here; or in this session another router may have ended it."""
        if group.envelope.task_id in self._deciding:
            return False
        if group.session != self._desk.session:
            return True
        unwanted = self._desk.hands.unwanted(group.envelope, self._desk.clock.monotonic())
        return unwanted is not None or not isinstance(self._verdict(group), Open)

    def messages(self) -> list[Message]:
        """What is to be sent now, on a best effort."""
        out, self._out = self._out, []
        return out

    # -- watches

    def _unheard(self, envelope: Envelope, of: Round) -> list[str]:
        """The legs of which nobody here knows the end. An answer may be long, and is not read at every look."""
        group = self._led.open.get(envelope.task_id)
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
            self._forget(envelope, of)
            return Step([delivery])
        if self._led.is_over(envelope, of.number):
            return Step([delivery])
        if not self._own(of) and self._desk.lives(of.owner):
            return self._not_ours(delivery, envelope, of)
        if envelope.task_id not in self._led.open and self._in_doubt(envelope, known.get(envelope.task_id)):
            return self._park(delivery, envelope, of)
        group = self._led_from(delivery, envelope, of)
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

    def _led_from(self, delivery: Delivery, envelope: Envelope, of: Round) -> Group | Refusal | None:
        """The group as it is led here from now on; ``None`` for a watch of a round that is behind it.

        After a crash a round may have begun twice, with other agents: one of the two goes on, the other's are stopped.
        """
        group = self._led.open.get(envelope.task_id)
        led = -1 if group is None else stamp(group.envelope, group.round.number)
        if group is None or led < stamp(envelope, of.number):
            return self._adopt(delivery, envelope, of)
        if led > stamp(envelope, of.number):
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
        left = room(task, self._desk.policies.intake.max_body_bytes)
        session = self._desk.session if self._own(of) else STOOD_IN
        group = Group(replace(envelope, not_before=0), task, delivery.body, of, left, session)
        self._led.open[envelope.task_id] = group
        return group

    def _forget(self, envelope: Envelope, of: Round) -> None:
        """Another router has ended that round."""
        group = self._led.open.get(envelope.task_id)
        if group is not None and stamp(group.envelope, group.round.number) <= stamp(envelope, of.number):
            self._close(group)

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
        verdict = self._verdict(group)
        return (
            None
            if isinstance(verdict, Open)
            else self._over_with(group, self._ends.step(group, verdict, delivery))
        )

    def _verdict(self, group: Group) -> Open | Won | RoundFailed | Gathered:
        if group.task.mode == "race":
            return race_verdict(group.round.legs, group.ends, group.winner)
        now_us, waits = self._desk.clock.utc_us(), self._waits(group)
        return fanout_verdict(group.task, group.round, group.ends, waits, now_us=now_us)

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
        self._led.close(group)
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
