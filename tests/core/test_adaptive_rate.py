"""The adapted rate: it falls when an agent becomes slow, creeps back, and never loses an agent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_worker.core.adaptive_rate import LEAST_SHARE, PERIOD_S, SAMPLES, AdaptiveRate

USUAL_S, DECLARED_S = 1.0, 1.0


def play(
    adapted: AdaptiveRate, seconds: float, *, tasks: int, rate: float = 10.0, begin: float = 0.0
) -> float:
    """Attempts that end ``rate`` times a second, from ``begin`` on; when the last one ended."""
    now = begin
    for _ in range(tasks):
        now += 1 / rate
        adapted.ended(seconds, USUAL_S, DECLARED_S, now)
    return now


def test_an_agent_that_does_as_usual_is_free() -> None:
    adapted = AdaptiveRate()
    play(adapted, 1.9, tasks=500)
    assert adapted.limit is None


def test_it_counts_what_ends_in_a_second() -> None:
    adapted = AdaptiveRate()
    now = play(adapted, 1.0, tasks=600)
    assert adapted.rate(now) == pytest.approx(10.0, rel=0.02)
    young = AdaptiveRate()
    assert young.rate(play(young, 1.0, tasks=50)) == pytest.approx(10.0, rel=0.05)


def test_one_that_becomes_slow_is_held_to_less_than_it_does() -> None:
    adapted = AdaptiveRate()
    now = play(adapted, 1.0, tasks=300)
    play(adapted, 3.0, tasks=SAMPLES, begin=now)
    assert adapted.limit == pytest.approx(7.0, rel=0.05)


def test_what_is_within_its_declaration_is_never_slow() -> None:
    adapted = AdaptiveRate()
    now = 0.0
    for _ in range(500):
        now += 0.1
        adapted.ended(3.0, USUAL_S, 5.0, now)
    assert adapted.limit is None


def test_it_falls_step_by_step_and_no_further_than_a_quarter() -> None:
    adapted = AdaptiveRate()
    now = play(adapted, 1.0, tasks=300)
    limits: list[float] = []
    for _ in range(12):
        now = play(adapted, 5.0, tasks=int(PERIOD_S * 10) + 1, begin=now)
        assert adapted.limit is not None
        limits.append(adapted.limit)
    assert limits == sorted(limits, reverse=True)
    assert limits[-1] == pytest.approx(LEAST_SHARE * adapted.slow_at_rate)


def test_it_creeps_back_and_is_free_in_the_end() -> None:
    adapted = AdaptiveRate()
    now = play(adapted, 1.0, tasks=300)
    now = play(adapted, 3.0, tasks=SAMPLES, begin=now)
    limits = []
    while adapted.limit is not None:
        limits.append(adapted.limit)
        now = play(adapted, 1.0, tasks=int(PERIOD_S * 10) + 1, begin=now)
    assert limits == sorted(limits)
    assert len(limits) >= 10, "it creeps"


def test_nothing_is_said_before_the_usual_is_known() -> None:
    adapted = AdaptiveRate()
    for number in range(200):
        assert not adapted.ended(50.0, None, DECLARED_S, number / 10)
    assert adapted.limit is None


@given(story=st.lists(st.tuples(st.floats(0.001, 100), st.floats(0, 60)), max_size=300))
def test_a_limit_is_positive_and_within_what_was_done(story: list[tuple[float, float]]) -> None:
    adapted, now = AdaptiveRate(), 0.0
    for seconds, pause in story:
        now += pause
        adapted.ended(seconds, USUAL_S, DECLARED_S, now)
        if adapted.limit is not None:
            assert 0.0 < adapted.limit < 2 * adapted.slow_at_rate + 1e-9
