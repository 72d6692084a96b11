"""``scripts/profile``: where CPU time goes, per task or per decision."""

import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click
import orjson

from reach_worker import wiring
from reach_worker.bench.live.decide import asks
from reach_worker.bench.live.flow import complete_run
from reach_worker.bench.live.known_fleet import known_fleet
from reach_worker.bench.live.parts import NO_BROKER, URL
from reach_worker.bench.live.profiled import profiling_to
from reach_worker.bench.live.scene import Place, Scene
from reach_worker.bench.live.sizes import FULL
from reach_worker.cli.command import ReachCommand
from reach_worker.cli.output import Table, print_table, say
from reach_worker.cli.program import Guarded
from reach_worker.clock import SystemClock
from reach_worker.core.policy import RoutingPolicy
from reach_worker.core.routing import plan
from reach_worker.errors import BadInput

LINES: Final = 40
COLUMNS: Final = ("own µs", "whole µs", "")


class ProfileCommand(Guarded, ReachCommand):
    """A program of one command."""


@click.command(
    cls=ProfileCommand,
    examples=["scripts/profile route", "scripts/profile decide --agents 20 --lines 60"],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.argument("what", type=click.Choice(["route", "decide"]))
@click.option("--tasks", type=click.IntRange(100), help="Tasks, or decisions.")
@click.option("--agents", type=click.IntRange(1), default=4, show_default=True)
@click.option("--lines", type=click.IntRange(1), default=LINES, show_default=True, help="Functions to show.")
@click.option("--file", type=click.Path(dir_okay=False, path_type=Path), help="Keep the profile, as JSON.")
def profile(what: str, tasks: int | None, agents: int, lines: int, file: Path | None) -> None:
    """Show where CPU time goes, in microseconds per task or decision."""
    with tempfile.TemporaryDirectory(prefix="reach-profile-") as folder:
        path = file or Path(folder) / "profile.json"
        if what == "route":
            count = tasks or FULL.tasks
            _profile_route(Path(folder), path, count, agents)
        else:
            count = tasks or max(100, FULL.candidates // agents)
            _profile_decide(path, count, agents)
        found = orjson.loads(path.read_bytes())
    others = found["others_s"] / count * 1e6
    say(f"{found['main_s'] / count * 1e6:.1f} µs per {'task' if what == 'route' else 'decision'}")
    say(f"and {max(0.0, others):.1f} µs of other threads (SQLite)")
    print_table(Table(COLUMNS, list(by_folder(found, count))))
    print_table(Table(COLUMNS, list(by_function(found, count, lines))))


def _profile_route(folder: Path, path: Path, tasks: int, agents: int) -> None:
    url = os.environ.get(URL, "").strip()
    if not url:
        raise BadInput(NO_BROKER)
    place = Place(url, folder, SystemClock().new_id)
    scene = Scene(settings=place.settings(), agents=agents)

    path = path.absolute()

    async def run() -> int:
        done = await complete_run(scene, tasks, limit_s=FULL.limit_s, profile=path)
        say(f"{done.tasks_per_s:.0f} tasks/s while it was profiled")
        return 0

    wiring.run(run)


def _profile_decide(path: Path, count: int, agents: int) -> None:
    clock, policy = SystemClock(), RoutingPolicy()
    fleet = known_fleet(agents, clock.monotonic())
    wanted = asks(count)
    with profiling_to(str(path)):
        for ask in wanted:
            plan(ask, fleet, policy, clock.monotonic())


def by_folder(found: Mapping[str, Any], count: int) -> Iterator[list[str]]:
    """Own time together, by what the files belong to."""
    together: Counter[str] = Counter()
    for name, seconds in found["own"].items():
        together[name.partition("/")[0] if "/" in name else "generated code"] += seconds
    for name, seconds in together.most_common():
        yield [_us(seconds, count), "", f"{name}/"]


def by_function(found: Mapping[str, Any], count: int, lines: int) -> Iterator[list[str]]:
    """The functions with the most time of their own, then those with the most in all."""
    for name in list(found["own"])[:lines]:
        yield [_us(found["own"][name], count), _us(found["whole"][name], count), name]
    yield ["", "", "by the whole:"]
    for name in list(found["whole"])[:lines]:
        yield [_us(found["own"].get(name, 0.0), count), _us(found["whole"][name], count), name]


def _us(seconds: float, count: int) -> str:
    return f"{seconds / count * 1e6:.1f}"


if __name__ == "__main__":
    profile(prog_name="profile")
