"""What a run comes to in figures, and what many runs come to."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from statistics import fmean, stdev
from typing import Self

from reach_worker.bench.simulation import Run


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one run, or means over several.

    ``first``, ``final``: share of tasks whose first attempt, whose last attempt succeeded; a task that found no agent
    before its deadline has neither. ``p50``, ``p99``: seconds from arrival to the end of *every* task, of a failed one
    to its last failure, of one that ran out of time its 60 s. ``cost``: real cost of all attempts begun, per task.
    ``queue``: most attempts that ever waited in one agent's own queue.
    """

    first: float
    final: float
    p50: float
    p99: float
    cost: float
    queue: float

    @classmethod
    def of(cls, run: Run) -> Self:
        """The figures of a run, which has to have had tasks."""
        count = len(run.tasks)
        took = sorted(_seconds(task.arrived_at, task.ended_at) for task in run.tasks)
        return cls(
            first=sum(task.first_good for task in run.tasks) / count,
            final=sum(task.good for task in run.tasks) / count,
            p50=_quantile(took, 0.50),
            p99=_quantile(took, 0.99),
            cost=run.spent / count,
            queue=float(run.longest_queue),
        )


@dataclass(frozen=True, slots=True)
class Summary:
    """Means over runs of different seeds, and their standard errors (0 where there is but one)."""

    mean: Figures
    error: Figures


def summary(runs: Sequence[Figures]) -> Summary:
    """Several runs, of one fleet and one way to choose, as one."""
    columns = [[float(getattr(run, field.name)) for run in runs] for field in fields(Figures)]
    errors = [stdev(column) / math.sqrt(len(column)) if len(column) > 1 else 0.0 for column in columns]
    return Summary(Figures(*map(fmean, columns)), Figures(*errors))


def _seconds(arrived_at: float, ended_at: float | None) -> float:
    if ended_at is None:
        raise ValueError("a task has not ended")
    return ended_at - arrived_at


def _quantile(ordered: Sequence[float], q: float) -> float:
    """Nearest rank."""
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)]
