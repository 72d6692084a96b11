"""The command that measures parts."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import click

from reach_worker import wiring
from reach_worker.bench.live.parts import PARTS, URL, measure
from reach_worker.bench.live.sizes import FULL, SHORT
from reach_worker.cli.command import ReachCommand, json_option
from reach_worker.cli.output import Table, print_json_line, print_table, say


@click.command(
    cls=ReachCommand,
    hidden=True,
    examples=["scripts/bench", "scripts/bench route decide --json", "scripts/bench latency --short"],
)
@click.argument("parts", nargs=-1, type=click.Choice(list(PARTS)), metavar="[PART]...")
@click.option("--short", is_flag=True, help="A quick form: small numbers, one run of each.")
@click.option("--runs", type=click.IntRange(1), help="Runs of each contender; their median counts.")
@click.option("--tasks", type=click.IntRange(100), help="Tasks of a complete run.")
@json_option
def measured(*, parts: Sequence[str], short: bool, runs: int | None, tasks: int | None, as_json: bool) -> int:
    """Measure parts, all if none is named: speed and memory of the real thing.

    With --json the last line of stdout is one object by part.
    """
    sizes = SHORT if short else FULL
    sizes = replace(sizes, runs=runs or sizes.runs, tasks=tasks or sizes.tasks)
    document: dict[str, Any] = {}

    def told(name: str, figures: Mapping[str, Any]) -> None:
        document[name] = figures
        if not as_json:
            print_table(Table((name, ""), [list(line) for line in lines(figures)]))

    names = list(dict.fromkeys(parts)) or list(PARTS)
    status = wiring.run(lambda: measure(names, sizes, os.environ.get(URL, "").strip() or None, say, told))
    if as_json and not status:
        print_json_line(document)
    return status


def lines(figures: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Each figure with its place, ``at_50.bare.p99_ms``."""
    for name, value in figures.items():
        if isinstance(value, Mapping):
            yield from lines(value, f"{above}{name}.")
        elif isinstance(value, list):
            yield f"{above}{name}", ", ".join(map(str, value)) or "–"
        else:
            yield (
                f"{above}{name}",
                "–" if value is None else f"{value:,}" if isinstance(value, float) else str(value),
            )
