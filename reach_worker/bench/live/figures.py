"""Medians, ratios and quantiles."""

import math
from collections.abc import Sequence
from statistics import median
from typing import Final

DIGITS: Final = 4


def middle(values: Sequence[float]) -> float:
    """The median, rounded."""
    return rounded(median(values))


def middle_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median of the ratios of runs that were made one after the other: what drifts touches both."""
    return rounded(median(one / other for one, other in zip(ours, theirs, strict=True)))


def quantile(ordered: Sequence[float], share: float) -> float:
    """Nearest rank, of sorted values."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def rounded(value: float) -> float:
    """To four significant digits."""
    if value == 0.0 or not math.isfinite(value):
        return value
    return round(value, DIGITS - 1 - math.floor(math.log10(abs(value))))
