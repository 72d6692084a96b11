"""Looking at dead letters and unmatched tasks, and sending them on their way again.

Looking takes messages without acknowledging them and gives them back by ending the session: the queues have
no limit that looking could reach. Every message is sent on, confirmed, before it is removed, so a crash at
any point loses nothing.
"""

from collections.abc import AsyncIterator, Sequence

from reach_worker.core.dead_letter import DeadLetter, Filter
from reach_worker.core.names import Names
from reach_worker.core.replaying import HeldBack, assigned, gone_on
from reach_worker.errors import OutsideWorld
from reach_worker.ports import Bus, Clock, Sent
from reach_worker.services.letter_queue import BATCH, Found, LetterQueue
from reach_worker.services.replay import Replay
from reach_worker.services.replay_order import KnownTasks, Progress, ReplayOrder, ReplayReport, nothing_known
from reach_worker.services.router.messages import returned_message


class DeadLetters:
    """The tools for one queue: the dead letters, or the unmatched tasks."""

    def __init__(
        self, bus: Bus, names: Names, clock: Clock, queue: str, known: KnownTasks = nothing_known
    ) -> None:
        self._bus = bus
        self._names = names
        self._clock = clock
        self._queue = LetterQueue(bus, queue)
        self._known = known

    async def count(self) -> int:
        """Messages that are ready. Raises :class:`OutsideWorld` if there is no such queue."""
        return await self._queue.count()

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
        async for item in self._queue.each(there):
            seen += 1
            if wanted.fits(item.letter):
                yield item
        if seen < there:
            await self.count()  # raises where not somebody else took some, but the connection was lost

    async def remove(self, found: Sequence[Found]) -> list[str]:
        """Remove for good what :meth:`look` found in this session; the task ids of what is gone for certain."""
        held = [item for item in found if self._queue.holds(item)]
        await self._bus.ack([item.delivery for item in held])
        return [item.letter.task_id for item in held if self._queue.holds(item)]

    async def past(self, letters: Sequence[DeadLetter]) -> list[str | None]:
        """Of each letter why it is past, by what the store knows of its task; ``None`` if it is not."""
        ids = list({letter.task_id for letter in letters})
        parts = [await self._known(ids[at : at + BATCH]) for at in range(0, len(ids), BATCH)]
        known = {task_id: task for part in parts for task_id, task in part.items()}
        found = [gone_on(letter, known.get(letter.task_id), force=False) for letter in letters]
        return [None if one is None else one.why for one in found]

    async def replay(self, order: ReplayOrder, progress: Progress = lambda _report: None) -> ReplayReport:
        """Send dead letters to the routers again, bounded by what was there when it began."""
        return await Replay(self._queue, self._names, self._clock, self._known, order, progress).run()

    async def drop(self, wanted: Filter, limit: int | None = None) -> list[str]:
        """Remove for good those that are meant; their task ids."""
        dropped: list[str] = []
        async for item in self._queue.each(await self.count()):
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
        async for item in self._queue.each(await self.count()):
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
