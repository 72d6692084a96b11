"""One complete run: tasks wait at intake, routers and agents take them, and each ends in the store."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from reach_worker import wiring
from reach_worker.bench.live.children import Child, child
from reach_worker.bench.live.scene import Scene, messages
from reach_worker.bench.live.usage import Usage
from reach_worker.bus.rabbit import RabbitBus
from reach_worker.bus.removal import remove
from reach_worker.clock import SystemClock
from reach_worker.core.duplicates import TaskState
from reach_worker.errors import OurBug, OutsideWorld
from reach_worker.ports import Sent
from reach_worker.store.history import StoreReader

BURST: Final = 200
UP_S: Final = 300.0
RECORDED_S: Final = 60.0
PROCESS: Final = "reach_worker.bench.live.process"
PROFILE: Final = "REACH_BENCH_PROFILE"
"""Names the file that a process writes its profile to."""


@dataclass(frozen=True, slots=True)
class Flow:
    """What a complete run came to. CPU is of what was done for the tasks, not of the start; memory is the router's."""

    tasks_per_s: float
    router_cpu_us: float
    agents_cpu_us: float
    peak_mb: float


@asynccontextmanager
async def topology_of(scene: Scene) -> AsyncIterator[RabbitBus]:
    """A connection on which everything of the scene is declared; all of it is deleted at the end."""
    settings = wiring.bus_settings(scene.settings, "bench")
    bus = RabbitBus(replace(settings, waits=False), SystemClock(), scene.topology())
    bus.subscribe_mailbox("client", prefix="bench-answers")
    try:
        async with bus.running():
            yield bus
    finally:
        await remove(settings, scene.topology())


async def publish(bus: RabbitBus, scene: Scene, ids: Sequence[str], reply_to: str | None = None) -> None:
    """Publish tasks, all confirmed."""
    for start in range(0, len(ids), BURST):
        sent = await bus.publish(messages(scene.names, ids[start : start + BURST], reply_to))
        if set(sent) != {Sent.CONFIRMED}:
            raise OutsideWorld(f"the broker did not take all tasks: {sorted(set(sent))}")


@asynccontextmanager
async def crew(
    scene: Scene, *, routers: int = 1, profile: Path | None = None
) -> AsyncIterator[tuple[list[Child], Child]]:
    """The routers and the agents' process, up within the block. ``profile``: of the first router.

    Routers start together, so that none has the work for itself while another one still starts.
    """
    folder = scene.settings.paths.agents.parent
    async with AsyncExitStack() as stack:
        path = _written(scene, folder / "agents.json")
        arguments = ["-m", PROCESS, "agents", str(path)]
        agents = await stack.enter_async_context(child("agents", arguments, folder / "agents.log"))
        await agents.event("up", UP_S)
        started = []
        for number in range(1, routers + 1):
            started.append(await stack.enter_async_context(_begun(scene, number, profile)))
            profile = None
        for each in started:
            each.at_start = Usage.read(await each.event("up", UP_S))
        yield started, agents


@asynccontextmanager
async def router(scene: Scene) -> AsyncIterator[Child]:
    """A router process, up within the block."""
    async with _begun(scene, 1, None) as started:
        started.at_start = Usage.read(await started.event("up", UP_S))
        yield started


@asynccontextmanager
async def _begun(scene: Scene, number: int, profile: Path | None) -> AsyncIterator[Child]:
    folder = scene.settings.paths.agents.parent
    own = scene.settings.router.model_copy(update={"id": f"router-{number}"})
    told = scene.model_copy(update={"settings": scene.settings.model_copy(update={"router": own})})
    path = _written(told, folder / f"router-{number}.json")
    environ: Mapping[str, str] = {PROFILE: str(profile)} if profile else {}
    arguments = ["-m", PROCESS, "router", str(path)]
    async with child(f"router {number}", arguments, folder / f"router-{number}.log", environ) as started:
        yield started


async def complete_run(
    scene: Scene, tasks: int, *, limit_s: float, routers: int = 1, profile: Path | None = None
) -> Flow:
    """Tasks wait at intake; the rate is that of their ends, as the store has them."""
    clock = SystemClock()
    scene = scene.model_copy(update={"expected": tasks})
    began_us = clock.utc_us()
    async with topology_of(scene) as bus:
        await publish(bus, scene, [clock.new_id() for _ in range(tasks)])
        async with crew(scene, routers=routers, profile=profile) as (started, agents):
            before = [each.at_start for each in started]
            agents_before = await agents.usage()
            await agents.event("done", limit_s)
            ends = await recorded_ends(scene.settings.store.path, tasks, began_us)
            after = [await each.usage() for each in started]
            agents_after = await agents.usage()
    return Flow(
        tasks_per_s=(tasks - 1) / ((ends[-1] - ends[0]) / 1e6),
        router_cpu_us=_cpu_us(before, after) / tasks,
        agents_cpu_us=_cpu_us([agents_before], [agents_after]) / tasks,
        peak_mb=max(usage.peak_mb for usage in after),
    )


async def recorded_ends(store: Path, tasks: int, since_us: int) -> list[int]:
    """When each of the tasks ended, in order, once all of them are in the store as succeeded."""
    clock = SystemClock()
    deadline = clock.monotonic() + RECORDED_S
    async with StoreReader.open(store) as reader:
        while True:
            found = await reader.recent(tasks)
            ended = sorted(task.ended_at for task in found if task.first_seen >= since_us and task.ended_at)
            if len(ended) == tasks:
                break
            if clock.monotonic() > deadline:
                raise OutsideWorld(f"{len(ended)} of {tasks} tasks are in the store as ended")
            await clock.sleep(0.1)
        if any(task.state is not TaskState.SUCCEEDED for task in found):
            raise OurBug("a task of the bench did not succeed")
    return ended


def _cpu_us(before: Sequence[Usage], after: Sequence[Usage]) -> float:
    return sum(last.cpu_s - first.cpu_s for first, last in zip(before, after, strict=True)) * 1e6


def _written(scene: Scene, path: Path) -> Path:
    path.write_text(scene.model_dump_json(), encoding="utf-8")
    return path
