"""Runs of the peers that happen to be installed."""

import asyncio
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

from reach_worker.bench.live.bare import AGENTS, TwoHops
from reach_worker.bench.live.children import child
from reach_worker.bench.live.scene import Place
from reach_worker.bus.rabbit import BusSettings
from reach_worker.bus.removal import remove
from reach_worker.bus.topology import Exchange, Queue, Topology

PEERS: Final[Mapping[str, tuple[str, ...]]] = {
    "celery": ("celery",),
    "dramatiq": ("dramatiq", "pika"),
    "faststream": ("faststream", "aio_pika"),
    "taskiq": ("taskiq", "taskiq_aio_pika"),
}
"""By name, the modules that a peer needs."""
SUFFIXES: Final = ("", ".DQ", ".XQ", ".delay", ".dead_letter")
"""What some of them add to the name of a queue for further queues of their own."""
SHARED: Final = ("taskiq.dead_letter",)
"""Queues that they make under names of their own."""
UP_S: Final = 60.0


def installed() -> list[str]:
    """Those that can be imported."""
    return [name for name, modules in PEERS.items() if all(find_spec(module) for module in modules)]


async def peer_run(place: Place, name: str, tasks: int, *, limit_s: float) -> TwoHops:
    """Tasks wait at its intake; the rate is that of what its agents have done."""
    prefix = f"bench-{name}-{place.new_id()[-8:]}"
    log = place.folder / f"{prefix}.log"

    def arguments(role: str) -> list[str]:
        return ["-m", f"reach_worker.bench.peers.{name}_two_hops", role, place.url, prefix, str(tasks)]

    try:
        async with child(f"{name} publisher", arguments("publish"), log) as publisher:
            async with asyncio.timeout(limit_s):
                await publisher.finished()
        async with (
            child(f"{name} agents", arguments("agents"), log) as agents,
            child(f"{name} router", arguments("router"), log) as router,
        ):
            up = await router.event("up", UP_S)
            done = await agents.event("done", limit_s)
            after = await router.usage()
    finally:
        await remove(BusSettings((place.url,), "bench", waits=False), _left_behind(prefix))
    return TwoHops(done["tasks_per_s"], (after.cpu_s - up["cpu_s"]) / tasks * 1e6, after.peak_mb)


def _left_behind(prefix: str) -> Topology:
    names = [f"{prefix}.intake", *(f"{prefix}.agent-{number}" for number in range(AGENTS))]
    queues = tuple(
        Queue(name, {}) for name in (*(name + suffix for name in names for suffix in SUFFIXES), *SHARED)
    )
    exchanges = tuple(Exchange(name, "direct") for name in names)
    return Topology(exchanges, queues, ())
