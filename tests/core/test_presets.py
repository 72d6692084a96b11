"""Every preset in worked numbers, and the multipliers."""

from collections.abc import Mapping
from math import exp
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_worker.core.fleet import Fleet
from reach_worker.core.policy import PRESETS, RoutingPolicy
from reach_worker.core.presence import PresenceState
from reach_worker.core.routing import Decision, plan
from reach_worker.core.scoring import Scored
from tests.core.agents import CAPABILITY, NOW, ask, fleet_of, manifest, occupy, there
from tests.core.fleets import AGENT, fleet_from


def tried(
    fleet: Fleet,
    agent_id: str,
    right: int,
    of: int,
    *,
    seconds: float | None = None,
    capability: str = CAPABILITY,
    ago: float = 0.0,
) -> None:
    """So many of so many attempts were right, all of them ``ago`` seconds ago."""
    for number in range(of):
        fleet.record.touch(agent_id, capability).ended(NOW - ago, good=number < right, seconds=seconds)


def decide(fleet: Fleet, preset: Any, *, task: Mapping[str, Any] | None = None, **policy: Any) -> Decision:
    return plan(ask(**(task or {})), fleet, RoutingPolicy(preset=preset, **policy), NOW)


def scored(decision: Decision, agent_id: str = "a") -> Scored:
    candidate = next(one for one in decision.candidates if one.agent_id == agent_id)
    assert candidate.scored is not None
    return candidate.scored


def score_of(fleet: Fleet, preset: Any, agent_id: str = "a", **fields: Any) -> float:
    return scored(decide(fleet, preset, **fields), agent_id).score


# --------------------------------------------------------------------- declared


def free_and_failing_beside_reliable() -> Fleet:
    """``free``: free, instant, idle, always failing. ``sure``: cost 3, 5.5 s, idle, always right."""
    fleet = fleet_of(
        [
            manifest("free", offers={"cost": 1, "latency_ms": 1}),
            manifest("sure", offers={"cost": 3, "latency_ms": 5500}),
        ]
    )
    tried(fleet, "free", 0, 50, seconds=0.001)
    tried(fleet, "sure", 50, 50, seconds=5.5)
    return fleet


def test_declared_gives_the_best_there_is_exactly_one() -> None:
    fleet = fleet_of([manifest("a", offers={"cost": 1, "latency_ms": 1})])
    tried(fleet, "a", 9, 9)

    assert score_of(fleet, "declared") == 1.0


def test_declared_lets_who_always_fails_win() -> None:
    """0.35 + 0.35 + 0 + 0.10 against 0.35 · 0.5 + 0.35 · 0.5 + 0.20 + 0.10."""
    decision = decide(free_and_failing_beside_reliable(), "declared")

    assert scored(decision, "free").score == pytest.approx(0.80)
    assert scored(decision, "sure").score == pytest.approx(0.65)
    assert decision.agent_id == "free"


def test_adaptive_decides_that_case_the_other_way() -> None:
    """Next to nothing against (51 / 52)² · (0.6 + 0.25 e^(−5.5 / 10) + 0.15 · 0.5)."""
    decision = decide(free_and_failing_beside_reliable(), "adaptive", explore=0.0)

    assert scored(decision, "free").score < 1e-5
    assert scored(decision, "sure").score == pytest.approx(0.788031, abs=1e-6)
    assert decision.agent_id == "sure"


# --------------------------------------------------------------------- adaptive


def test_adaptive_with_a_known_posterior_wait_and_cost() -> None:
    """q: elsewhere (0 + 1) / (4 + 2) = 1/6 with mass 5, then 3 of 4 here: (5/6 + 3) / 9 = 0.425926.

    Wait: 2 s · (1 + 4/8) = 3 s, e^(−0.3) = 0.740818. Cost 2: (5 − 2) / 4 = 0.75.
    """
    fleet = fleet_of([manifest("a", offers={"cost": 2})])
    tried(fleet, "a", 3, 4, seconds=2.0)
    tried(fleet, "a", 0, 4, capability="elsewhere")
    occupy(fleet, "a", 4)

    parts = scored(decide(fleet, "adaptive"))

    q = (5 / 6 + 3) / 9
    assert [(part.name, part.raw, part.value) for part in parts.dimensions] == [
        ("base", None, 1.0),
        ("cost", 2.0, 0.75),
        ("speed", pytest.approx(3.0), pytest.approx(0.740818, abs=1e-6)),
    ]
    assert [(factor.name, factor.raw, factor.value) for factor in parts.factors] == [
        ("trust", pytest.approx(q), pytest.approx(q * q)),
        ("rejections", 0.0, 1.0),
    ]
    assert parts.score == pytest.approx(q * q * (0.6 + 0.25 * 0.740818 + 0.15 * 0.75), abs=1e-6)
    assert parts.score == pytest.approx(0.162855, abs=1e-6)


def test_adaptive_hopes_for_one_and_a_half_deviations_more_where_it_explores() -> None:
    """No record: q = 0.5, deviation d = √(0.25 / 3); 0.25 or (0.5 + 1.5 d)² times 0.6 + 0.25 e^(−0.55) + 0.075."""
    fleet = fleet_of([manifest("a")])
    parts = scored(decide(fleet, "adaptive"))
    rest = 0.6 + 0.25 * exp(-0.55) + 0.075

    assert parts.score == pytest.approx(0.25 * rest)
    assert parts.score == pytest.approx(0.204809, abs=1e-6)
    assert parts.optimistic == pytest.approx((0.5 + 1.5 * (0.25 / 3) ** 0.5) ** 2 * rest)
    assert scored(decide(fleet, "adaptive", explore=0.0)).optimistic == parts.score


def test_adaptive_waits_by_the_declaration_until_a_success_was_timed() -> None:
    fleet = fleet_of([manifest("a", offers={"latency_ms": 4000})])
    assert scored(decide(fleet, "adaptive")).dimensions[2].raw == 4.0

    tried(fleet, "a", 1, 1, seconds=1.5)

    assert scored(decide(fleet, "adaptive")).dimensions[2].raw == 1.5


# ----------------------------------------------------------------- reachability


def beats(fleet: Fleet, *held: int) -> None:
    """A heartbeat of agent ``a`` with so much under way at each."""
    for count in held:
        for lease in list(fleet.leases.by_dispatch):
            fleet.leases.release(lease)
        occupy(fleet, "a", count)
        fleet.smooth_load(fleet.agents["a"])


@pytest.mark.parametrize(
    ("held", "gone", "expected"),
    [
        ((), 0, 1.0),
        # 0.7 · 4/8
        ((4,), 0, 1.0 - 0.35),
        # 0.7 · 4/8 + 0.3 · 0.35
        ((4, 4), 0, 1.0 - 0.455),
        # 0.7 · 0 + 0.3 · 0.35
        ((4, 0), 0, 1.0 - 0.105),
        # one of two instances is there
        ((), 1, 0.5),
        ((4,), 1, 0.5 - 0.35),
        # one of four, 0.7 · 6/8 is more: never below 0
        ((6,), 3, 0.0),
    ],
)
def test_reachability_is_availability_less_the_smoothed_load(
    held: tuple[int, ...], gone: int, expected: float
) -> None:
    fleet = fleet_of([manifest("a")])
    for number in range(gone):
        there(fleet.agents["a"], instance_id=f"gone-{number}").state = PresenceState.DEAD
    beats(fleet, *held)

    assert score_of(fleet, "reachability") == pytest.approx(expected)


# --------------------------------------------------------------------- observed


def observed_pool() -> Fleet:
    """p95 of 2 s and 6 s: the pool's median is 4 s. ``a`` is right in 8 of 10, ``b`` always."""
    fleet = fleet_of([manifest("a", offers={"cost": 3}), manifest("b", offers={"cost": 5})])
    tried(fleet, "a", 8, 10, seconds=2.0)
    tried(fleet, "b", 10, 10, seconds=6.0)
    return fleet


def test_observed_sees_p95_beside_the_pools_median() -> None:
    """a: (0.35 · 0.8 + 0.25 · 4/6 + 0.20 · 0.5 + 0.20 · 1) · 0.8. b: 0.35 + 0.25 · 4/10 + 0 + 0.20."""
    decision = decide(observed_pool(), "observed")

    assert scored(decision, "a").score == pytest.approx((0.28 + 1 / 6 + 0.10 + 0.20) * 0.8)
    assert scored(decision, "b").score == pytest.approx(0.65)
    assert [part.value for part in scored(decision, "a").dimensions if part.name == "p95"] == [
        pytest.approx(2 / 3)
    ]


def test_observed_adds_an_agents_bonus_and_stays_below_one() -> None:
    decision = decide(observed_pool(), "observed", score_bonus={"a": -0.3, "b": 0.15, "c": 1.0})

    assert scored(decision, "a").score == pytest.approx((0.28 + 1 / 6 + 0.30 - 0.3) * 0.8)
    assert scored(decision, "b").score == pytest.approx(0.80)
    assert (scored(decision, "a").bonus, scored(decision, "b").bonus) == (-0.3, 0.15)
    assert score_of(observed_pool(), "observed", "b", score_bonus={"b": 1.0}) == 1.0
    assert score_of(observed_pool(), "observed", "b", score_bonus={"b": -1.0}) == 0.0


def test_observed_looks_ten_minutes_back() -> None:
    """Ten failures an hour ago weigh 10 e^(−6) = 0.0248 beside one success now."""
    fleet = fleet_of([manifest("a")])
    tried(fleet, "a", 0, 10, ago=3600)
    tried(fleet, "a", 1, 1)

    success = scored(decide(fleet, "observed")).dimensions[1]

    assert success.name == "recent_success"
    assert success.raw == pytest.approx(1 / (1 + 10 * exp(-6)))


def test_observed_without_any_record_is_in_the_middle() -> None:
    """0.35 · 0.5 + 0.25 · 0.5 + 0.20 · 0.5 + 0.20."""
    assert score_of(fleet_of([manifest("a")]), "observed") == pytest.approx(0.60)


# --------------------------------------------------------------------- balanced


@pytest.mark.parametrize(
    ("policy", "task", "near"),
    [
        ({}, {}, False),
        ({"region": "eu"}, {}, True),
        ({"region": "us"}, {}, False),
        ({"team": "red"}, {}, True),
        ({"team": "blue"}, {}, False),
        ({"region": "us", "team": "red"}, {}, True),
        ({}, {"session_id": "s"}, True),
        ({}, {"session_id": "other"}, False),
    ],
)
def test_balanced_with_affinity_by_region_team_and_session(
    policy: dict[str, Any], task: dict[str, Any], near: bool
) -> None:
    """0.4 · (1 − 2/8) + 0.3 · 3/4 + 0.2 · 0.5 (alone in its pool) = 0.625, and 0.1 for who is near."""
    fleet = fleet_of([manifest("a", region="eu", team="red")])
    occupy(fleet, "a", 2)
    for good in (True, True, True, False):
        fleet.record.touch("a", CAPABILITY).feedback.add(NOW, good=good)
    fleet.had_session("s", "a")

    assert score_of(fleet, "balanced", task=task, **policy) == pytest.approx(0.725 if near else 0.625)


def test_an_agent_that_tells_no_region_is_near_to_none() -> None:
    assert scored(decide(fleet_of([manifest("a")]), "balanced")).dimensions[-1].value == 0.0


def test_balanced_sees_p50_beside_the_pools_median() -> None:
    """p50 of 1, 3 and 5 s, median 3: 3/4, 3/6, 3/8. Idle, no feedback: 0.4 + 0.15 + 0.2 · that."""
    fleet = fleet_of([manifest(agent_id) for agent_id in "abcd"])
    for agent_id, seconds in (("a", 1.0), ("b", 3.0), ("c", 5.0)):
        tried(fleet, agent_id, 3, 3, seconds=seconds)
    decision = decide(fleet, "balanced")

    assert [scored(decision, agent_id).score for agent_id in "abcd"] == pytest.approx(
        [0.55 + 0.15, 0.55 + 0.1, 0.55 + 0.075, 0.55 + 0.1]
    )


# --------------------------------------------------------------------- semantic


@pytest.mark.parametrize(
    ("match", "right", "rejected", "expected"),
    [
        (None, 10, 0, 1.0),
        ({"a": 0.75}, 10, 0, 0.75),
        # below 90 % over a week
        ({"a": 0.75}, 8, 0, 0.60),
        # three of thirteen handed back
        ({"a": 0.75}, 10, 3, 0.75 * 0.05),
        ({"a": 0.75}, 8, 3, 0.60 * 0.05),
        ({"b": 0.75}, 10, 0, 0.0),
        ({"a": 1.5}, 10, 0, 1.0),
        ({"a": -0.5}, 10, 0, 0.0),
    ],
)
def test_semantic_is_match_times_behaviour(
    match: dict[str, float] | None, right: int, rejected: int, expected: float
) -> None:
    fleet = fleet_of([manifest("a")])
    tried(fleet, "a", right, 10)
    for _ in range(rejected):
        fleet.record.touch("a", CAPABILITY).rejected(NOW)

    assert score_of(fleet, "semantic", task={"match": match}) == pytest.approx(expected)


# ------------------------------------------------------------------ multipliers


def factors(fleet: Fleet, agent_id: str = "a", capability: str = CAPABILITY) -> dict[str, float]:
    decision = decide(fleet, "observed", task={"capability": capability})
    return {factor.name: factor.value for factor in scored(decision, agent_id).factors}


@pytest.mark.parametrize(
    ("right", "of", "factor"),
    [(0, 0, 1.0), (0, 4, 1.0), (0, 5, 0.8), (9, 10, 1.0), (8, 9, 0.8), (89, 100, 0.8), (90, 100, 1.0)],
)
def test_below_ninety_per_cent_over_a_week(right: int, of: int, factor: float) -> None:
    fleet = fleet_of([manifest("a")])
    tried(fleet, "a", right, of)

    assert factors(fleet) == {"low_success": factor, "rejections": 1.0}


@pytest.mark.parametrize(
    ("rejected", "of", "factor"), [(0, 10, 1.0), (4, 4, 1.0), (5, 5, 0.05), (2, 10, 1.0), (3, 10, 0.05)]
)
def test_above_twenty_per_cent_rejected(rejected: int, of: int, factor: float) -> None:
    fleet = fleet_of([manifest("a")])
    tried(fleet, "a", of - rejected, of - rejected)
    for _ in range(rejected):
        fleet.record.touch("a", CAPABILITY).rejected(NOW)

    assert factors(fleet) == {"low_success": 1.0, "rejections": factor}


def test_attempts_that_time_has_made_light_multiply_nothing() -> None:
    """Eight failures two weeks ago are 8 e^(−2) = 1.08 attempts; three days ago 8 e^(−3/7) = 5.2."""
    old, fresh = fleet_of([manifest("a")]), fleet_of([manifest("a")])
    tried(old, "a", 0, 8, ago=14 * 86_400)
    tried(fresh, "a", 0, 8, ago=3 * 86_400)

    assert factors(old)["low_success"] == 1.0
    assert factors(fresh)["low_success"] == 0.8


def test_an_easy_job_does_not_pay_for_a_hard_one() -> None:
    def able(agent_id: str) -> Any:
        return manifest(agent_id, capabilities=[{"id": "easy"}, {"id": "hard"}])

    fleet = fleet_of([able("a"), able("b")])
    tried(fleet, "a", 0, 10, capability="hard")
    for _ in range(10):
        fleet.record.touch("a", "hard").rejected(NOW)

    assert factors(fleet, "a", "hard") == {"low_success": 0.8, "rejections": 0.05}
    assert factors(fleet, "a", "easy") == {"low_success": 1.0, "rejections": 1.0}
    assert factors(fleet, "b", "hard") == {"low_success": 1.0, "rejections": 1.0}


def test_own_multipliers_take_the_place_of_the_presets() -> None:
    fleet = fleet_of([manifest("a", offers={"cost": 1, "latency_ms": 1})])
    tried(fleet, "a", 0, 10)

    assert score_of(fleet, "declared", multipliers=["low_success"]) == pytest.approx(0.80 * 0.8)
    assert score_of(fleet, "semantic", multipliers=[]) == 1.0


# ------------------------------------------------------------------- properties

PRESET = st.sampled_from(list(PRESETS))
BETTER: Mapping[str, Any] = {
    "cost": lambda one: {"cost": one["cost"] - 1},
    "latency": lambda one: {"latency_ms": one["latency_ms"] / 2},
    "held": lambda one: {"held": one["held"] // 2},
    "smoothed load": lambda one: {"smoothed_load": one["smoothed_load"] / 2},
    "instances": lambda _: {"gone": 0},
    "success": lambda one: {"tries": [True] * len(one["tries"])},
    "success elsewhere": lambda one: {"elsewhere": [True] * len(one["elsewhere"])},
    "service times": lambda one: {"seconds": [seconds / 2 for seconds in one["seconds"]]},
    "feedback": lambda one: {"feedback": [True] * len(one["feedback"])},
    "rejections": lambda _: {"rejected": 0},
    "region": lambda _: {"region": "eu"},
}
OPEN = {"tags": [], "callable_by": ["*"]}


@given(PRESET, st.dictionaries(st.sampled_from("abcd"), AGENT, min_size=1), st.sampled_from(list(BETTER)))
def test_a_better_value_never_lowers_a_score(preset: Any, fields: dict[str, Any], what: str) -> None:
    agent_id = min(fields)
    before = {name: {**one, **OPEN, "held": one["held"] % 8} for name, one in fields.items()}
    after = {**before, agent_id: {**before[agent_id], **BETTER[what](before[agent_id])}}

    worse, better = (score_of(fleet_from(one), preset, agent_id, region="eu") for one in (before, after))

    assert 0.0 <= worse <= better + 1e-12
    assert better <= 1.0


@given(PRESET, AGENT, st.floats(0, 1), st.floats(0, 1))
def test_a_closer_match_never_lowers_a_score(
    preset: Any, one: dict[str, Any], match: float, other: float
) -> None:
    fleet = fleet_from({"a": {**one, **OPEN, "held": 0}})
    low, high = sorted((match, other))

    assert score_of(fleet, preset, task={"match": {"a": low}}) <= score_of(
        fleet, preset, task={"match": {"a": high}}
    )


@given(PRESET, AGENT, st.floats(-1e9, 1e9), st.floats(-1e9, 1e9))
def test_clamping_never_extrapolates(preset: Any, one: dict[str, Any], cost: float, latency: float) -> None:
    def score(cost: float, latency_ms: float) -> float:
        agent = {**one, **OPEN, "held": 0, "cost": cost, "latency_ms": latency_ms}
        return score_of(fleet_from({"a": agent}), preset)

    assert score(5, 10_000) - 1e-12 <= score(cost, latency) <= score(1, 1_000) + 1e-12
