"""Choosing by seeded draws."""

from collections.abc import Callable, MutableSequence, Sequence
from typing import TypeVar

T = TypeVar("T")
Draw = Callable[[], float]
"""Uniform in [0, 1)."""


def one_of(items: Sequence[T], draw: Draw) -> T:
    """One of them, each as likely as the others."""
    return items[int(draw() * len(items))]


def between(low: float, high: float, draw: Draw) -> float:
    """A number between the two."""
    return low + (high - low) * draw()


def shuffle(items: MutableSequence[T], draw: Draw) -> None:
    """Put them into any order, each as likely as the others (Fisher and Yates)."""
    for last in range(len(items) - 1, 0, -1):
        other = int(draw() * (last + 1))
        items[last], items[other] = items[other], items[last]
