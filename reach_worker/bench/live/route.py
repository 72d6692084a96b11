"""``route``: complete runs beside the bare forwarder and the peers, one after the other, again and again."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from reach_worker.bench.live import bare, peers
from reach_worker.bench.live.bare import TwoHops, bare_run
from reach_worker.bench.live.figures import middle, middle_ratio
from reach_worker.bench.live.flow import Flow, complete_run
from reach_worker.bench.live.peers import peer_run
from reach_worker.bench.live.scene import Place, Scene
from reach_worker.bench.live.sizes import Sizes

Say = Callable[[str], None]


@dataclass(slots=True)
class _Rounds:
    ours: list[Flow] = field(default_factory=list)
    two_routers: list[Flow] = field(default_factory=list)
    bare: list[TwoHops] = field(default_factory=list)
    peers: dict[str, list[TwoHops]] = field(default_factory=dict)


async def run(place: Place, sizes: Sizes, say: Say) -> dict[str, Any]:
    """Every contender once in each round."""
    there = peers.installed()
    if not bare.there():
        say(bare.MISSING)
    absent = sorted(set(peers.PEERS) - set(there))
    if absent:
        say(f"not installed, so not compared: {', '.join(absent)}")
    rounds = _Rounds()
    for number in range(1, sizes.runs + 1):
        await _round(rounds, place, sizes, there)
        say(f"round {number}: {rounds.ours[-1].tasks_per_s:.0f} tasks/s, complete")
    return {**_summary(rounds), "tasks": sizes.tasks, "runs": sizes.runs, "not_installed": absent}


async def _round(rounds: _Rounds, place: Place, sizes: Sizes, there: list[str]) -> None:
    rounds.ours.append(await complete_run(_scene(place), sizes.tasks, limit_s=sizes.limit_s))
    if bare.there():
        rounds.bare.append(await bare_run(place, sizes.tasks, limit_s=sizes.limit_s))
    for name in there:
        measured = await peer_run(place, name, sizes.tasks, limit_s=sizes.limit_s)
        rounds.peers.setdefault(name, []).append(measured)
    rounds.two_routers.append(
        await complete_run(_scene(place), sizes.tasks, limit_s=sizes.limit_s, routers=2)
    )


def _scene(place: Place) -> Scene:
    return Scene(settings=place.settings())


def _summary(rounds: _Rounds) -> dict[str, Any]:
    rates = [run.tasks_per_s for run in rounds.ours]
    cpu = [run.router_cpu_us for run in rounds.ours]
    found: dict[str, Any] = {
        "tasks_per_s": middle(rates),
        "cpu_us_per_task": middle(cpu),
        "agents_cpu_us_per_task": middle([run.agents_cpu_us for run in rounds.ours]),
        "peak_mb": middle([run.peak_mb for run in rounds.ours]),
        "ratio_to_bare": None,
        "cpu_ratio_to_bare": None,
        "ratio_to_peers": {
            name: middle_ratio(rates, [run.tasks_per_s for run in theirs])
            for name, theirs in rounds.peers.items()
        },
        "peers": {name: _two_hops(theirs) for name, theirs in rounds.peers.items()},
        "two_routers": {
            "tasks_per_s": middle([run.tasks_per_s for run in rounds.two_routers]),
            "ratio_to_one": middle_ratio([run.tasks_per_s for run in rounds.two_routers], rates),
            "cpu_us_per_task": middle([run.router_cpu_us for run in rounds.two_routers]),
        },
    }
    if rounds.bare:
        found |= {
            "ratio_to_bare": middle_ratio(rates, [run.tasks_per_s for run in rounds.bare]),
            "cpu_ratio_to_bare": middle_ratio(cpu, [run.router_cpu_us for run in rounds.bare]),
            "bare": _two_hops(rounds.bare),
        }
    return found


def _two_hops(runs: list[TwoHops]) -> dict[str, float]:
    return {
        "tasks_per_s": middle([run.tasks_per_s for run in runs]),
        "cpu_us_per_task": middle([run.router_cpu_us for run in runs]),
        "peak_mb": middle([run.peak_mb for run in runs]),
    }
