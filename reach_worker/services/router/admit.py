"""ADMIT: from a message to a task that can be bound, or to its end: dead letter, unmatched, answered from the store."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from reach_worker.core import admission
from reach_worker.core.admission import CALL, NEEDS_ID, ONE_AGENT, Admitted, Refused
from reach_worker.core.dispatch import DISPATCH
from reach_worker.core.duplicates import (
    Fresh,
    InHand,
    KnownTask,
    Remembered,
    StaleCopy,
    UnderWay,
    standing_of_published,
    standing_of_returned,
)
from reach_worker.core.envelope import Envelope
from reach_worker.core.message import Delivery
from reach_worker.core.outcome import DeadLetterReason
from reach_worker.core.recovery import MICROSECONDS
from reach_worker.ports import Row, Store
from reach_worker.services.effects import Step
from reach_worker.services.router.bind import Binder
from reach_worker.services.router.claims import Claims
from reach_worker.services.router.desk import Desk
from reach_worker.services.router.dispatcher import Dispatcher
from reach_worker.services.router.messages import retry_message

log = logging.getLogger(__name__)

Read = Admitted | Refused

IN_HAND: Final = "it is in hand already"
ASIDE_S: Final = 1.0
LATE_S: Final = 30.0
"""A task that waited so much longer than it should is told: the broker may be slow to forward, by minutes."""


class Admission:
    """Takes what arrived on intake, returns and the lanes."""

    def __init__(self, desk: Desk, binder: Binder, dispatcher: Dispatcher, store: Store) -> None:
        self._desk = desk
        self._binder = binder
        self._dispatcher = dispatcher
        self._store = store
        self._claims = Claims(desk, store)
        self._displaced: list[Step] = []

    async def begin_turn(self) -> None:
        """Before anything is taken."""
        await self._claims.begin_turn()

    async def besides(self) -> list[Step]:
        """Copies that another one has displaced, and those that another router was first with."""
        displaced, self._displaced = self._displaced, []
        return [*displaced, *await self._claims.catch_up()]

    async def published(self, deliveries: Sequence[Delivery]) -> list[Step]:
        """Messages from the public queue."""
        return await self._new([(delivery, self._read_public(delivery)) for delivery in deliveries])

    async def called(self, deliveries: Sequence[Delivery]) -> list[Step]:
        """Tasks that agents call for. One that comes twice is done once, and answered to both, as if published."""
        return await self._new([(delivery, self._read_call(delivery)) for delivery in deliveries])

    async def _new(self, arrived: Sequence[tuple[Delivery, Read]]) -> list[Step]:
        read = [item for _, item in arrived]
        known = await self._known(read)
        now_us = self._desk.clock.utc_us()
        wishes = self._wishes(read, known, lambda e: standing_of_published(known.get(e.task_id), now_us))
        granted = await self._claims.make(wishes, known)
        return _steps([self._take_new(d, r, known, granted) for d, r in arrived])

    async def returned(self, deliveries: Sequence[Delivery], *, from_lane: bool = False) -> list[Step]:
        """Tasks from our own queues: retries, replays, what waited in a lane."""
        read = [self._read_internal(delivery) for delivery in deliveries]
        known = await self._known(read)
        wishes = self._wishes(read, known, lambda e: standing_of_returned(e, known.get(e.task_id)))
        granted = await self._claims.make(wishes, known)
        return _steps(
            [
                self._take_returned(d, r, known, granted, from_lane=from_lane)
                for d, r in zip(deliveries, read, strict=True)
            ]
        )

    def _wishes(
        self, read: Sequence[Read], known: dict[str, KnownTask], standing_of: Callable[[Envelope], object]
    ) -> list[tuple[str, Fresh | InHand]]:
        """What would begin here now, if nobody else has begun with it. Where there is nobody else, what is known."""
        asked = [r for r in read if r.envelope.task_id in known] if self._desk.alone() else read
        admitted = (
            r.envelope for r in asked if isinstance(r, Admitted) and not self._in_hand(r.envelope.task_id)
        )
        standing = ((envelope.task_id, standing_of(envelope)) for envelope in admitted)
        return [(task_id, found) for task_id, found in standing if isinstance(found, Fresh | InHand)]

    def _in_hand(self, task_id: str) -> bool:
        hands = self._desk.hands
        return task_id in hands.waiting or task_id in hands.by_task or task_id in hands.closing

    def _read_public(self, delivery: Delivery) -> Read:
        clock = self._desk.clock
        limit = self._desk.policies.intake.max_body_bytes
        read = admission.admit_public(
            delivery, now_us=clock.utc_us(), new_id=clock.new_id, max_bytes=limit, names=self._desk.names
        )
        if isinstance(read, Refused):
            return read
        read = self._with_side_effects(read)
        if read.envelope.side_effects and read.for_several:
            return Refused(read.envelope, ONE_AGENT.reason, ONE_AGENT.error, read.body)
        if read.envelope.side_effects and not admission.has_own_id(read.task, delivery):
            return Refused(read.envelope, NEEDS_ID.reason, NEEDS_ID.error, read.body)
        return read

    def _read_internal(self, delivery: Delivery) -> Read:
        clock = self._desk.clock
        limit = self._desk.policies.intake.max_body_bytes
        read = admission.admit_internal(delivery, now_us=clock.utc_us(), new_id=clock.new_id, max_bytes=limit)
        return read if isinstance(read, Refused) else self._with_side_effects(read)

    def _read_call(self, delivery: Delivery) -> Read:
        clock, policies = self._desk.clock, self._desk.policies
        limit = policies.intake.max_body_bytes
        read = admission.admit_call(
            delivery,
            now_us=clock.utc_us(),
            new_id=clock.new_id,
            max_bytes=limit,
            limits=policies.handoff,
        )
        return read if isinstance(read, Refused) else self._with_side_effects(read)

    def _with_side_effects(self, read: Admitted) -> Admitted:
        """A capability that declares side effects makes every task of it one with side effects."""
        capability = read.envelope.capability
        if read.envelope.side_effects or not self._desk.fleet.has_side_effects(capability):
            return read
        return replace(read, envelope=replace(read.envelope, side_effects=True))

    async def _known(self, read: Sequence[Read]) -> dict[str, KnownTask]:
        """What is known of these ids: the store's word, or our own memory where that knows more."""
        if not read:
            return {}
        ids = list({item.envelope.task_id for item in read})
        await self._desk.before_deciding(ids)
        known = await self._store.known_tasks(ids)
        ended = self._desk.hands.ended
        for task_id in ids:
            mine = ended.get(task_id)
            if mine is not None and mine.knows_more_than(known.get(task_id)):
                known[task_id] = mine
        return known

    def _take_new(
        self, delivery: Delivery, read: Read, known: dict[str, KnownTask], granted: dict[str, int]
    ) -> Step | None:
        """Of nearly every task that is published nothing was ever heard: it begins."""
        hands, task_id = self._desk.hands, read.envelope.task_id
        met = task_id in known or task_id in hands.gone_on or task_id in hands.recalled
        if met or self._in_hand(task_id) or read.envelope.life or isinstance(read, Refused):
            return self._take_published(delivery, read, known, granted)
        return self._begin(delivery, read)

    def _take_published(
        self, delivery: Delivery, read: Read, known: dict[str, KnownTask], granted: dict[str, int]
    ) -> Step | None:
        task_id = read.envelope.task_id
        hands = self._desk.hands
        self._dispatcher.forget_settled(read.envelope, known.get(task_id))
        in_hand = self._in_hand(task_id)
        if isinstance(read, Refused):
            return self._refuse(delivery, read, taken=in_hand or task_id in known)
        recalled = None if in_hand else hands.recall(delivery, task_id)
        if recalled is not None:
            return self._binder.place(recalled.admitted, delivery, rows=recalled.rows)
        flight = hands.of_task(task_id)
        if flight is not None and delivery.redelivered:
            again = self._dispatcher.sent_before(flight, read.envelope, delivery)
            if again is not None:
                return again
        under_way = in_hand or (task_id not in known and task_id in hands.gone_on)
        standing = (
            UnderWay() if under_way else standing_of_published(known.get(task_id), self._desk.clock.utc_us())
        )
        match standing:
            case UnderWay():
                task = None if in_hand else known.get(task_id)
                envelope = read.envelope if task is None else replace(read.envelope, life=task.life)
                in_doubt = self._dispatcher.in_doubt(envelope, delivery, task)
                return in_doubt or self._join(delivery, read, here=in_hand)
            case Remembered(told):
                return self._answer_again(delivery, read, told)
            case InHand() if task_id not in granted:
                joined = self._join(delivery, read)
                return self._aside(delivery, read, joined.rows) if delivery.redelivered else joined
            case Fresh(life) | InHand(life):
                if life != read.envelope.life:
                    read = replace(read, envelope=replace(read.envelope, life=life))
                return self._begin(delivery, read)

    def _take_returned(
        self,
        delivery: Delivery,
        read: Read,
        known: dict[str, KnownTask],
        granted: dict[str, int],
        *,
        from_lane: bool,
    ) -> Step | None:
        if isinstance(read, Refused):
            return self._refuse(delivery, read, taken=False)
        envelope = read.envelope
        hands = self._desk.hands
        standing = standing_of_returned(envelope, known.get(envelope.task_id))
        goes_on = not isinstance(standing, StaleCopy)
        self._dispatcher.forget_settled(envelope, known.get(envelope.task_id), goes_on=goes_on)
        flight = hands.of_task(envelope.task_id)
        if flight is not None:
            again = self._dispatcher.sent_before(flight, read.envelope, delivery)
            if again is not None:
                return again
        if envelope.task_id in hands.waiting or flight is not None:
            if isinstance(standing, StaleCopy):
                return self._stale_copy(delivery, read, known.get(envelope.task_id), standing.why)
            return self._second_copy(delivery, read, known.get(envelope.task_id), from_lane=from_lane)
        recalled = hands.recall(delivery, envelope.task_id)
        if recalled is not None:
            return self._binder.place(recalled.admitted, delivery, rows=recalled.rows)
        if hands.closing.get(envelope.task_id, -1) >= envelope.life:
            return self._let_go(delivery, envelope.task_id, "it ends in this very turn")
        match standing:
            case StaleCopy(why):
                return self._stale_copy(delivery, read, known.get(envelope.task_id), why)
            case InHand() if envelope.task_id not in granted:
                return self._aside(delivery, read)
        return self._go_on(delivery, read, from_lane=from_lane)

    def _go_on(self, delivery: Delivery, read: Admitted, *, from_lane: bool) -> Step | None:
        """A task goes on from where it was, if it is time."""
        envelope = read.envelope
        now_us = self._desk.clock.utc_us()
        late_s = (now_us - envelope.not_before) / MICROSECONDS
        if envelope.not_before and late_s > LATE_S:
            log.warning("task %s comes back from its retry queue %.0f s late", envelope.task_id, late_s)
        if envelope.not_before > now_us:
            delay_s = (envelope.not_before - now_us) / MICROSECONDS
            return Step(
                [delivery], send=[retry_message(self._desk.names, envelope, read.body, delay_s, now_us)]
            )
        read = replace(read, envelope=replace(envelope, not_before=0))
        return self._begin(delivery, read, from_lane=from_lane)

    def _second_copy(
        self, delivery: Delivery, read: Admitted, known: KnownTask | None, *, from_lane: bool
    ) -> Step | None:
        """We hold a copy of that task already, or have sent it: this one is the same again, or on another branch.

        Of two branches the one that waits here goes, if by the store it does not count. Where the store does not
        know, both stay, and the one that came is looked at again a little later; so it is also where the other one is
        only about to be sent. Of two that are the same the one that came goes, unless the other one waits with the
        dispatch or the outcome that it follows from: whoever sent the copy has settled that, so when it came again
        nobody would go on with it.
        """
        hands, envelope = self._desk.hands, read.envelope
        waiting, flight = hands.waiting.get(envelope.task_id), hands.of_task(envelope.task_id)
        if flight is not None:
            out = flight.dispatch.envelope.tip == envelope.tip and not flight.rows
            return self._let_go(delivery, envelope.task_id, IN_HAND) if out else self._aside(delivery, read)
        if waiting is None:
            return self._go_on(delivery, read, from_lane=from_lane)
        same = waiting.admitted.envelope.tip == envelope.tip
        if same and DISPATCH not in waiting.delivery.headers:
            return self._let_go(delivery, envelope.task_id, IN_HAND)
        if same or isinstance(standing_of_returned(waiting.admitted.envelope, known), StaleCopy):
            hands.take(envelope.task_id)
            self._displaced.append(Step([waiting.delivery], rows=list(waiting.rows)))
        return self._go_on(delivery, read, from_lane=from_lane) if same else self._aside(delivery, read)

    def _aside(self, delivery: Delivery, read: Admitted, rows: Sequence[Row] = ()) -> Step:
        """Who has the task is not clear yet: it waits on a rung, where it holds up nobody, and is looked at again."""
        now_us = self._desk.clock.utc_us()
        message = retry_message(self._desk.names, read.envelope, read.body, ASIDE_S, now_us)
        return Step([delivery], send=[message], rows=list(rows))

    def _begin(self, delivery: Delivery, read: Admitted, *, from_lane: bool = False) -> Step | None:
        self._desk.counts.admitted += 1
        envelope = read.envelope
        left_us = envelope.remaining_us(self._desk.clock.utc_us())
        if left_us is not None and left_us <= 0:
            error = "its deadline had passed before an agent could take it"
            return self._desk.bury(
                envelope, read.body, DeadLetterReason.EXPIRED, error, delivery=delivery, rows=[]
            )
        return self._binder.place(read, delivery, rows=[], from_lane=from_lane)

    def _refuse(self, delivery: Delivery, read: Refused, *, taken: bool) -> Step:
        """A dead letter. ``taken``: another task has that id, so this one, which is none, gets its own."""
        envelope = read.envelope
        if taken:
            envelope = replace(envelope, task_id=self._desk.clock.new_id())
        return self._desk.bury(envelope, read.body, read.reason, read.error, delivery=delivery, rows=[])

    def _join(self, delivery: Delivery, read: Admitted, *, here: bool = False) -> Step:
        """One more waits for the answer. ``here``: the task is in our own hands.

        Where it waits here with a message that nobody had before, and this one came again, this one is kept: a dispatch
        may have been recorded for it and never sent, and that is asked only of a message that came again.
        """
        if here and delivery.redelivered and self._waits_as_new(read.envelope.task_id):
            waiting = self._desk.hands.waiting[read.envelope.task_id]
            first, waiting.delivery = waiting.delivery, delivery
            joined = self._joined(first, waiting.admitted, here=True)
            return replace(joined, rows=[*joined.rows, *self._joined(delivery, read, here=True).rows])
        return self._joined(delivery, read, here=here)

    def _joined(self, delivery: Delivery, read: Admitted, *, here: bool) -> Step:
        self._desk.counts.duplicates += 1
        joined = self._desk.joined(read.envelope)
        for one in joined:
            self._desk.hands.join(one)
            if not here:
                self._desk.hands.joined_elsewhere.append(one)
        return Step([delivery], rows=list(joined))

    def _waits_as_new(self, task_id: str) -> bool:
        """It waits here with a message from outside that came for the first time.

        That one may be let go for a dispatch that is recorded, sent or not: nothing rests on it.
        """
        waiting = self._desk.hands.waiting.get(task_id)
        if waiting is None or waiting.delivery.redelivered:
            return False
        return waiting.delivery.queue == self._desk.names.intake or CALL in waiting.delivery.headers

    def _answer_again(self, delivery: Delivery, read: Admitted, told: bytes | None) -> Step:
        self._desk.counts.duplicates += 1
        envelope = read.envelope
        step = Step([delivery])
        if envelope.reply_to and told is not None:
            step.offer.append(
                self._desk.offer(envelope.task_id, envelope.reply_to, envelope.correlation_id, told)
            )
        return step

    def _stale_copy(self, delivery: Delivery, read: Admitted, known: KnownTask | None, why: str) -> Step:
        hands, task_id = self._desk.hands, read.envelope.task_id
        held = task_id in hands.by_task or (task_id in hands.waiting and not self._waits_as_new(task_id))
        in_doubt = None if held else self._dispatcher.in_doubt(read.envelope, delivery, known, copy=True)
        return in_doubt or self._let_go(delivery, task_id, why)

    def _let_go(self, delivery: Delivery, task_id: str, why: str) -> Step:
        self._desk.counts.stale_copies += 1
        log.info("task %s: a copy is let go, %s", task_id, why)
        return Step([delivery])


def _steps(found: Sequence[Step | None]) -> list[Step]:
    return [step for step in found if step is not None]
