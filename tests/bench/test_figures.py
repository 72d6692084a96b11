from dataclasses import astuple

import pytest

from reach_worker.bench.figures import Figures, summary
from reach_worker.bench.simulation import Run
from reach_worker.bench.tasks import CAPABILITY, Task
from reach_worker.core.gates import Ask


def task(seconds: float, *, first: bool = True, good: bool = True) -> Task:
    done = Task(Ask("t", CAPABILITY, {}), 100.0, ())
    done.first_good = first
    done.end(100.0 + seconds, good=good)
    return done


def test_the_figures_of_a_run() -> None:
    tasks = [task(float(n)) for n in range(1, 98)]
    tasks += [
        task(98.0, first=False),
        task(99.0, first=False, good=False),
        task(60.0, first=False, good=False),
    ]
    found = Figures.of(Run(tasks, spent=250.0, longest_queue=7))
    assert astuple(found) == pytest.approx((0.97, 0.98, 50.0, 98.0, 2.5, 7.0))


def test_a_task_ends_once() -> None:
    with pytest.raises(ValueError, match="has ended before"):
        task(1.0).end(102.0, good=True)


def test_a_task_that_has_not_ended_is_noticed() -> None:
    with pytest.raises(ValueError, match="not ended"):
        Figures.of(Run([Task(Ask("t", CAPABILITY, {}), 0.0, ())], 0.0, 0))


def test_means_and_their_standard_errors() -> None:
    runs = [Figures(first, 1.0, 2.0, 9.0, 3.0, 0.0) for first in (0.90, 0.92, 0.94, 0.96)]
    found = summary(runs)
    assert found.mean.first == pytest.approx(0.93)
    assert found.error.first == pytest.approx(0.0258198897 / 2)  # √(Σ (x - mean)² / 3) / √4
    assert astuple(found.error)[1:] == (0, 0, 0, 0, 0)


def test_one_run_has_no_error() -> None:
    one = Figures(0.9, 1.0, 2.0, 9.0, 3.0, 5.0)
    assert (summary([one]).mean, set(astuple(summary([one]).error))) == (one, {0.0})
