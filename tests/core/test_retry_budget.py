"""The retry budget: a share of recent first attempts, but always some a minute."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_worker.core.backoff import RetryPolicy
from reach_worker.core.retry_budget import LONGEST_WAIT_S, SHORTEST_WAIT_S, RetryBudget


def budget(share: float = 0.2, floor: float = 10.0, routers: int = 1) -> RetryBudget:
    return RetryBudget(RetryPolicy(budget_share=share, budget_floor_per_min=floor), routers)


def taken(one: RetryBudget, now: float, wanted: int = 1_000) -> int:
    return sum(one.take(now) for _ in range(wanted))


def test_ten_a_minute_without_any_new_work() -> None:
    one = budget()
    assert taken(one, 0.0) == 10
    assert taken(one, 30.0) == 5
    assert taken(one, 60.0) == 5
    assert taken(one, 600.0) == 10, "a quiet time buys no burst"


def test_a_fifth_of_new_work_on_top() -> None:
    one = budget()
    for _ in range(100):
        one.first_attempt(0.0)
    assert taken(one, 0.0) == 30


def test_new_work_of_long_ago_counts_no_more() -> None:
    one = budget()
    for _ in range(100):
        one.first_attempt(0.0)
    assert taken(one, 600.0) == 10


def test_a_floor_below_one_lets_one_through_now_and_then() -> None:
    one = budget(share=0.0, floor=0.5)
    assert taken(one, 0.0) == 0
    assert taken(one, 60.0) == 1
    assert taken(one, 120.0) == 0
    assert taken(one, 180.0) == 1


def test_live_routers_share_the_floor() -> None:
    assert taken(budget(routers=5), 0.0) == 2


@pytest.mark.parametrize(("owed", "shortest"), [(1, 3.0), (4, 12.0), (1_000, 30.0)])
def test_many_that_wait_ask_more_rarely(owed: int, shortest: float) -> None:
    one = budget()
    taken(one, 0.0, 10)
    assert taken(one, 0.0, owed) == 0
    assert one.wait_s(0.0) == pytest.approx(shortest)
    assert one.wait_s(0.999_999) == pytest.approx(2 * shortest, rel=1e-3)


@given(
    share=st.floats(0, 1),
    floor=st.floats(0.1, 100),
    story=st.lists(
        st.tuples(st.floats(0, 30), st.booleans(), st.floats(0, 1, exclude_max=True)), max_size=300
    ),
)
def test_never_more_than_the_share_and_the_floor(
    share: float, floor: float, story: list[tuple[float, bool, float]]
) -> None:
    one, now, first, retries = budget(share, floor), 0.0, 0, 0
    for pause, is_retry, draw in story:
        now += pause
        if is_retry:
            retries += one.take(now)
        else:
            one.first_attempt(now)
            first += 1
        assert retries <= 1 + share * first + floor * (1 + now / 60) + 1e-6
        assert SHORTEST_WAIT_S / 2 <= one.wait_s(draw) <= LONGEST_WAIT_S
