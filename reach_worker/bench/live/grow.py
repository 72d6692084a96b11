"""``grow``: what becomes of speed and memory as history, fleet and backlog grow."""

from collections.abc import Callable
from typing import Any, Final

from reach_worker.bench.live import history
from reach_worker.bench.live.decide import Decided, summary, with_record
from reach_worker.bench.live.figures import middle, middle_ratio, rounded
from reach_worker.bench.live.flow import Flow, complete_run, crew, publish, router, topology_of
from reach_worker.bench.live.known_fleet import SLOTS
from reach_worker.bench.live.model_rows import AGENTS
from reach_worker.bench.live.scene import Place, Scene
from reach_worker.bench.live.sizes import Sizes
from reach_worker.clock import SystemClock
from reach_worker.store.sqlite_store import SqliteStore

FEWER: Final = 5
"""Runs with many agents have so many times fewer tasks: each decision looks at all of them."""
SLOTS_EACH: Final = 4
DECISIONS: Final = 20_000

Say = Callable[[str], None]


async def run(place: Place, sizes: Sizes, say: Say) -> dict[str, Any]:
    """All of it. The largest store takes a while to be made."""
    for outcomes in sizes.outcomes:
        say(f"a history of {outcomes} outcomes")
        await history.made(place.history(outcomes), outcomes)
    return {
        "runs": sizes.runs,
        "outcomes": await _outcomes(place, sizes, say),
        "agents": await _agents(place, sizes, say),
        "memory": await _memory(place, sizes, say),
    }


async def _outcomes(place: Place, sizes: Sizes, say: Say) -> dict[str, Any]:
    """Route, decide and start with each history, alternating."""
    routes: dict[int, list[Flow]] = {}
    decides: dict[int, list[Decided]] = {}
    starts: dict[int, list[tuple[float, float]]] = {}
    for number in range(1, sizes.runs + 1):
        for outcomes in sizes.outcomes:
            starts.setdefault(outcomes, []).append(await _started(place, outcomes))
            decides.setdefault(outcomes, []).append(await _decided(place, outcomes, sizes))
            scene = Scene(settings=place.settings(place.history(outcomes)))
            measured = await complete_run(scene, sizes.tasks, limit_s=sizes.limit_s)
            routes.setdefault(outcomes, []).append(measured)
        say(f"round {number} of {sizes.runs} with histories")
    none, some = sorted(sizes.outcomes)[:2]  # without any record an agent is looked at a little less
    return {
        str(outcomes): {
            **_flow(routes[outcomes]),
            "ratio_to_none": middle_ratio(_rates(routes[outcomes]), _rates(routes[none])),
            "cpu_ratio_to_none": middle_ratio(_cpu(routes[outcomes]), _cpu(routes[none])),
            "decide": summary(decides[outcomes]),
            "decide_cpu_ratio_to_none": middle_ratio(
                [one.cpu_us for one in decides[outcomes]], [one.cpu_us for one in decides[none]]
            ),
            "decide_cpu_ratio_to_some": middle_ratio(
                [one.cpu_us for one in decides[outcomes]], [one.cpu_us for one in decides[some]]
            ),
            "start_s": middle([seconds for seconds, _ in starts[outcomes]]),
            "start_cpu_s": middle([cpu_s for _, cpu_s in starts[outcomes]]),
        }
        for outcomes in sizes.outcomes
    }


async def _started(place: Place, outcomes: int) -> tuple[float, float]:
    """Seconds, and CPU seconds, from the start of a router's process until it is up."""
    clock = SystemClock()
    scene = Scene(settings=place.settings(place.history(outcomes)))
    async with topology_of(scene):
        began = clock.monotonic()
        async with router(scene) as started:
            seconds = clock.monotonic() - began
            return seconds, started.at_start.cpu_s


async def _decided(place: Place, outcomes: int, sizes: Sizes) -> Decided:
    """Decisions by the record that a router takes out of this history."""
    async with SqliteStore.open(place.history(outcomes), clock=SystemClock(), wait_s=30.0) as store:
        record = await store.track_record()
    return with_record(AGENTS, record, min(DECISIONS, sizes.candidates // AGENTS))


async def _agents(place: Place, sizes: Sizes, say: Say) -> dict[str, Any]:
    """Route with each number of agents, all of them candidates of every task."""
    routes: dict[int, list[Flow]] = {}
    for number in range(1, sizes.runs + 1):
        for agents in sizes.agents:
            scene = Scene(settings=place.settings(), agents=agents, slots=SLOTS_EACH)
            tasks = max(100, sizes.tasks // FEWER)
            routes.setdefault(agents, []).append(await complete_run(scene, tasks, limit_s=sizes.limit_s))
        say(f"round {number} of {sizes.runs} with more agents")
    return {str(agents): _flow(measured) for agents, measured in routes.items()}


async def _memory(place: Place, sizes: Sizes, say: Say) -> dict[str, Any]:
    in_flight = await _in_flight(place, sizes)
    say(f"{sizes.in_flight} tasks in flight")
    waiting = await _waiting(place, sizes)
    say(f"{sizes.waiting} tasks waiting on the broker")
    return {"in_flight": in_flight, "waiting": waiting}


async def _in_flight(place: Place, sizes: Sizes) -> dict[str, Any]:
    """All tasks are with agents that do not answer; the limits are raised for that."""
    count = sizes.in_flight
    limits = {"in_flight": count, "per_agent": count, "in_flight_bytes": 2**30}
    settings = place.settings(slots=limits, router={"grace_s": 1.0})
    scene = Scene(settings=settings, slots=-(-count // 4), holds=True, expected=count)
    async with topology_of(scene) as bus, crew(scene) as (routers, agents):
        idle = await routers[0].usage()
        await publish(bus, scene, _ids(count))
        await agents.event("done", sizes.limit_s)
        full = await routers[0].usage()
        await agents.ask("go")
    return {
        "tasks": count,
        "idle_mb": rounded(idle.rss_mb),
        "rss_mb": rounded(full.rss_mb),
        "peak_mb": rounded(full.peak_mb),
    }


async def _waiting(place: Place, sizes: Sizes) -> dict[str, Any]:
    """All slots are taken by tasks that do not end, and everything else waits."""
    scene = Scene(settings=place.settings(router={"grace_s": 1.0}), slots=SLOTS, holds=True)
    async with topology_of(scene) as bus, crew(scene) as (routers, agents):
        await publish(bus, scene, _ids(sizes.tasks))
        first = await routers[0].usage()
        await publish(bus, scene, _ids(max(0, sizes.waiting - sizes.tasks)))
        await SystemClock().sleep(
            sizes.steady_s
        )  # whatever a router does with tasks that wait, it has time for it
        last = await routers[0].usage()
        depths = [await bus.depth(queue.name) for queue in scene.topology().queues]
        await agents.ask("go")
    return {
        "tasks": sizes.waiting,
        "on_broker": sum(depth[0] for depth in depths if depth is not None),
        "rss_mb_with_few": rounded(first.rss_mb),
        "few": sizes.tasks,
        "rss_mb": rounded(last.rss_mb),
        "peak_mb": rounded(last.peak_mb),
    }


def _ids(count: int) -> list[str]:
    clock = SystemClock()
    return [clock.new_id() for _ in range(count)]


def _flow(runs: list[Flow]) -> dict[str, float]:
    return {
        "tasks_per_s": middle(_rates(runs)),
        "cpu_us_per_task": middle(_cpu(runs)),
        "peak_mb": middle([run.peak_mb for run in runs]),
    }


def _rates(runs: list[Flow]) -> list[float]:
    return [run.tasks_per_s for run in runs]


def _cpu(runs: list[Flow]) -> list[float]:
    return [run.router_cpu_us for run in runs]
