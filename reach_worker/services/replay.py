"""One run that sends dead letters to the routers again.

It is bounded by what was there when it began. Each letter is sent on, confirmed, before it is removed, so a crash at any
point loses nothing. A crash between the two leaves a letter that was sent already; sent again it makes the same life of
the same task, and the routers let the second copy go.

A run may outlive its session: a slow one holds the letters that are not meant for longer than the broker allows, and then
all of them come back. It goes on in the next session, past what it has dealt with, as long as it gets anywhere.
"""

from collections import Counter, deque
from collections.abc import Sequence
from typing import Final

from reach_worker.core.dead_letter import DeadLetter
from reach_worker.core.duplicates import KnownTask
from reach_worker.core.message import Message
from reach_worker.core.names import Names
from reach_worker.core.replaying import Anew, HeldBack, gone_on, replayed
from reach_worker.errors import BrokerUnavailable
from reach_worker.ports import Clock, Sent
from reach_worker.services.letter_queue import BATCH, Found, LetterQueue
from reach_worker.services.replay_order import KnownTasks, Progress, ReplayOrder, ReplayReport
from reach_worker.services.router.messages import returned_message

BURST_S: Final = 0.1
"""With a rate so much of it is sent at once."""
AHEAD_S: Final = 60.0
"""With a rate no more is taken at once than will be sent within this time."""
LOOK_AGAIN_S: Final = 0.5
LOOKS: Final = 40
"""So often it is looked whether the connection is back."""

Chosen = tuple[Found, Message]
Key = tuple[str, int, int]


def _key(item: Found) -> Key | None:
    """What a letter is known by when it comes again in another session; ``None``: one like it may be another task."""
    letter = item.letter
    return None if letter.nameless else (letter.task_id, letter.envelope.life, letter.died_at)


class Replay:
    """A run, and what it has dealt with so far."""

    def __init__(
        self,
        queue: LetterQueue,
        names: Names,
        clock: Clock,
        known: KnownTasks,
        order: ReplayOrder,
        progress: Progress,
    ) -> None:
        self._queue = queue
        self._names = names
        self._clock = clock
        self._known = known
        self._order = order
        self._progress = progress
        self._pace = _Pace(order, clock)
        self._report = ReplayReport()
        self._sent: Counter[Key | None] = Counter()
        self._stay: Counter[Key | None] = Counter()
        self._held = 0

    async def run(self) -> ReplayReport:
        """From the first letter to the last."""
        report = self._report
        count = report.there = await self._queue.count()
        while await self._walk(count):
            again = await self._connected_again()
            if again is None:
                break
            count = again
        report.left = await self._left()
        return report

    async def _walk(self, count: int) -> bool:
        """Go through what is there, in one session; whether to try another one, as this one has ended.

        Not if it got nowhere: the next one would not either.
        """
        before, last = len(self._report.replayed), None
        sent, stay = Counter(self._sent), Counter(self._stay)
        async for batch in self._queue.batches(count, self._pace.ahead):
            last = batch[-1]
            self._held += len(batch)
            waiting = deque(await self._unknown(batch, sent, stay))
            while waiting and not self._enough() and self._queue.holds(last):
                await self._send(await self._choose(waiting))
                await self._pace.keep()
            if self._enough() or not self._queue.holds(last):
                break
        ended = last is not None and not self._queue.holds(last)
        if ended:
            self._held = 0
        return ended and len(self._report.replayed) > before

    def _enough(self) -> bool:
        return self._order.reached(len(self._report.replayed)) or self._report.seen >= self._report.there

    async def _unknown(
        self, batch: Sequence[Found], sent: Counter[Key | None], stay: Counter[Key | None]
    ) -> list[Found]:
        """Those that this run has not dealt with. What it has sent already is removed, and no more."""
        unknown: list[Found] = []
        remove: list[Found] = []
        for item in batch:
            key = _key(item)
            if sent[key] > 0 and key is not None:
                sent[key] -= 1
                remove.append(item)
            elif stay[key] > 0:
                stay[key] -= 1
            else:
                unknown.append(item)
        await self._remove(remove)
        return unknown

    async def _remove(self, items: Sequence[Found]) -> None:
        await self._queue.bus.ack([item.delivery for item in items])
        report = self._report
        for item in items:
            task_id = item.letter.task_id
            if not self._queue.holds(item):
                report.not_removed.append(task_id)
            else:
                self._held -= 1
                if task_id in report.not_removed:
                    report.not_removed.remove(task_id)

    async def _choose(self, waiting: deque[Found]) -> list[Chosen]:
        """Take from the front what is to be sent together, each with the message that it becomes."""
        order, report = self._order, self._report
        known = await self._known(list({item.letter.task_id for item in waiting}))
        chosen: list[Chosen] = []
        while waiting and len(chosen) < self._pace.burst and report.seen < report.there:
            if order.reached(len(report.replayed) + len(chosen)):
                break
            item = waiting.popleft()
            report.seen += 1
            self._progress(report)
            if order.wanted.fits(item.letter):
                report.matched += 1
                message = await self._message(item.letter, known.get(item.letter.task_id))
                if not isinstance(message, HeldBack):
                    chosen.append((item, message))
                    continue
                report.held_back.append((item.letter.task_id, message.why))
            self._stay[_key(item)] += 1
        return chosen

    async def _message(self, letter: DeadLetter, known: KnownTask | None) -> Message | HeldBack:
        order = self._order
        past = gone_on(letter, known, force=order.force)
        if past is not None:
            return past
        body = order.body
        if order.edit is not None:
            edited = await order.edit(letter)
            if isinstance(edited, HeldBack):
                return edited
            body = edited
        anew = Anew(
            now_us=self._clock.utc_us(),
            max_bytes=order.max_bytes,
            new_id=self._clock.new_id(),
            to_agent=order.to_agent,
            body=body,
            force=order.force,
        )
        result = replayed(letter, anew)
        return result if isinstance(result, HeldBack) else returned_message(self._names, *result)

    async def _send(self, chosen: Sequence[Chosen]) -> None:
        """Send all, then remove what the broker has confirmed."""
        report = self._report
        if self._order.dry_run:
            report.replayed += [item.letter.task_id for item, _ in chosen]
            return
        results = await self._queue.bus.publish([message for _, message in chosen])
        sent: list[Found] = []
        for (item, _), result in zip(chosen, results, strict=True):
            task_id = item.letter.task_id
            if result is Sent.CONFIRMED:
                sent.append(item)
                self._sent[_key(item)] += 1
            elif self._queue.holds(item):
                self._stay[_key(item)] += 1
                report.failed.append((task_id, f"the broker did not take it: {result.value}"))
            else:  # it comes again with the next session, if there is one
                report.seen -= 1
                report.matched -= 1
        self._pace.spend(len(sent))
        report.replayed += [item.letter.task_id for item in sent]
        await self._remove(sent)

    async def _connected_again(self) -> int | None:
        """How many wait once there is a connection; ``None`` if it does not come back in time."""
        for _ in range(LOOKS):
            await self._clock.sleep(LOOK_AGAIN_S)
            try:
                return await self._queue.count()
            except BrokerUnavailable:
                continue
        return None

    async def _left(self) -> int:
        """What is in the queue after the run: what waits now, and what we hold and give back."""
        try:
            return await self._queue.count() + self._held
        except BrokerUnavailable:
            return self._report.there - len(self._report.replayed) + len(self._report.not_removed)


class _Pace:
    """A rate, kept in small bursts. ``burst``: sent together; ``ahead``: taken together."""

    def __init__(self, order: ReplayOrder, clock: Clock) -> None:
        self._rate = None if order.dry_run else order.rate
        self._clock = clock
        self._due = clock.monotonic()
        self.burst = self.ahead = BATCH
        if self._rate is not None:
            self.burst = min(BATCH, max(1, int(self._rate * BURST_S)))
            self.ahead = min(BATCH, max(1, int(self._rate * AHEAD_S)))

    def spend(self, count: int) -> None:
        """So many were sent just now."""
        if self._rate is not None:
            self._due = max(self._due, self._clock.monotonic()) + count / self._rate

    async def keep(self) -> None:
        """Wait until the next may be sent."""
        if self._rate is not None:
            await self._clock.sleep(max(0.0, self._due - self._clock.monotonic()))
