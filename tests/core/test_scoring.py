"""Scores: worked numbers, clamping, and that a better value never lowers one."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_worker.core.fleet import Fleet
from reach_worker.core.policy import RoutingPolicy
from reach_worker.core.scoreboard import Scoreboard
from reach_worker.core.scoring import (
    Dimension,
    Scene,
    Scored,
    cost_value,
    latency_value,
    load_value,
    loads_of,
    relative_value,
    success_value,
    weigh,
)
from tests.core.agents import CAPABILITY, NOW, ask, fleet_of, manifest, occupy

DECLARED = RoutingPolicy(preset="declared")


def fleet_with(
    *,
    cost: float = 3,
    latency_ms: float = 5500,
    success: tuple[int, int] | None = None,
    held: int = 0,
    capacity: int = 10,
) -> Fleet:
    """One agent; ``success`` is how many of how many attempts were right, all just now."""
    fleet = fleet_of(
        [manifest("a", offers={"cost": cost, "latency_ms": latency_ms}, max_concurrency=capacity)],
        capacity=capacity,
    )
    right, of = success or (0, 0)
    for number in range(of):
        fleet.record.touch("a", CAPABILITY).ended(NOW, good=number < right, seconds=1.0)
    occupy(fleet, "a", held)
    return fleet


def scored(fleet: Fleet, policy: RoutingPolicy = DECLARED) -> Scored:
    offers = fleet.capable(CAPABILITY)
    loads = loads_of(offers, fleet)
    field = Scoreboard(policy, offers).field(Scene(ask(), fleet, offers, NOW, policy), loads, [()])
    return field.scored[0]


def score_of(fleet: Fleet, policy: RoutingPolicy = DECLARED) -> float:
    return scored(fleet, policy).score


@pytest.mark.parametrize(
    ("cost", "value"),
    [(1, 1.0), (2, 0.75), (3, 0.5), (4, 0.25), (5, 0.0), (0, 1.0), (-5, 1.0), (99, 0.0), (1.5, 0.875)],
)
def test_cost_is_clamped_to_one_to_five(cost: float, value: float) -> None:
    assert cost_value(cost) == value


@pytest.mark.parametrize(
    ("latency_ms", "value"),
    [(1000, 1.0), (1, 1.0), (0, 1.0), (-7, 1.0), (5500, 0.5), (10_000, 0.0), (60_000, 0.0), (3250, 0.75)],
)
def test_latency_is_clamped_to_one_to_ten_seconds(latency_ms: float, value: float) -> None:
    assert latency_value(latency_ms) == value


@pytest.mark.parametrize(
    ("rate", "value"), [(None, 0.5), (0.0, 0.0), (0.5, 0.5), (1.0, 1.0), (1.5, 1.0), (-1.0, 0.0)]
)
def test_no_record_is_in_the_middle(rate: float | None, value: float) -> None:
    assert success_value(rate) == value


@pytest.mark.parametrize(
    ("under_way", "slots", "value"),
    [
        (0, 8, 1.0),
        (4, 8, 0.5),
        (8, 8, 0.0),
        (20, 8, 0.0),
        (5, 0, 0.5),
        (10, 0, 0.0),
        (1, 1, 0.0),
        (-1, 8, 1.0),
    ],
)
def test_load_saturates_at_the_slots(under_way: int, slots: int, value: float) -> None:
    assert load_value(under_way, slots) == value


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        # free, instant, never failed, idle
        ({"cost": 1, "latency_ms": 1, "success": (9, 9)}, 1.0),
        # free, instant, idle, always failing
        ({"cost": 1, "latency_ms": 1000, "success": (0, 9)}, 0.80),
        # cost 3, 5.5 s, always right, idle
        ({"success": (9, 9)}, 0.65),
        # nothing known of it
        ({"cost": 1, "latency_ms": 1}, 0.90),
        ({}, 0.55),
        # 0.35 · 0.75 + 0.35 · 0.75 + 0.20 · 0.8 + 0.10 · 0.6
        ({"cost": 2, "latency_ms": 3250, "success": (8, 10), "held": 4}, 0.745),
        # the worst there is
        ({"cost": 5, "latency_ms": 10_000, "success": (0, 1), "held": 10}, 0.0),
        # its own word is never extrapolated
        ({"cost": -5, "latency_ms": 1, "success": (9, 9)}, 1.0),
        ({"cost": 500, "latency_ms": 10**9, "success": (9, 9)}, 0.30),
    ],
)
def test_declared_in_worked_numbers(state: dict[str, Any], expected: float) -> None:
    assert score_of(fleet_with(**state)) == pytest.approx(expected)


def test_the_best_there_is_scores_exactly_one() -> None:
    assert score_of(fleet_with(cost=1, latency_ms=1000, success=(9, 9))) == 1.0


def test_an_added_score_lets_who_never_succeeds_win() -> None:
    """Known of ``declared``, and why ``adaptive`` multiplies."""
    free_and_failing = score_of(fleet_with(cost=1, latency_ms=1, success=(0, 50)))
    reliable = score_of(fleet_with(success=(50, 50)))

    assert free_and_failing == pytest.approx(0.80)
    assert reliable == pytest.approx(0.65)


def test_each_dimension_tells_raw_value_weight_and_share() -> None:
    fleet = fleet_with(cost=-2, latency_ms=3250, success=(3, 4), held=5)

    assert scored(fleet).dimensions == (
        Dimension("cost", -2.0, 1.0, 0.35, 0.35),
        Dimension("latency", 3250.0, 0.75, 0.35, 0.75 * 0.35),
        Dimension("success", 0.75, 0.75, 0.20, 0.75 * 0.20),
        Dimension("load", 5.0, 0.5, 0.10, 0.05),
    )


def test_what_is_not_known_stays_unknown() -> None:
    success = scored(fleet_with()).dimensions[2]

    assert success == Dimension("success", None, 0.5, 0.20, 0.10)


def test_an_easy_job_does_not_pay_for_a_hard_one() -> None:
    fleet = fleet_with()
    fleet.record.touch("a", "hard").ended(NOW, good=False, seconds=1.0)

    assert score_of(fleet) == pytest.approx(0.55)


UNIT = st.floats(0, 1)


@given(
    st.lists(UNIT, min_size=4, max_size=4),
    st.integers(0, 3),
    UNIT,
    st.lists(st.floats(0.01, 1), min_size=4, max_size=4),
)
def test_a_better_value_never_lowers_a_score(
    values: list[float], which: int, better: float, raw: list[float]
) -> None:
    weights = [one / sum(raw) for one in raw]
    improved = values.copy()
    improved[which] = max(values[which], better)

    assert of_values(improved, weights) >= of_values(values, weights)
    assert 0.0 <= of_values(values, weights) <= 1.0


def of_values(values: list[float], weights: list[float]) -> float:
    return weigh([value * weight for value, weight in zip(values, weights, strict=True)], 0.0, [])


SHARES = st.lists(UNIT, max_size=5)
FACTORS = st.lists(UNIT, max_size=3)


@given(SHARES, st.floats(-1, 1), FACTORS)
def test_no_bonus_and_no_factor_leads_outside_zero_to_one(
    shares: list[float], bonus: float, factors: list[float]
) -> None:
    assert 0.0 <= weigh(shares, bonus, factors) <= 1.0


@given(SHARES, FACTORS, st.floats(-1, 1), st.floats(-1, 1), UNIT, UNIT)
def test_a_better_bonus_or_factor_never_lowers_a_score(
    shares: list[float], factors: list[float], bonus: float, other: float, factor: float, another: float
) -> None:
    low, high = sorted((bonus, other))
    worse, better = sorted((factor, another))

    assert weigh(shares, low, [*factors, worse]) <= weigh(shares, high, [*factors, worse])
    assert weigh(shares, low, [*factors, worse]) <= weigh(shares, low, [*factors, better])


@pytest.mark.parametrize(
    ("seconds", "pool", "value"),
    [
        (4.0, 4.0, 0.5),
        (2.0, 4.0, 2 / 3),
        (12.0, 4.0, 0.25),
        (0.0, 4.0, 1.0),
        (4.0, 0.0, 0.0),
        (0.0, 0.0, 0.5),
        (None, 4.0, 0.5),
        (4.0, None, 0.5),
    ],
)
def test_a_time_is_seen_beside_the_pools_median(
    seconds: float | None, pool: float | None, value: float
) -> None:
    assert relative_value(seconds, pool) == pytest.approx(value)


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1e6))
def test_longer_is_never_better(one: float, other: float, pool: float) -> None:
    less, more = sorted((one, other))

    assert 0.0 <= relative_value(more, pool) <= 1.0
    assert relative_value(more, pool) <= relative_value(less, pool)


NUMBER = st.floats(-1e9, 1e9)


@given(NUMBER, NUMBER)
def test_more_is_never_better_for_cost_and_latency(one: float, other: float) -> None:
    less, more = sorted((one, other))

    assert 0.0 <= cost_value(more) <= cost_value(less) <= 1.0
    assert 0.0 <= latency_value(more) <= latency_value(less) <= 1.0


@given(st.integers(0, 500), st.integers(0, 500), st.integers(0, 200))
def test_more_load_is_never_better(one: int, other: int, slots: int) -> None:
    less, more = sorted((one, other))

    assert 0.0 <= load_value(more, slots) <= load_value(less, slots) <= 1.0


@given(NUMBER, NUMBER, st.integers(0, 12), st.integers(0, 9))
def test_no_declaration_scores_outside_zero_to_one(
    cost: float, latency_ms: float, held: int, right: int
) -> None:
    fleet = fleet_with(cost=cost, latency_ms=latency_ms, held=held, success=(right, 9))

    assert 0.0 <= score_of(fleet) <= 1.0


def test_own_weights_count_alone() -> None:
    fleet = fleet_with(cost=1, held=5)

    load_alone = RoutingPolicy(preset="declared", weights={"load": 1.0})
    half_and_half = RoutingPolicy(preset="declared", weights={"cost": 0.5, "load": 0.5})

    assert score_of(fleet, load_alone) == 0.5
    assert score_of(fleet, half_and_half) == 0.75
