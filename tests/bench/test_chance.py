import math
from statistics import fmean, stdev

import pytest

from reach_worker.bench.chance import Chance, log_normal, waiting_time

DRAWS = 50_000


def test_a_stream_follows_from_its_names() -> None:
    first, again, other = Chance("A", 1, "luck"), Chance("A", 1, "luck"), Chance("A", 2, "luck")
    drawn = [first.draw() for _ in range(5)]
    assert drawn == [again.draw() for _ in range(5)]
    assert drawn != [other.draw() for _ in range(5)]


def test_a_stream_is_the_same_everywhere() -> None:
    assert Chance("A", 0, "arrivals").draw() == 0.18712306965996894


def test_waiting_times_are_those_of_a_poisson_process() -> None:
    draw = Chance("waiting").draw
    waits = [waiting_time(4.0, draw()) for _ in range(DRAWS)]
    assert fmean(waits) == pytest.approx(0.25, rel=0.02)
    assert stdev(waits) == pytest.approx(0.25, rel=0.03)  # exponential: as wide as its mean


@pytest.mark.parametrize(("mean", "sigma"), [(2.0, 0.5), (8.0, 0.5), (2.0, 0.8)])
def test_service_times_have_the_mean_and_the_sigma(mean: float, sigma: float) -> None:
    draw = Chance("service", str(mean), str(sigma)).draw
    times = [log_normal(mean, sigma, draw()) for _ in range(DRAWS)]
    assert fmean(times) == pytest.approx(mean, rel=0.02)
    assert stdev(map(math.log, times)) == pytest.approx(sigma, rel=0.02)


def test_the_draw_zero_is_a_time_too() -> None:
    assert log_normal(2.0, 0.5, 0.0) > 0.0
    assert waiting_time(1.0, 0.0) == 0.0
