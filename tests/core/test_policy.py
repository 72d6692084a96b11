"""Policies are data, and a wrong one is refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from reach_worker.core.policy import DIMENSIONS, PRESETS, RoutingPolicy


def test_declared_is_the_default() -> None:
    policy = RoutingPolicy()

    assert dict(policy.weight_table) == {"cost": 0.35, "latency": 0.35, "success": 0.20, "load": 0.10}
    assert (policy.name, policy.tie_break) == ("declared", "name")


@pytest.mark.parametrize("name", PRESETS)
def test_the_weights_of_a_preset_add_up(name: str) -> None:
    assert sum(PRESETS[name].values()) == pytest.approx(1.0)
    assert set(PRESETS[name]) <= set(DIMENSIONS)


def test_own_weights_take_the_place_of_the_presets() -> None:
    policy = RoutingPolicy(weights={"load": 0.25, "success": 0.75, "cost": 0.0})

    assert policy.name == "declared+weights"
    assert list(policy.weight_table.items()) == [("success", 0.75), ("load", 0.25)]


@given(st.permutations(DIMENSIONS))
def test_the_order_of_the_weights_changes_nothing(names: list[Any]) -> None:
    table = {"cost": 0.4, "latency": 0.3, "success": 0.2, "load": 0.1}
    policy = RoutingPolicy(weights={name: table[name] for name in names})

    assert list(policy.weight_table) == list(DIMENSIONS)
    assert policy == RoutingPolicy(weights=table)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"weights": {}}, "weights add up to 1, these to 0"),
        ({"weights": {"cost": 0.5}}, "weights add up to 1, these to 0.5"),
        ({"weights": {"cost": 1.5, "load": -0.5}}, "weights are between 0 and 1"),
        ({"weights": {"cost": float("nan")}}, "finite number"),
        ({"weights": {"speed": 1.0}}, "'cost', 'latency', 'success' or 'load'"),
        ({"preset": "best"}, "'declared'"),
        ({"tie_break": "first"}, "'name' or 'spread'"),
        ({"weight": {}}, "Extra inputs"),
    ],
)
def test_a_wrong_policy_is_refused(fields: dict[str, Any], error: str) -> None:
    with pytest.raises(ValidationError, match=error):
        RoutingPolicy(**fields)


def test_weights_may_be_rounded() -> None:
    third = 0.3333333
    policy = RoutingPolicy(weights={"cost": third, "latency": third, "success": third})

    assert sum(policy.weight_table.values()) == pytest.approx(1.0)
