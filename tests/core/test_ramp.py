"""Slots come back in steps after a breaker has closed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_worker.core.ramp import Ramp

STEPS = (0.1, 0.25, 0.5)


def ramp(successes: int | None = 0) -> Ramp:
    made = Ramp(STEPS, 5)
    if successes is not None:
        made.begin()
        for _ in range(successes):
            made.succeeded()
    return made


@pytest.mark.parametrize(
    ("successes", "of", "back"),
    [
        (None, 8, 8),
        (None, 0, 0),
        # a tenth, and at least one
        (0, 0, 0),
        (0, 1, 1),
        (0, 8, 1),
        (0, 40, 4),
        (4, 40, 4),
        # a quarter, rounded down
        (5, 1, 1),
        (5, 8, 2),
        (5, 11, 2),
        (9, 40, 10),
        # half
        (10, 8, 4),
        (14, 9, 4),
        # all
        (15, 8, 8),
        (100, 8, 8),
    ],
)
def test_how_many_slots_are_back(successes: int | None, of: int, back: int) -> None:
    assert ramp(successes).slots(of) == back


def test_the_next_probe_begins_at_the_first_step() -> None:
    climbed = ramp(12)
    climbed.begin()

    assert climbed.slots(40) == 4


def test_without_steps_all_slots_are_back_at_once() -> None:
    none = Ramp((), 5)
    none.begin()
    none.succeeded()

    assert none.slots(8) == 8


@given(st.integers(0, 40), st.integers(0, 1000))
def test_more_successes_never_take_a_slot_away(successes: int, of: int) -> None:
    fewer, more = ramp(successes).slots(of), ramp(successes + 1).slots(of)

    assert min(1, of) <= fewer <= more <= of


@given(st.integers(1, 10_000))
def test_a_tenth_of_round_numbers_is_exact(tens: int) -> None:
    assert ramp().slots(10 * tens) == tens
