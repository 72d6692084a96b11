"""Runs of the bare forwarder."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final

from reach_worker.bench.live.children import Child, child
from reach_worker.bench.live.scene import Place, bodies
from reach_worker.bus.rabbit import BusSettings, RabbitBus
from reach_worker.bus.removal import remove
from reach_worker.bus.topology import Queue, Topology
from reach_worker.clock import SystemClock
from reach_worker.core.message import Message
from reach_worker.errors import OutsideWorld
from reach_worker.ports import Sent

MODULE: Final = "reach_worker.bench.peers.bare"
AGENTS: Final = 4
BURST: Final = 200
MISSING: Final = "aio-pika is not installed: scripts/bench installs it, or pip install 'reach-worker[bench]'"


@dataclass(frozen=True, slots=True)
class TwoHops:
    """What a run of somebody else came to."""

    tasks_per_s: float
    router_cpu_us: float
    peak_mb: float


def there() -> bool:
    """aio-pika can be imported."""
    return find_spec("aio_pika") is not None


def hops(prefix: str) -> Topology:
    """Its queues."""
    names = [f"{prefix}.intake", *(f"{prefix}.agent-{number}" for number in range(AGENTS))]
    return Topology((), tuple(Queue(name, {"x-queue-type": "quorum"}) for name in names), ())


@asynccontextmanager
async def declared_hops(place: Place, prefix: str) -> AsyncIterator[RabbitBus]:
    """A connection on which its queues are declared; they are deleted at the end."""
    settings = BusSettings((place.url,), "bench bare", prefix=prefix, waits=False)
    bus = RabbitBus(settings, SystemClock(), hops(prefix))
    try:
        async with bus.running():
            yield bus
    finally:
        await remove(settings, hops(prefix))


async def fill(bus: RabbitBus, queue: str, tasks: int) -> None:
    """Let so many tasks wait in a queue."""
    clock = SystemClock()
    for start in range(0, tasks, BURST):
        ids = [clock.new_id() for _ in range(min(BURST, tasks - start))]
        sent = await bus.publish([Message(queue, body) for body in bodies(ids)])
        if set(sent) != {Sent.CONFIRMED}:
            raise OutsideWorld(f"the broker did not take all messages: {sorted(set(sent))}")


@asynccontextmanager
async def role(place: Place, name: str, prefix: str, tasks: int = 0) -> AsyncIterator[Child]:
    """One of its two processes, up within the block."""
    arguments = ["-m", MODULE, name, place.url, prefix, str(tasks)]
    async with child(f"bare {name}", arguments, place.folder / f"{prefix}-{name}.log") as started:
        await started.event("up", 60.0)
        yield started


async def bare_run(place: Place, tasks: int, *, limit_s: float) -> TwoHops:
    """Tasks wait at its intake; the rate is that of what its agents have taken."""
    prefix = f"bench-bare-{place.new_id()[-8:]}"
    async with declared_hops(place, prefix) as bus:
        await fill(bus, f"{prefix}.intake", tasks)
        async with role(place, "agents", prefix, tasks) as agents, role(place, "router", prefix) as router:
            up = await router.usage()
            done = await agents.event("done", limit_s)
            after = await router.usage()
    return TwoHops(done["tasks_per_s"], (after.cpu_s - up.cpu_s) / tasks * 1e6, after.peak_mb)
