"""Seeded chance: a stream of draws for each thing that happens by chance, so that one never shifts another."""

import math
import random
from statistics import NormalDist
from typing import Final

_NORMAL: Final = NormalDist()
_LEAST: Final = 2.0**-54
"""Half of the smallest step between draws; stands for the draw 0, which has no normal quantile."""


class Chance:
    """A stream of draws that follows from its names alone: ``Chance("A", 7, "arrivals")``."""

    def __init__(self, *names: str | int) -> None:
        # From a text Python seeds by SHA-512, whatever PYTHONHASHSEED says; the sequence of random() is guaranteed.
        self.draw = random.Random("/".join(map(str, names))).random  # uniform in [0, 1)


def waiting_time(rate_per_s: float, draw: float) -> float:
    """Seconds to the next arrival of a Poisson process: exponential with mean 1 / rate."""
    return -math.log1p(-draw) / rate_per_s


def log_normal(mean: float, sigma: float, draw: float) -> float:
    """A log-normal value with this *mean* (not median); ``sigma`` is the deviation of its logarithm."""
    mu = math.log(mean) - sigma * sigma / 2
    return math.exp(mu + sigma * _NORMAL.inv_cdf(draw or _LEAST))
