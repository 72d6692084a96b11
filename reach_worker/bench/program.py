"""``scripts/bench``: its commands."""

import os
from collections.abc import Collection, Sequence
from typing import Final

import click

from reach_worker.bench.contenders import LEFT_OUT, known_contenders
from reach_worker.bench.fleets import FLEETS
from reach_worker.bench.grid import Entry, run_grid
from reach_worker.bench.live.parts import PARTS
from reach_worker.bench.live.program import measured
from reach_worker.bench.report import LEGEND, document, table
from reach_worker.cli.command import ReachGroup, json_option
from reach_worker.cli.output import print_json_line, print_table, say
from reach_worker.cli.program import Guarded

SEEDS: Final = 16
_BINDINGS: Final = {"late": (False,), "early": (True,), "both": (False, True)}


class Program(Guarded, ReachGroup):
    """A program with commands. What names none of them names parts that are to be measured."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = [MEASURED, *args]
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        with formatter.section("Parts"):
            formatter.write_dl([(name, part.what) for name, part in PARTS.items()])


@click.group(
    cls=Program,
    examples=[
        "scripts/bench",
        "scripts/bench route decide --json",
        "scripts/bench latency --short",
        "scripts/bench routing",
        "scripts/bench routing --policies adaptive,random --fleets A,C --json",
    ],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
def bench() -> None:
    """Measure how well it works.

    PARTs, all if none is named, measure speed and memory on a real broker: `scripts/bench PART --short --runs N --tasks N
    --json`. The command `routing` compares ways to choose an agent, in a simulation.
    """


MEASURED: Final = "measured"
bench.add_command(measured, MEASURED)


def _names(text: str | None, known: Collection[str], what: str) -> Sequence[str]:
    """The names in a list with commas, all that are known where there is none."""
    if text is None:
        return tuple(known)
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name in LEFT_OUT:
            raise click.BadParameter(f"{name} is left out: {LEFT_OUT[name]}")
        if name not in known:
            raise click.BadParameter(f"there is no {what} {name!r}, only {', '.join(known)}")
    return names


def _policies(_ctx: click.Context, _parameter: click.Parameter, text: str | None) -> Sequence[str]:
    return _names(text, known_contenders(), "policy")


def _letters(_ctx: click.Context, _parameter: click.Parameter, text: str | None) -> Sequence[str]:
    return _names(None if text is None else text.upper(), FLEETS, "fleet")


@bench.command(
    examples=[
        "scripts/bench routing",
        "scripts/bench routing --policies declared,p2c --fleets B,F --seeds 4",
        "scripts/bench routing --binding late --json",
    ],
)
@click.option(
    "--policies", callback=_policies, metavar="NAME,…", help="Presets and stand-ins; all if left out."
)
@click.option("--fleets", callback=_letters, metavar="A,B,…", help="Letters of fleets; all if left out.")
@click.option("--binding", type=click.Choice(list(_BINDINGS)), default="both", show_default=True)
@click.option("--seeds", type=click.IntRange(1), default=SEEDS, show_default=True, help="Runs of each.")
@click.option(
    "--processes", type=click.IntRange(1), help="Runs at a time; as many as processors if left out."
)
@json_option
def routing(
    *,
    policies: Sequence[str],
    fleets: Sequence[str],
    binding: str,
    seeds: int,
    processes: int | None,
    as_json: bool,
) -> None:
    """Compare ways to choose an agent, in simulated fleets.

    The real rules decide; agents, tasks and time are simulated. The same seeds give the same figures everywhere. What is
    known already is told on stderr.
    """
    entries = [
        Entry(name, letter, early) for name in policies for early in _BINDINGS[binding] for letter in fleets
    ]
    results = []
    for entry, found in run_grid(entries, seeds=seeds, processes=processes or os.cpu_count() or 1):
        say(f"{entry.name} in fleet {entry.letter}: {found.mean.first:.1%} at the first try")
        results.append((entry, found))
    if as_json:
        print_json_line(document(results))
        return
    print_table(table(results))
    for line in LEGEND:
        click.echo(line)
    for letter in fleets:
        click.echo(f"{letter}: {FLEETS[letter].what}")
    for name, why in LEFT_OUT.items():
        click.echo(f"Left out: {name}, {why}.")


def main() -> None:
    """What the shell calls."""
    bench(prog_name="bench")
