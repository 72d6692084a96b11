"""Policies are data, and a wrong one is refused."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from reach_worker.core.breaker import DECLARED_BREAKER, BreakerPolicy
from reach_worker.core.policy import DIMENSIONS, PRESETS, RoutingPolicy


def test_adaptive_is_the_default() -> None:
    policy = RoutingPolicy()

    assert dict(policy.weight_table) == {"base": 0.60, "speed": 0.25, "cost": 0.15}
    assert policy.multiplier_names == ("trust", "rejections")
    assert (policy.name, policy.ties, policy.exploration) == ("adaptive", "spread", 0.08)


def test_declared_adds_four_dimensions_and_explores_nothing() -> None:
    policy = RoutingPolicy(preset="declared")

    assert dict(policy.weight_table) == {"cost": 0.35, "latency": 0.35, "success": 0.20, "load": 0.10}
    assert policy.multiplier_names == ()
    assert (policy.name, policy.ties, policy.exploration) == ("declared", "name", 0.0)


@pytest.mark.parametrize("name", PRESETS)
def test_what_a_preset_adds_adds_up_to_one(name: Any) -> None:
    weights = PRESETS[name].weights

    assert math.fsum(weight for weight in weights.values() if weight > 0) == pytest.approx(1.0)
    assert set(weights) <= set(DIMENSIONS)
    assert list(weights) == [one for one in DIMENSIONS if one in weights]


def test_only_reachability_subtracts() -> None:
    subtracted = [
        (name, one)
        for name, preset in PRESETS.items()
        for one, weight in preset.weights.items()
        if weight < 0
    ]

    assert subtracted == [("reachability", "smoothed_load")]


@pytest.mark.parametrize("name", PRESETS)
def test_only_declared_keeps_its_own_breaker(name: Any) -> None:
    assert PRESETS[name].breaker == (DECLARED_BREAKER if name == "declared" else BreakerPolicy())


def test_own_weights_take_the_place_of_the_presets() -> None:
    policy = RoutingPolicy(preset="declared", weights={"load": 0.25, "success": 0.75, "cost": 0.0})

    assert policy.name.startswith("declared#")
    assert list(policy.weight_table.items()) == [("success", 0.75), ("load", 0.25)]
    assert policy.multiplier_names == ()


def test_what_is_left_out_is_the_presets() -> None:
    own = RoutingPolicy(multipliers=("low_success",), explore=0.0, tie_break="name")

    assert (own.multiplier_names, own.exploration, own.ties) == (("low_success",), 0.0, "name")
    assert own.weight_table == RoutingPolicy().weight_table


POSITIVE = [name for name in DIMENSIONS if name != "smoothed_load"]


@given(st.permutations(POSITIVE))
def test_the_order_of_the_weights_changes_nothing(names: list[Any]) -> None:
    table: dict[Any, float] = {name: 1 / len(POSITIVE) for name in POSITIVE}
    policy = RoutingPolicy(weights={name: table[name] for name in names})

    assert list(policy.weight_table) == POSITIVE
    assert policy == RoutingPolicy(weights=table)
    assert policy.name == RoutingPolicy(weights=table).name


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"weights": {}}, "weights add up to 1, these to 0"),
        ({"weights": {"cost": 0.5}}, "weights add up to 1, these to 0.5"),
        ({"weights": {"cost": 0.5, "load": 0.6}}, "weights add up to 1, these to 1.1"),
        ({"weights": {"cost": 0.99999}}, "weights add up to 1, these to 0.99999"),
        ({"weights": {"cost": 1.5, "load": -0.5}}, "weights are between 0 and 1"),
        ({"weights": {"reach": 0.5, "smoothed_load": 0.5}}, "smoothed_load speaks against an agent"),
        ({"weights": {"cost": float("nan")}}, "finite number"),
        ({"weights": {"speedy": 1.0}}, "'base', 'cost', 'latency'"),
        ({"preset": "best"}, "'declared'"),
        ({"tie_break": "first"}, "'name' or 'spread'"),
        ({"multipliers": ["luck"]}, "'trust', 'low_success' or 'rejections'"),
        ({"explore": 0.51}, "less than or equal to 0.5"),
        ({"explore": -0.01}, "greater than or equal to 0"),
        ({"score_bonus": {"a": 1.01}}, "a score bonus is between -1 and 1"),
        ({"score_bonus": {"a": -1.01}}, "a score bonus is between -1 and 1"),
        ({"score_bonus": {"a": float("nan")}}, "finite number"),
        ({"fallback_after_ms": -1}, "greater than or equal to 0"),
        ({"weight": {}}, "Extra inputs"),
    ],
)
def test_a_wrong_policy_is_refused(fields: dict[str, Any], error: str) -> None:
    with pytest.raises(ValidationError, match=error):
        RoutingPolicy(**fields)


def test_a_bonus_may_reach_from_minus_one_to_one() -> None:
    assert RoutingPolicy(score_bonus={"a": 1.0, "b": -1.0}).score_bonus == {"a": 1.0, "b": -1.0}


def test_weights_may_be_rounded() -> None:
    third = 0.3333333
    policy = RoutingPolicy(weights={"cost": third, "latency": third, "success": third})

    assert sum(policy.weight_table.values()) == pytest.approx(1.0)
