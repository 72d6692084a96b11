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
    """Sorted seconds of each run. ``bare``: at the same rate; ``bare_share``: at that share of its own."""

    ours: list[list[float]] = field(default_factory=list)
    bare: list[list[float]] = field(default_factory=list)
    bare_share: list[list[float]] = field(default_factory=list)


async def run(place: Place, sizes: Sizes, say: Say) -> dict[str, Any]:
    """The rate that is held with publisher and answers, then each share of it.

    The bare two hops at the same rates, and at the same shares of the rate that they hold.
    """
    scene = Scene(settings=place.settings())
    levels = {share: _Level() for share in SHARES}
    async with AsyncExitStack() as stack:
        ours = await stack.enter_async_context(_complete(scene))
        theirs = await stack.enter_async_context(_bare(place)) if bare.there() else None
        rate, bare_rate = await _rate(ours, sizes), await _rate(theirs, sizes) if theirs is not None else None
        say(f"{rate:.0f} tasks/s, published and answered; the bare two hops {bare_rate or 0:.0f}")
        for number in range(sizes.runs):
            for share, level in levels.items():
                level.ours.append(await _level(ours, rate, share, number, sizes))
                if theirs is not None and bare_rate is not None:
                    level.bare.append(await _level(theirs, rate, share, number, sizes))
                    level.bare_share.append(await _level(theirs, bare_rate, share, number, sizes))
            say(f"round {number + 1} of {sizes.runs}")
    return {
        "tasks_per_s": rate,
        "bare_tasks_per_s": bare_rate,
        "runs": sizes.runs,
        **{f"at_{share:.0%}".rstrip("%"): _summary(level) for share, level in levels.items()},
    }


async def _rate(load: Load, sizes: Sizes) -> float:
    await load.rate(sizes.fewest, sizes.limit_s)  # warms up
    return middle([await load.rate(sizes.tasks, sizes.limit_s) for _ in range(sizes.runs)])


async def _level(load: Load, rate: float, share: float, number: int, sizes: Sizes) -> list[float]:
    count = min(MOST, max(sizes.fewest, int(rate * share * sizes.level_s)))
    times = arrivals(rate * share, count, Chance("latency", number, str(share)).draw)
    return await load.latencies(times, times[-1] + sizes.limit_s)


def _summary(level: _Level) -> dict[str, Any]:
    found: dict[str, Any] = {**_quantiles(level.ours), "tasks": len(level.ours[0])}
    for name, runs in {"bare": level.bare, "bare_at_its_share": level.bare_share}.items():
        found[f"p99_ratio_to_{name}"] = _p99_ratio(level.ours, runs) if runs else None
        if runs:
            found[name] = _quantiles(runs)
    return found


def _p99_ratio(ours: list[list[float]], theirs: list[list[float]]) -> float:
    return middle_ratio([quantile(run, 0.99) for run in ours], [quantile(run, 0.99) for run in theirs])


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
