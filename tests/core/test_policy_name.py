"""A policy's name in the log: the preset's where it decides as that, else with a hash of how it decides."""

import re
from typing import Any

import pytest

from reach_worker.core.policy import PRESETS, RoutingPolicy

ADAPTIVE = RoutingPolicy()


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_as_it_is_bears_its_own_name(preset: Any) -> None:
    assert RoutingPolicy(preset=preset).name == preset


@pytest.mark.parametrize(
    "fields",
    [
        {"weights": {"base": 0.5, "speed": 0.25, "cost": 0.25}},
        {"multipliers": ("trust",)},
        {"explore": 0.0},
        {"seed": "other"},
        {"tie_break": "name"},
        {"score_bonus": {"a": 0.1}},
        {"region": "eu"},
        {"fallback": {"log.query": ("b",)}},
        {"fallback_after_ms": 1},
    ],
)
def test_whatever_changes_a_decision_changes_the_name(fields: dict[str, Any]) -> None:
    name = RoutingPolicy(**fields).name

    assert re.fullmatch(r"adaptive#[0-9a-f]{4}", name)
    assert name == RoutingPolicy(**fields).name


@pytest.mark.parametrize(
    "fields",
    [
        {"weights": dict(ADAPTIVE.weight_table)},
        {"weights": {**ADAPTIVE.weight_table, "load": 0.0}},
        {"multipliers": ("rejections", "trust")},
        {"explore": 0.08, "tie_break": "spread"},
        {"shadow": {"preset": "declared"}},
    ],
)
def test_the_presets_own_values_written_out_change_nothing(fields: dict[str, Any]) -> None:
    assert RoutingPolicy(**fields).name == "adaptive"


def test_other_weights_are_another_name_in_any_order() -> None:
    one = RoutingPolicy(weights={"cost": 0.4, "load": 0.6})
    same = RoutingPolicy(weights={"load": 0.6, "cost": 0.4})
    other = RoutingPolicy(weights={"load": 0.5, "cost": 0.5})

    assert one.name == same.name != other.name


def test_ids_have_one_spelling() -> None:
    policy = RoutingPolicy(score_bonus={"Log-A": 0.1}, fallback={" Log.Query ": ("B",)})

    assert (policy.score_bonus, policy.fallback) == ({"log-a": 0.1}, {"log.query": ("b",)})
