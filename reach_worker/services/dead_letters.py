"""Looking at dead letters and unmatched tasks, and sending them on their way again.

Looking takes messages without acknowledging them and gives them back by ending the session: the queues have
no limit that looking could reach. Every message is sent on, confirmed, before it is removed, so a crash at
any point loses nothing. A crash between the two leaves a letter that was sent already; sent again it makes the
same life of the same task, and the routers let the second copy go.
"""

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from reach_worker.core.dead_letter import (
    Anew,
    DeadLetter,
    Filter,
    HeldBack,
    assigned,
    dead_letter_from,
    gone_on,
    replayed,
)
from reach_worker.core.duplicates import KnownTask
from reach_worker.core.message import Delivery, Message
from reach_worker.core.names import Names
from reach_worker.errors import BrokerUnavailable, OutsideWorld
from reach_worker.ports import Bus, Clock, Sent
from reach_worker.services.router.messages import returned_message

BATCH: Final = 200
"""Letters that are taken, sent and acknowledged together."""
BURST_S: Final = 0.1
"""With a rate so much of it is sent at once."""
AHEAD_S: Final = 60.0
"""With a rate no more is taken at once than will be sent within this time."""

KnownTasks = Callable[[Sequence[str]], Awaitable[Mapping[str, KnownTask]]]
"""What the store knows of these task ids. It never raises: a store that is away knows nothing."""


async def nothing_known(_task_ids: Sequence[str]) -> Mapping[str, KnownTask]:
    """Where there is no store to ask."""
    return {}


@dataclass(frozen=True, slots=True)
class Found:
    """A dead letter and the message that holds it."""

    letter: DeadLetter
    delivery: Delivery


Edit = Callable[[DeadLetter], Awaitable[bytes | HeldBack]]
"""What becomes of a dead letter's body before it is replayed; or why that letter stays."""


@dataclass(frozen=True, slots=True)
class ReplayOrder:
    """What to replay. ``rate`` in messages per second (``None`` as fast as it goes).

    ``body`` replaces the task's own; ``edit`` makes a new one of each.
    """

    wanted: Filter
    limit: int | None = None
    rate: float | None = None
    to_agent: str | None = None
    body: bytes | None = None
    edit: Edit | None = None
    force: bool = False
    dry_run: bool = False
    max_bytes: int = 8 * 1024 * 1024

    def reached(self, count: int) -> bool:
        """So many are enough."""
        return self.limit is not None and count >= self.limit


@dataclass(slots=True)
class ReplayReport:
    """What a run did. ``seen`` of ``there`` messages were looked at; ``left`` are in the queue after it.

    ``not_removed``: those of ``replayed`` that are in the queue still, because the connection ended before they were
    acknowledged. Replaying them once more does no harm.
    """

    there: int = 0
    seen: int = 0
    matched: int = 0
    replayed: list[str] = field(default_factory=list)
    held_back: list[tuple[str, str]] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    not_removed: list[str] = field(default_factory=list)
    left: int = 0


Progress = Callable[[ReplayReport], None]
Chosen = tuple[Found, Message]


class DeadLetters:
    """The tools for one queue: the dead letters, or the unmatched tasks."""

    def __init__(
        self, bus: Bus, names: Names, clock: Clock, queue: str, known: KnownTasks = nothing_known
    ) -> None:
        self._bus = bus
        self._names = names
        self._clock = clock
        self._queue = queue
        self._known = known

    async def count(self) -> int:
        """Messages that are ready. Raises :class:`OutsideWorld` if there is no such queue."""
        depth = await self._bus.depth(self._queue)
        if depth is None:
            raise OutsideWorld(
                f"the broker has no queue {self._queue!r}: start a router, or run `reach topology declare`"
            )
        return depth[0]

    async def look(self, wanted: Filter, limit: int | None = None) -> list[Found]:
        """Those that are meant, oldest first, of what was there when it began. They stay in the queue."""
        found: list[Found] = []
        async for item in self.walk(wanted):
            found.append(item)
            if limit is not None and len(found) >= limit:
                break
        return found

    async def walk(self, wanted: Filter) -> AsyncIterator[Found]:
        """As :meth:`look`, one after the other: for very many. Raises :class:`OutsideWorld` if it cannot go on."""
        seen, there = 0, await self.count()
        async for item in self._each(there):
            seen += 1
            if wanted.fits(item.letter):
                yield item
        if seen < there:
            await self.count()  # raises where not somebody else took some, but the connection was lost

    async def remove(self, found: Sequence[Found]) -> list[str]:
        """Remove for good what :meth:`look` found in this session; the task ids of what is gone for certain."""
        held = [item for item in found if self._bus.current(item.delivery)]
        await self._bus.ack([item.delivery for item in held])
        return [item.letter.task_id for item in held if self._bus.current(item.delivery)]

    async def past(self, letters: Sequence[DeadLetter]) -> list[str | None]:
        """Of each letter why it is past, by what the store knows of its task; ``None`` if it is not."""
        known = await self._known(list({letter.task_id for letter in letters}))
        found = [gone_on(letter, known.get(letter.task_id), force=False) for letter in letters]
        return [None if one is None else one.why for one in found]

    async def replay(self, order: ReplayOrder, progress: Progress = lambda _report: None) -> ReplayReport:
        """Send dead letters to the routers again, bounded by what was there when it began."""
        report = ReplayReport(there=await self.count())
        pace = _Pace(order, self._clock)
        taken, lost = 0, False
        async for batch in self._batches(report.there, pace.ahead):
            taken += len(batch)
            waiting = deque(batch)
            while waiting and not order.reached(len(report.replayed)):
                chosen = await self._choose(waiting, pace.burst, order, report, progress)
                await self._send(chosen, order, report)
                await pace.keep(len(report.replayed))
            lost = not all(map(self._held, batch))
            if lost or order.reached(len(report.replayed)):
                break
        removed = 0 if order.dry_run else len(report.replayed) - len(report.not_removed)
        held = 0 if lost else taken - removed
        report.left = await self._waiting_now(report.there - removed - held) + held
        return report

    async def drop(self, wanted: Filter, limit: int | None = None) -> list[str]:
        """Remove for good those that are meant; their task ids."""
        dropped: list[str] = []
        async for item in self._each(await self.count()):
            if wanted.fits(item.letter) and (limit is None or len(dropped) < limit):
                await self._bus.ack([item.delivery])
                dropped.append(item.letter.task_id)
        return dropped

    async def assign(
        self, task_id: str, *, to_agent: str | None, capability: str | None, max_bytes: int
    ) -> HeldBack | None:
        """Send one unmatched task to the routers again, for a person's choice; ``None`` if that went well.

        Raises :class:`OutsideWorld` if the broker does not take it or there is no such task.
        """
        async for item in self._each(await self.count()):
            if item.letter.task_id != task_id:
                continue
            result = assigned(item.letter, to_agent=to_agent, capability=capability, max_bytes=max_bytes)
            if isinstance(result, HeldBack):
                return result
            (sent,) = await self._bus.publish([returned_message(self._names, *result)])
            if sent is not Sent.CONFIRMED:
                raise OutsideWorld(f"the broker did not take task {task_id}: {sent.value}")
            await self._bus.ack([item.delivery])
            return None
        raise OutsideWorld(f"there is no task {task_id!r} among the unmatched")

    async def _choose(
        self, waiting: deque[Found], most: int, order: ReplayOrder, report: ReplayReport, progress: Progress
    ) -> list[Chosen]:
        """Take from the front what is to be sent together, each with the message that it becomes."""
        known = await self._known(list({item.letter.task_id for item in waiting}))
        chosen: list[Chosen] = []
        while waiting and len(chosen) < most and not order.reached(len(report.replayed) + len(chosen)):
            item = waiting.popleft()
            report.seen += 1
            progress(report)
            if not order.wanted.fits(item.letter):
                continue
            report.matched += 1
            message = await self._message(item.letter, order, known.get(item.letter.task_id))
            if isinstance(message, HeldBack):
                report.held_back.append((item.letter.task_id, message.why))
            else:
                chosen.append((item, message))
        return chosen

    async def _message(
        self, letter: DeadLetter, order: ReplayOrder, known: KnownTask | None
    ) -> Message | HeldBack:
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

    async def _send(self, chosen: Sequence[Chosen], order: ReplayOrder, report: ReplayReport) -> None:
        """Send all, then remove what the broker has confirmed."""
        if order.dry_run:
            report.replayed += [item.letter.task_id for item, _ in chosen]
            return
        results = await self._bus.publish([message for _, message in chosen])
        sent: list[Found] = []
        for (item, _), result in zip(chosen, results, strict=True):
            if result is Sent.CONFIRMED:
                sent.append(item)
            else:
                report.failed.append((item.letter.task_id, _why_failed(result)))
        await self._bus.ack([item.delivery for item in sent])
        report.replayed += [item.letter.task_id for item in sent]
        report.not_removed += [item.letter.task_id for item in sent if not self._held(item)]

    async def _waiting_now(self, guess: int) -> int:
        """What waits in the queue, beside what we hold and give back."""
        try:
            return await self.count()
        except BrokerUnavailable:
            return guess

    def _held(self, item: Found) -> bool:
        return self._bus.current(item.delivery)

    async def _each(self, count: int) -> AsyncIterator[Found]:
        async for batch in self._batches(count, BATCH):
            for item in batch:
                yield item

    async def _batches(self, count: int, size: int) -> AsyncIterator[list[Found]]:
        """So many, oldest first, in batches; fewer if somebody else takes some of them."""
        left = count
        while left > 0:
            deliveries = await self._bus.get_many(self._queue, min(size, left))
            if not deliveries:
                return
            left -= len(deliveries)
            yield [Found(dead_letter_from(delivery), delivery) for delivery in deliveries]


def _why_failed(result: Sent) -> str:
    unsure = "; it may have been sent" if result is Sent.UNCERTAIN else ""
    return f"the broker did not take it: {result.value}{unsure}"


class _Pace:
    """A rate, kept in small bursts. ``burst``: sent together; ``ahead``: taken together."""

    def __init__(self, order: ReplayOrder, clock: Clock) -> None:
        self._rate = None if order.dry_run else order.rate
        self._clock = clock
        self._began = clock.monotonic()
        self.burst = self.ahead = BATCH
        if self._rate is not None:
            self.burst = min(BATCH, max(1, int(self._rate * BURST_S)))
            self.ahead = min(BATCH, max(1, int(self._rate * AHEAD_S)))

    async def keep(self, sent: int) -> None:
        """Wait until so many may have been sent."""
        if self._rate is not None:
            due = self._began + sent / self._rate
            await self._clock.sleep(max(0.0, due - self._clock.monotonic()))
