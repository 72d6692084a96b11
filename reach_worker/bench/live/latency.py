"""``latency``: from publishing a task to its answer, at shares of the rate that can be held."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from reach_worker.bench.chance import Chance
from reach_worker.bench.live import bare
from reach_worker.bench.live.bare import hops, role
from reach_worker.bench.live.figures import middle, middle_ratio, quantile
from reach_worker.bench.live.flow import crew, topology_of
from reach_worker.bench.live.open_loop import Load, arrivals
from reach_worker.bench.live.scene import Place, Scene, bodies, messages
from reach_worker.bench.live.sizes import Sizes
from reach_worker.bus.rabbit import BusSettings, RabbitBus
from reach_worker.bus.removal import remove
from reach_worker.clock import SystemClock
from reach_worker.core.message import Delivery, Message

SHARES: Final = (0.1, 0.5, 0.8)
QUANTILES: Final = {"p50_ms": 0.5, "p99_ms": 0.99, "p999_ms": 0.999}
MOST: Final = 20_000

Say = Callable[[str], None]


@dataclass(slots=True)
class _Level:
    ours: list[list[float]] = field(default_factory=list)
    bare: list[list[float]] = field(default_factory=list)


async def run(place: Place, sizes: Sizes, say: Say) -> dict[str, Any]:
    """The rate that is held with publisher and answers, then each share of it; the bare two hops at the same rates."""
    scene = Scene(settings=place.settings())
    levels = {share: _Level() for share in SHARES}
    async with AsyncExitStack() as stack:
        ours = await stack.enter_async_context(_complete(scene))
        theirs = await stack.enter_async_context(_bare(place)) if bare.there() else None
        await ours.rate(sizes.fewest, sizes.limit_s)  # warms up both routers and agents
        rate = middle([await ours.rate(sizes.tasks, sizes.limit_s) for _ in range(sizes.runs)])
        say(f"{rate:.0f} tasks/s, published and answered")
        for number in range(sizes.runs):
            for share, level in levels.items():
                count = min(MOST, max(sizes.fewest, int(rate * share * sizes.level_s)))
                times = arrivals(rate * share, count, Chance("latency", number, str(share)).draw)
                limit_s = times[-1] + sizes.limit_s
                level.ours.append(await ours.latencies(times, limit_s))
                if theirs is not None:
                    level.bare.append(await theirs.latencies(times, limit_s))
            say(f"round {number + 1} of {sizes.runs}")
    return {
        "tasks_per_s": rate,
        "runs": sizes.runs,
        **{f"at_{share:.0%}".rstrip("%"): _summary(level) for share, level in levels.items()},
    }


def _summary(level: _Level) -> dict[str, Any]:
    found: dict[str, Any] = {**_quantiles(level.ours), "tasks": len(level.ours[0]), "p99_ratio_to_bare": None}
    if level.bare:
        found["bare"] = _quantiles(level.bare)
        found["p99_ratio_to_bare"] = middle_ratio(
            [quantile(run, 0.99) for run in level.ours], [quantile(run, 0.99) for run in level.bare]
        )
    return found


def _quantiles(runs: list[list[float]]) -> dict[str, float]:
    return {name: middle([quantile(run, q) * 1000 for run in runs]) for name, q in QUANTILES.items()}


@asynccontextmanager
async def _complete(scene: Scene) -> AsyncIterator[Load]:
    """A router, its agents, and a client with a mailbox for answers."""
    async with topology_of(scene) as bus, crew(scene):

        def message(task_id: str) -> Message:
            return messages(scene.names, [task_id], bus.mailbox)[0]

        yield Load(bus, ["client"], message, _correlation_id)


@asynccontextmanager
async def _bare(place: Place) -> AsyncIterator[Load]:
    """The bare forwarder; the client itself takes what it has forwarded, so there are two hops and no more."""
    prefix = f"bench-bare-{place.new_id()[-8:]}"
    settings = BusSettings((place.url,), "bench bare", prefix=prefix, waits=False)
    bus = RabbitBus(settings, SystemClock(), hops(prefix))
    inboxes = [f"agent-{number}" for number in range(bare.AGENTS)]
    for name in inboxes:
        bus.subscribe(name, f"{prefix}.{name}", 100, at_once=True)

    def message(task_id: str) -> Message:
        return Message(f"{prefix}.intake", bodies([task_id])[0], message_id=task_id)

    try:
        async with bus.running(), role(place, "router", prefix):
            yield Load(bus, inboxes, message, _message_id)
    finally:
        await remove(settings, hops(prefix))


def _correlation_id(delivery: Delivery) -> str | None:
    return delivery.correlation_id


def _message_id(delivery: Delivery) -> str | None:
    return delivery.message_id
