"""Steps on their way, several turns' at a time: the next turn thinks while those before it are sent and recorded.

A turn that waited for the broker's confirms and for the store would leave a processor idle, and every task that
arrives meanwhile waiting. Each batch goes its own way in the one order there is: send (confirmed), record, acknowledge.
What two batches could disagree about is a task, so whoever is about to decide on a task waits until what was
decided before is sent (:meth:`Conveyor.holds`, :meth:`Conveyor.all_sent`).
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager

from reach_worker.core.message import Delivery
from reach_worker.ports import Bus, Sent, Store
from reach_worker.services.effects import Step, done_or_undone, publish, undo

StoreSaid = bool | None
"""Whether it took the rows; ``None``: there were none."""


class Conveyor:
    """Carries steps out. ``wake`` is called when there is something to :meth:`take_back`.

    ``recorded`` is told of each batch when it is over.
    """

    def __init__(
        self,
        bus: Bus,
        store: Store,
        wake: Callable[[], None],
        recorded: Callable[[Sequence[Step], StoreSaid], None],
    ) -> None:
        self._bus = bus
        self._store = store
        self._wake = wake
        self._recorded = recorded
        self._undone: list[list[tuple[Step, Sent]]] = []
        self._again: list[Delivery] = []
        self._held: Counter[str] = Counter()
        self._unsent = self._unrecorded = 0
        self._unrecorded_steps = 0
        self._moved = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Within the block steps may be put on it; at its end all have been carried out."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                yield
            finally:
                self._group = None

    def put(self, steps: Sequence[Step], *, patient: bool) -> None:
        """Begin to carry steps out; none of them may need anything before it is sent (``before``, ``ahead``).

        ``patient``: nobody else waits for what they record.
        """
        if self._group is None:
            raise AssertionError("the conveyor does not run")
        tasks = tasks_of(steps)
        self._held.update(tasks)
        self._unsent += 1
        self._unrecorded += 1
        self._unrecorded_steps += len(steps)
        self._group.create_task(self._carry(steps, tasks, patient=patient))

    def holds(self, task_ids: Iterable[str]) -> bool:
        """Something that was decided on one of these tasks is not sent yet, or has to be taken back first."""
        return not self._held.keys().isdisjoint(task_ids)

    async def all_sent(self) -> None:
        """Wait until the broker has answered for all that was put on it: only what has to be taken back is held then."""
        await self._until(lambda: not self._unsent)

    async def recorded_but(self, batches: int) -> None:
        """Wait until at most so many batches are not recorded: what the store does not know yet no other router knows."""
        await self._until(lambda: self._unrecorded <= batches)

    async def recorded_but_steps(self, steps: int) -> None:
        """Wait until at most so many steps are not recorded: after a crash they would be done again."""
        await self._until(lambda: self._unrecorded_steps <= steps)

    def take_back(self) -> list[Delivery]:
        """Undo what was not sent; the deliveries that are to be handled again."""
        again, self._again = self._again, []
        undone, self._undone = self._undone, []
        for batch in undone:
            for step, worst in batch:
                undo(step, worst, again)
            self._let_go(tasks_of(step for step, _ in batch))
        return again

    async def _carry(self, steps: Sequence[Step], tasks: set[str], *, patient: bool) -> None:
        sent = done_or_undone(steps, await publish(steps, self._bus), self._bus)
        if sent.undone:
            self._undone.append(sent.undone)
        self._again += sent.again
        self._let_go(tasks - tasks_of(step for step, _ in sent.undone))
        self._unsent -= 1
        self._moved.set()
        if sent.undone or sent.again:
            self._wake()
        # Nothing else runs before the store has the rows: whoever asks it for these tasks finds them.
        recorded = await self._store.record(sent.rows, patient=patient) if sent.rows else None
        self._unrecorded -= 1
        self._unrecorded_steps -= len(steps)
        self._moved.set()
        await self._bus.ack(sent.acks)
        self._recorded(steps, recorded)

    def _let_go(self, tasks: Iterable[str]) -> None:
        """Several batches may hold one task."""
        for task_id in tasks:
            self._held[task_id] -= 1
            if self._held[task_id] <= 0:
                del self._held[task_id]

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._moved.clear()
            await self._moved.wait()


def tasks_of(steps: Iterable[Step]) -> set[str]:
    """The tasks that steps are about, as their rows say: what has no row changes nothing that anybody asks for."""
    found = {getattr(row, "task_id", "") for step in steps for row in step.rows}
    found.discard("")
    return found
