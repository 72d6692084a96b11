"""How long a task waits, and where."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from reach_worker.core.backoff import RUNGS_MS, RetryPolicy, delay_s, rung_ms

POLICY = RetryPolicy()
DRAW = st.floats(0, 1, exclude_max=True)


@pytest.mark.parametrize(
    ("retry", "bound"),
    [(1, 0.5), (2, 1.0), (3, 2.0), (4, 4.0), (7, 32.0), (8, 60.0), (100, 60.0), (10**9, 60.0)],
)
def test_the_bound_doubles_up_to_the_cap(retry: int, bound: float) -> None:
    assert delay_s(retry, 0.0, POLICY) == 0.0
    assert delay_s(retry, 0.5, POLICY) == bound / 2
    assert delay_s(retry, 0.999999, POLICY) == pytest.approx(bound, rel=1e-5)


@given(st.integers(1, 200), DRAW)
def test_full_jitter_stays_below_the_bound(retry: int, draw: float) -> None:
    bound = min(POLICY.cap_s, POLICY.base_s * POLICY.factor ** min(retry - 1, 50))

    assert 0.0 <= delay_s(retry, draw, POLICY) <= bound


@given(st.integers(1, 100), DRAW)
def test_a_later_retry_never_waits_less_for_the_same_draw(retry: int, draw: float) -> None:
    assert delay_s(retry, draw, POLICY) <= delay_s(retry + 1, draw, POLICY)


@pytest.mark.parametrize("retry", [0, -1])
def test_retries_count_from_one(retry: int) -> None:
    with pytest.raises(ValueError, match="retries count from 1"):
        delay_s(retry, 0.5, POLICY)


@pytest.mark.parametrize(
    ("delay", "rung"),
    [
        (-1.0, 250),
        (0.0, 250),
        (0.25, 250),
        (0.250001, 500),
        (0.5, 500),
        (1.0, 1_000),
        (1.5, 2_000),
        (3.0, 4_000),
        (8.0, 8_000),
        (8.1, 15_000),
        (60.0, 60_000),
        (61.0, 300_000),
        (1_800.0, 1_800_000),
        (7_200.0, 1_800_000),
        (float("inf"), 1_800_000),
    ],
)
def test_a_delay_is_rounded_up_to_a_rung(delay: float, rung: int) -> None:
    assert rung_ms(delay) == rung


@given(st.floats(0, 1_800))
def test_no_rung_is_shorter_than_the_delay(delay: float) -> None:
    rung = rung_ms(delay)

    assert rung >= delay * 1000
    assert all(other < delay * 1000 for other in RUNGS_MS if other < rung)


def test_the_ladder_goes_from_a_quarter_second_to_half_an_hour() -> None:
    seconds = (0.25, 0.5, 1, 2, 4, 8, 15, 30, 60, 5 * 60, 15 * 60, 30 * 60)

    assert tuple(rung / 1000 for rung in RUNGS_MS) == seconds


def test_the_retries_there_are_unless_it_is_set() -> None:
    assert (POLICY.max_retries, POLICY.base_s, POLICY.factor, POLICY.cap_s) == (3, 0.5, 2.0, 60.0)
    assert POLICY.max_dispatches == 20


@pytest.mark.parametrize(
    "fields",
    [{"base_s": 0.0}, {"base_s": float("inf")}, {"factor": 0.5}, {"cap_s": 1801.0}, {"max_dispatches": 41}],
)
def test_what_makes_no_sense_is_refused(fields: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        RetryPolicy(**fields)
