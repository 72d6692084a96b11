"""Many runs: each way to choose, in each fleet, with each seed, on all the processors there are."""

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from threading import Thread
from typing import Final

from reach_worker.bench.contenders import contender
from reach_worker.bench.figures import Figures, Summary, summary
from reach_worker.bench.fleets import FLEETS
from reach_worker.bench.simulation import simulate

EARLY: Final = "+early"
"""Ends the name of a policy whose late binding is off."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One way to choose in one fleet: a line of the report."""

    policy: str
    letter: str
    early: bool = False

    @property
    def name(self) -> str:
        """The policy, as the report names it."""
        return self.policy + EARLY if self.early else self.policy


Result = tuple[Entry, Summary]


def run_grid(entries: Iterable[Entry], *, seeds: int, processes: int) -> Iterator[Result]:
    """Each entry with its figures over ``seeds`` runs, in order, as soon as they are known.

    The figures are the same for any number of processes.
    """
    lines = list(entries)
    jobs = [(entry, seed) for entry in lines for seed in range(seeds)]
    if processes == 1:
        yield from _gathered(lines, map(_figures, jobs), seeds)
        return
    # Begun afresh, not forked: no process inherits another's state.
    with ProcessPoolExecutor(processes, get_context("spawn"), _end_with_parent) as pool:
        yield from _gathered(lines, pool.map(_figures, jobs), seeds)


def _gathered(lines: Sequence[Entry], figures: Iterator[Figures], seeds: int) -> Iterator[Result]:
    for entry in lines:
        yield entry, summary([next(figures) for _ in range(seeds)])


def _end_with_parent() -> None:
    """A process of the pool would otherwise wait for work for ever when its parent was killed."""
    parent = parent_process()
    if parent is not None:
        Thread(target=_end_after, args=(parent.sentinel,), daemon=True).start()


def _end_after(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


def _figures(job: tuple[Entry, int]) -> Figures:
    entry, seed = job
    run = simulate(FLEETS[entry.letter], contender(entry.policy), seed=seed, early=entry.early)
    return Figures.of(run)
