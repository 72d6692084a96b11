"""A stage whose routers run as in life: what a turn decides is on its way while the next turns decide.

Every confirm and every record takes a few rounds of the loop, as many as the test says; nobody waits for time.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle

from reach_worker.core.manifest import Manifest
from reach_worker.core.message import Delivery, Message
from reach_worker.ports import Ended, Row, Sent
from reach_worker.services.router.router import Router
from reach_worker.store import MemoryStore
from reach_worker.testing import MemoryBroker, MemoryBus
from tests.services.stage import Killed, OnStage, Stage

LIMIT_S = 20.0


async def rounds(count: int) -> None:
    """Let everybody else go on, so many times."""
    for _ in range(count):
        turned = asyncio.Event()
        asyncio.get_running_loop().call_soon(turned.set)
        await turned.wait()


class FlowingBus(MemoryBus):
    """Its broker has a message some rounds after it was sent, and says so some rounds later."""

    def __init__(self, broker: MemoryBroker, delays: Iterator[int], *, slow_start: bool) -> None:
        super().__init__(broker, slow_start=slow_start)
        self.delays = delays
        self.held = asyncio.Event()
        """Cleared: no confirm comes."""
        self.held.set()
        self.sending = 0
        self.meanwhile: list[Delivery] = []
        """Outcomes that come while the router waits for the broker to trust it."""

    async def trust(self, name: str) -> None:
        await rounds(next(self.delays))
        while self.meanwhile:
            self.inbox.put("outcomes", self.meanwhile.pop())
        await super().trust(name)

    async def publish(self, messages: Sequence[Message]) -> list[Sent]:
        self.sending += 1
        try:
            return await self._publish_slowly(messages)
        finally:
            self.sending -= 1

    async def _publish_slowly(self, messages: Sequence[Message]) -> list[Sent]:
        life = self.sessions
        await rounds(next(self.delays))
        if life != self.sessions:  # it lies in a socket that nobody reads any more
            return [Sent.UNCERTAIN for _ in messages]
        results = await super().publish(messages)
        await rounds(next(self.delays))
        await self.held.wait()
        return results if life == self.sessions else [Sent.UNCERTAIN for _ in results]


class FlowingStore(MemoryStore):
    """What is recorded can be read at once, and is committed some rounds later."""

    def __init__(self, delays: Iterator[int]) -> None:
        super().__init__()
        self.delays = delays
        self.committed = asyncio.Event()
        """Cleared: nothing is committed."""
        self.committed.set()

    async def record(self, rows: Sequence[Row], *, patient: bool = False) -> bool:
        recorded = await super().record(rows, patient=patient)
        await rounds(next(self.delays))
        await self.committed.wait()
        return recorded


class Serving:
    """A router at work: one turn whenever it is told to."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._go = asyncio.Event()
        self._turned = asyncio.Event()
        self._stopped = False
        self._task = asyncio.ensure_future(self._serve())  # noqa: TID251 - its end is waited for in `turn`, `stop` or `end`

    async def turn(self) -> None:
        """Let it have a turn. Raises what ended it."""
        await self.begin()

    def begin(self) -> "asyncio.Future[None]":
        """Let it begin a turn; what comes of it."""
        self._turned.clear()
        self._go.set()
        return asyncio.ensure_future(self._its_end())  # noqa: TID251 - whoever asked for it waits for it

    async def stop(self) -> None:
        """It stops as it should."""
        self._stopped = True
        self._go.set()
        await self._task

    async def end(self) -> None:
        """It is gone, with all that it had begun."""
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _its_end(self) -> None:
        turned = asyncio.ensure_future(self._turned.wait())  # noqa: TID251 - ends here
        await asyncio.wait({turned, self._task}, return_when=asyncio.FIRST_COMPLETED, timeout=LIMIT_S)
        turned.cancel()
        if self._task.done():
            self._task.result()
        assert self._turned.is_set(), "a turn does not end"

    async def _serve(self) -> None:
        async with self._router.flowing:
            while True:
                await self._go.wait()
                self._go.clear()
                if self._stopped:
                    return
                await self._router.advance()
                self._turned.set()


@dataclass(repr=False)
class FlowingStage(Stage):
    """``delays``: rounds that one thing after the other takes, from the first again after the last. ``slow_start``: of
    every session, as :class:`MemoryBus` says."""

    store: FlowingStore = field(init=False)
    delays: Sequence[int] = (1,)
    slow_start: bool = True
    serving: dict[str, Serving] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        delays = cycle(self.delays)
        self.bus_of = lambda broker: FlowingBus(broker, delays, slow_start=self.slow_start)
        self.store = FlowingStore(delays)

    async def router(
        self, router_id: str = "r1", manifests: Sequence[Manifest] = (), *, settled: bool = True
    ) -> OnStage:
        on_stage = await super().router(router_id, manifests, settled=False)
        self.serving[router_id] = Serving(on_stage.router)
        if settled:
            await self.pass_time(2 * self.presence.heartbeat_s)
        return on_stage

    async def _turn(self, router: OnStage) -> None:
        try:
            await self.serving[router.desk.router_id].turn()
        except* Killed:
            await self.over(router)
            await self.router(router.desk.router_id, settled=False)

    def at_rest(self) -> bool:
        buses = [router.bus for router in self.routers]
        return super().at_rest() and not any(isinstance(bus, FlowingBus) and bus.sending for bus in buses)

    def ends(self, task_id: str) -> list[Ended]:
        """As SQLite keeps them: an outcome that two routers settled in the same moment ends its task once."""
        once = {
            (end.life, end.state, end.dispatch_id or index): end
            for index, end in enumerate(super().ends(task_id))
        }
        return list(once.values())

    async def over(self, router: OnStage) -> None:
        """The router's process is gone."""
        self.kill(router)
        await self.serving.pop(router.desk.router_id).end()

    async def all_over(self) -> None:
        """Nobody is left."""
        for router in list(self.routers):
            await self.over(router)
