"""Intake: never faster than the rate, never more at once than the burst."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from reach_worker.core.token_bucket import IntakePolicy, TokenBucket

RATE = st.floats(0.01, 10_000)
MOMENTS = st.lists(st.tuples(st.floats(0, 10), st.integers(0, 300)), max_size=30)


def test_a_full_bucket_gives_its_burst_and_then_the_rate() -> None:
    bucket = TokenBucket.full(10.0, 5, 100.0)

    assert bucket.take(8, 100.0) == 5
    assert bucket.take(1, 100.0) == 0
    assert bucket.seconds_to_next(100.0) == pytest.approx(0.1)
    assert bucket.take(8, 100.35) == 3
    assert bucket.available(200.0) == 5


@pytest.mark.parametrize(
    ("rate", "burst", "taken", "wait", "available"),
    [
        (2.0, 4, 4, 0.0, 0),
        (2.0, 4, 4, 0.5, 1),
        (2.0, 4, 4, 0.4999, 0),
        (2.0, 4, 4, 100.0, 4),
        (0.1, 1, 1, 9.9, 0),
        (0.1, 1, 1, 10.0, 1),
        (1000.0, 1, 1, 5.0, 1),
    ],
)
def test_how_it_fills(rate: float, burst: int, taken: int, wait: float, available: int) -> None:
    bucket = TokenBucket.full(rate, burst, 50.0)
    bucket.take(taken, 50.0)

    assert bucket.available(50.0 + wait) == available


def test_without_a_rate_it_never_runs_empty() -> None:
    bucket = TokenBucket.full(None, 200, 0.0)

    assert bucket.take(10_000, 0.0) == 10_000
    assert bucket.available(0.0) == 200
    assert bucket.seconds_to_next(0.0) == 0.0


def test_a_clock_that_goes_back_gives_nothing_and_takes_nothing() -> None:
    bucket = TokenBucket.full(1.0, 2, 100.0)
    bucket.take(2, 100.0)

    assert bucket.available(50.0) == 0
    assert bucket.available(101.0) == 1


@given(RATE, st.integers(1, 200), MOMENTS)
def test_never_more_than_burst_and_rate_allow(
    rate: float, burst: int, moments: list[tuple[float, int]]
) -> None:
    bucket, now, taken = TokenBucket.full(rate, burst, 0.0), 0.0, 0
    for pause, wanted in moments:
        now += pause
        got = bucket.take(wanted, now)
        assert 0 <= got <= wanted
        taken += got

    assert taken <= burst + now * rate + 1e-6 * (1 + now * rate)
    assert 0 <= bucket.available(now) <= burst


@given(RATE, st.integers(1, 200), MOMENTS)
def test_after_the_time_it_tells_there_is_a_token(
    rate: float, burst: int, moments: list[tuple[float, int]]
) -> None:
    bucket, now = TokenBucket.full(rate, burst, 0.0), 0.0
    for pause, wanted in moments:
        now += pause
        bucket.take(wanted, now)
    wait = bucket.seconds_to_next(now)

    assert wait >= 0.0
    assert bucket.available(now + wait + 1e-6) >= 1


@pytest.mark.parametrize(
    ("rate", "prefetch", "held"),
    [(None, 200, 200), (50.0, 200, 50), (0.5, 200, 1), (5000.0, 200, 200), (1.9, 7, 1)],
)
def test_no_delivery_is_held_longer_than_about_a_second_of_tokens(
    rate: float | None, prefetch: int, held: int
) -> None:
    assert IntakePolicy(rate=rate, prefetch=prefetch).held_at_most() == held


@pytest.mark.parametrize("rate", [0.0, -1.0, float("inf"), float("nan")])
def test_a_rate_is_a_number_above_nothing(rate: float) -> None:
    with pytest.raises(ValidationError):
        IntakePolicy(rate=rate)


@pytest.mark.parametrize(
    ("pause", "wait"), [(0.0, 0.5), (0.125, 0.375), (0.25, 0.25), (0.5, 0.0), (0.75, 0.0), (9.0, 0.0)]
)
def test_how_long_until_the_next_token(pause: float, wait: float) -> None:
    bucket = TokenBucket.full(2.0, 4, 100.0)
    bucket.take(4, 100.0)

    assert bucket.seconds_to_next(100.0 + pause) == wait


def test_what_is_taken_in_unless_it_is_set() -> None:
    policy = IntakePolicy()

    assert (policy.rate, policy.burst, policy.prefetch) == (None, 200, 200)
    assert policy.max_body_bytes == 8_388_608
