"""Looking at dead letters and unmatched tasks, and sending them on their way again.

Looking takes messages without acknowledging them and gives them back by ending the session: the queues have
no limit that looking could reach. Every message is sent on, confirmed, before it is removed, so a crash at
any point loses nothing.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from reach_worker.core.dead_letter import DeadLetter, Filter, HeldBack, assigned, dead_letter_from, replayed
from reach_worker.core.message import Delivery
from reach_worker.core.names import Names
from reach_worker.errors import OutsideWorld
from reach_worker.ports import Bus, Clock, Sent
from reach_worker.services.router.messages import returned_message

BATCH: Final = 100


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


@dataclass(slots=True)
class ReplayReport:
    """What a run did. ``seen`` of ``there`` messages were looked at; ``left`` are in the queue after it."""

    there: int = 0
    seen: int = 0
    matched: int = 0
    replayed: list[str] = field(default_factory=list)
    held_back: list[tuple[str, str]] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    left: int = 0


Progress = Callable[[ReplayReport], None]


class DeadLetters:
    """The tools for one queue: the dead letters, or the unmatched tasks."""

    def __init__(self, bus: Bus, names: Names, clock: Clock, queue: str) -> None:
        self._bus = bus
        self._names = names
        self._clock = clock
        self._queue = queue

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

    async def replay(self, order: ReplayOrder, progress: Progress = lambda _report: None) -> ReplayReport:
        """Send dead letters to the routers again, bounded by what was there when it began."""
        report = ReplayReport(there=await self.count())
        began = self._clock.monotonic()
        async for item in self._each(report.there):
            report.seen += 1
            progress(report)
            if not order.wanted.fits(item.letter):
                continue
            report.matched += 1
            await self._replay_one(item, order, report)
            if order.limit is not None and len(report.replayed) >= order.limit:
                break
            if order.rate is not None and not order.dry_run:
                due = began + len(report.replayed) / order.rate
                await self._clock.sleep(max(0.0, due - self._clock.monotonic()))
        report.left = report.there - (0 if order.dry_run else len(report.replayed))
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

    async def _replay_one(self, item: Found, order: ReplayOrder, report: ReplayReport) -> None:
        task_id = item.letter.task_id
        body = order.body
        if order.edit is not None:
            edited = await order.edit(item.letter)
            if isinstance(edited, HeldBack):
                report.held_back.append((task_id, edited.why))
                return
            body = edited
        result = replayed(
            item.letter,
            to_agent=order.to_agent,
            body=body,
            force=order.force,
            max_bytes=order.max_bytes,
        )
        if isinstance(result, HeldBack):
            report.held_back.append((task_id, result.why))
            return
        if not order.dry_run:
            (sent,) = await self._bus.publish([returned_message(self._names, *result)])
            if sent is not Sent.CONFIRMED:
                report.failed.append((task_id, f"the broker did not take it: {sent.value}"))
                return
            await self._bus.ack([item.delivery])
        report.replayed.append(task_id)

    async def _each(self, count: int) -> AsyncIterator[Found]:
        left = count
        while left > 0:
            deliveries, _ = await self._bus.get(self._queue, min(BATCH, left))
            if not deliveries:
                return
            left -= len(deliveries)
            for delivery in deliveries:
                yield Found(dead_letter_from(delivery), delivery)
