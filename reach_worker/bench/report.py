"""The figures as people read them, and as programs do."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Final

from reach_worker.bench.figures import Summary
from reach_worker.bench.grid import Result
from reach_worker.cli.output import Table

COLUMNS: Final = ("fleet", "policy", "first try %", "final %", "p50 s", "p99 s", "cost", "queue")
LEGEND: Final = (
    "Mean ± standard error over seeds. First try, final: tasks whose first, last attempt succeeded. p50, p99: arrival to",
    "end of every task, failed and expired ones (60 s) included. Cost: of all attempts, per task. Queue: longest at any",
    "one agent. +early: late binding off.",
)
DIGITS: Final = 6


def table(results: Iterable[Result]) -> Table:
    """One line per fleet and policy, fleets together."""
    ordered = sorted(results, key=lambda result: result[0].letter)  # stable: policies keep their order
    return Table(COLUMNS, [[entry.letter, entry.name, *_cells(found)] for entry, found in ordered])


def document(results: Iterable[Result]) -> Mapping[str, Mapping[str, Mapping[str, float]]]:
    """Policy → fleet letter → figures."""
    by_policy: dict[str, dict[str, dict[str, float]]] = {}
    for entry, found in results:
        rounded = {name: round(value, DIGITS) for name, value in asdict(found.mean).items()}
        by_policy.setdefault(entry.name, {})[entry.letter] = rounded
    return by_policy


def _cells(found: Summary) -> list[str]:
    mean, error = found.mean, found.error
    return [
        f"{mean.first:.1%} ± {error.first:.1%}".replace("%", ""),
        f"{mean.final * 100:.2f}",
        f"{mean.p50:.2f}",
        f"{mean.p99:.1f} ± {error.p99:.1f}",
        f"{mean.cost:.2f} ± {error.cost:.2f}",
        f"{mean.queue:.0f}",
    ]
