"""What a turn has decided, on its way out: at once and to the end, or on the conveyor while the next turn decides."""

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Final

from reach_worker.core.message import Delivery
from reach_worker.ports import ConsumingBus, Store
from reach_worker.services.conveyor import Conveyor, StoreSaid
from reach_worker.services.effects import Step, carry_out
from reach_worker.services.router.desk import Desk
from reach_worker.services.router.dispatcher import Dispatcher
from reach_worker.services.router.waiters import Waiters

UNRECORDED: Final = 1
"""Batches that may be on their way to the store when the next turn decides, where there are other routers."""
UNRECORDED_ALONE: Final = 1_000
"""Steps, where there are none. A transaction in which SQLite tidies up takes as long as ten: it holds up nothing."""


class Outgoing:
    """Carries out steps."""

    def __init__(self, desk: Desk, bus: ConsumingBus, store: Store, dispatcher: Dispatcher) -> None:
        self._again: list[Delivery] = []
        self._desk = desk
        self._bus = bus
        self._store = store
        self._dispatcher = dispatcher
        self._waiters = Waiters(desk, store)
        self._conveyor = Conveyor(bus, store, bus.inbox.arrived.set, self._over)
        self._ended: list[Step] = []
        desk.before_deciding = self._before_deciding

    @asynccontextmanager
    async def flowing(self) -> AsyncIterator[None]:
        """Within the block steps may be sent off; at its end all of them are carried out."""
        async with self._conveyor.running():
            yield
        self.take_back()
        await self._answer_late()

    async def carry_out(self, steps: Sequence[Step]) -> None:
        """To the end: sent, recorded, acknowledged."""
        await self._waiters.add_to(steps)
        carried = await carry_out(steps, self._bus, self._store)
        await carry_out(await self._waiters.late(steps), self._bus, self._store)
        if carried.recorded is not None:
            self._desk.recording.away = not carried.recorded
        self._again += carried.again
        await self._declare_missing()

    async def send_off(self, steps: Sequence[Step]) -> None:
        """On the conveyor, but where something must be there before it is sent, or be looked at right after."""
        if any(step.before or step.ahead for step in steps) or self._desk.hands.joined_elsewhere:
            await self.carry_out(steps)
        elif steps:
            await self._waiters.add_to(steps)
            self._conveyor.put(steps, patient=self._desk.alone() and not any(map(_ends_badly, steps)))
        await self._answer_late()
        await self._declare_missing()

    async def room(self) -> None:
        """Wait while too much of what was sent off is not recorded, and take back what was not sent."""
        if self._desk.alone():
            await self._conveyor.recorded_but_steps(UNRECORDED_ALONE)
        else:
            await self._conveyor.recorded_but(UNRECORDED)
        self.take_back()

    async def all_sent(self) -> None:
        """Wait until the broker has answered for all that was sent off, and take back what was not sent."""
        await self._conveyor.all_sent()
        self.take_back()

    def take_back(self) -> None:
        """What was not sent is as if it had not been decided."""
        self._again += self._conveyor.take_back()

    def taken_again(self) -> list[Delivery]:
        """Deliveries of steps that could not be sent: they are to be handled again."""
        again, self._again = self._again, []
        return again

    async def _before_deciding(self, task_ids: Collection[str]) -> None:
        """What was decided on a task a moment ago is sent, or taken back, before it is decided on again."""
        if self._conveyor.holds(task_ids):
            await self.all_sent()

    def _over(self, steps: Sequence[Step], recorded: StoreSaid) -> None:
        """Steps are carried out. Where there are other routers, somebody may have joined one of their ends meanwhile."""
        if recorded is not None:
            self._desk.recording.away = not recorded
        if not self._desk.alone() and (ended := [step for step in steps if step.ended is not None]):
            self._ended += ended
            self._bus.inbox.arrived.set()

    async def _answer_late(self) -> None:
        ended, self._ended = self._ended, []
        if ended:
            await carry_out(await self._waiters.late(ended), self._bus, self._store)

    async def _declare_missing(self) -> None:
        for name in sorted(self._dispatcher.missing_queues):
            await self._bus.declare_queue(name)
        self._dispatcher.missing_queues.clear()


def _ends_badly(step: Step) -> bool:
    """A dead letter that is not recorded before a crash is one that is sent twice."""
    return step.ended is not None and bool(step.send)
