"""How likely every choice is, exactly; and that what is chosen keeps to it."""

from collections import Counter, defaultdict
from math import exp, fsum, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_worker.core.exploration import TEMPERATURE, exploration_draw, pick, probabilities
from reach_worker.core.fleet import Fleet
from reach_worker.core.gates import Ask
from reach_worker.core.policy import RoutingPolicy
from reach_worker.core.routing import Chosen, Decision, plan
from tests.core.agents import CAPABILITY, NOW, ask, fleet_of, manifest, occupy
from tests.core.fleets import ASK, FLEET, POLICY, Dice, Fields, fleet_from

SCORES = st.lists(st.floats(0, 1), min_size=1, max_size=7)
SHARE = st.floats(0, 0.5)


@pytest.mark.parametrize(
    ("optimistic", "exploration", "expected"),
    [
        ([], 0.08, []),
        ([0.3], 0.08, [1.0]),
        ([0.9, 0.8], 0.0, [1.0, 0.0]),
        ([0.5, 0.5], 0.08, [0.92 + 0.04, 0.04]),
        ([0.5, 0.5, 0.5, 0.5], 0.5, [0.5 + 0.125, 0.125, 0.125, 0.125]),
        # a lead of one temperature weighs e
        ([0.55, 0.5], 0.08, [0.92 + 0.08 * exp(1) / (exp(1) + 1), 0.08 / (exp(1) + 1)]),
        # who might be better than the best is explored the most
        ([0.5, 0.6], 0.08, [0.92 + 0.08 / (1 + exp(2)), 0.08 * exp(2) / (1 + exp(2))]),
    ],
)
def test_probabilities_in_worked_numbers(
    optimistic: list[float], exploration: float, expected: list[float]
) -> None:
    assert TEMPERATURE == 0.05
    assert probabilities(optimistic, exploration) == pytest.approx(expected)


@given(SCORES, SHARE)
def test_probabilities_add_up_to_one_and_none_is_below_zero(optimistic: list[float], share: float) -> None:
    found = probabilities(optimistic, share)

    assert len(found) == len(optimistic)
    assert fsum(found) == pytest.approx(1.0, abs=1e-12)
    assert all(one >= 0.0 for one in found)
    assert found[0] >= 1.0 - share
    assert share < 1e-9 or len(found) == 1 or all(one > 0.0 for one in found)


@given(SCORES, st.just(0.0) | st.floats(0.001, 0.5))
def test_over_all_draws_each_is_chosen_as_often_as_recorded(optimistic: list[float], share: float) -> None:
    """Each has one stretch of draws, so a grid misses at most one of its points at either end."""
    found, points = probabilities(optimistic, share), 1_000
    chosen = Counter(pick(found, share, (point + 0.5) / points)[0] for point in range(points))

    for place, one in enumerate(found):
        assert chosen[place] / points == pytest.approx(one, abs=2 / points)


@given(SCORES, st.floats(0.001, 0.5), st.floats(0, 1, exclude_max=True))
def test_only_draws_above_the_sure_share_explore(optimistic: list[float], share: float, draw: float) -> None:
    found = probabilities(optimistic, share)
    place, explored = pick(found, share, draw)

    assert 0 <= place < len(found)
    assert explored is (len(found) > 1 and draw >= 1.0 - share)
    assert explored or place == 0


def test_the_last_draw_has_an_agent_too() -> None:
    found = probabilities([0.31, 0.17, 0.11], 0.3)

    assert pick(found, 0.3, 1 - 2**-53) == (2, True)
    # shares that fall short of 1, as if by rounding
    assert pick([0.75, 0.125, 0.0625], 0.25, 0.99) == (2, True)


@given(st.text(max_size=20), st.text(max_size=20), st.integers(1, 9))
def test_a_draw_is_in_range_and_the_same_again(seed: str, task_id: str, attempt: int) -> None:
    draw = exploration_draw(seed, task_id, attempt)

    assert 0.0 <= draw < 1.0
    assert draw == exploration_draw(seed, task_id, attempt)


def test_draws_are_spread_evenly_and_differ_by_seed_task_and_attempt() -> None:
    draws = [exploration_draw("reach", f"t{number}", 1) for number in range(10_000)]
    tenths = Counter(int(draw * 10) for draw in draws)

    assert all(abs(tenths[tenth] - 1_000) < 4 * sqrt(900) for tenth in range(10))
    assert (
        len({exploration_draw(*one) for one in (("a", "t", 1), ("b", "t", 1), ("a", "u", 1), ("a", "t", 2))})
        == 4
    )
    assert exploration_draw("s", "日\udc80", 1) < 1.0


# ------------------------------------------------------------------ in decisions


@given(FLEET, ASK, POLICY)
def test_the_probabilities_of_a_decision_add_up(
    fields: dict[str, Fields], one: Ask, policy: RoutingPolicy
) -> None:
    decision = plan(one, fleet_from(fields), policy, NOW)
    chances = [candidate.probability for candidate in decision.candidates]

    assert all(chance >= 0.0 for chance in chances)
    assert all(candidate.eligible or candidate.probability == 0.0 for candidate in decision.candidates)
    if isinstance(decision.choice, Chosen):
        chosen = next(c for c in decision.candidates if c.agent_id == decision.agent_id)
        assert fsum(chances) == pytest.approx(1.0, abs=1e-12)
        assert decision.choice.probability == chosen.probability > 0.0
        assert decision.choice.explored is (
            policy.exploration > 0.0
            and sum(candidate.eligible for candidate in decision.candidates) > 1
            and decision.draw >= 1.0 - policy.exploration
        )
    else:
        assert fsum(chances) == 0.0


def mixed() -> Fleet:
    """A good agent, two equal ones, one that nobody knows, a poor one, one that is full."""
    costs = {"good": 2, "twin-1": 3, "twin-2": 3, "unknown": 1, "poor": 1, "full": 1}
    fleet = fleet_of(manifest(agent_id, offers={"cost": cost}) for agent_id, cost in costs.items())
    for agent_id, right, of in (("good", 19, 20), ("twin-1", 9, 10), ("twin-2", 9, 10), ("poor", 7, 10)):
        for number in range(of):
            track = fleet.record.touch(agent_id, CAPABILITY)
            track.ended(NOW, good=number < right, seconds=2.0)
    occupy(fleet, "full", 8)
    return fleet


@pytest.mark.parametrize(("explore", "tasks"), [(0.08, 20_000), (0.5, 4_000)])
def test_what_is_chosen_keeps_to_the_recorded_probabilities(explore: float, tasks: int) -> None:
    """Within four standard deviations; the seed is fixed, so it holds for ever or never."""
    fleet, policy = mixed(), RoutingPolicy(explore=explore)
    chosen: Counter[str | None] = Counter()
    expected: defaultdict[str | None, float] = defaultdict(float)
    variance: defaultdict[str | None, float] = defaultdict(float)
    explored = 0
    for number in range(tasks):
        decision = plan(ask(f"task-{number}"), fleet, policy, NOW)
        chosen[decision.agent_id] += 1
        explored += isinstance(decision.choice, Chosen) and decision.choice.explored
        for candidate in decision.candidates:
            chance = candidate.probability
            expected[candidate.agent_id] += chance
            variance[candidate.agent_id] += chance * (1 - chance)

    assert set(chosen) == {"good", "twin-1", "twin-2", "unknown", "poor"}
    for agent_id in chosen:
        assert abs(chosen[agent_id] - expected[agent_id]) <= 4 * sqrt(variance[agent_id])
    assert abs(explored - explore * tasks) <= 4 * sqrt(explore * (1 - explore) * tasks)


def test_equals_share_the_work_and_each_choice_tells_how_likely_it_was() -> None:
    """Four equals: who the hash puts first has 0.92 + 0.02, the others 0.02 each."""
    fleet = fleet_of(manifest(f"agent-{number}") for number in range(4))
    decisions = [plan(ask(f"t{number}"), fleet, RoutingPolicy(), NOW) for number in range(2_000)]
    chosen = Counter(decision.agent_id for decision in decisions)

    assert len(chosen) == 4
    assert all(400 < count < 600 for count in chosen.values())
    assert {round(probability_of(decision), 12) for decision in decisions} == {0.94, 0.02}


def probability_of(decision: Decision) -> float:
    assert isinstance(decision.choice, Chosen)
    return decision.choice.probability


def test_exploring_tells_a_lead_below_zero() -> None:
    fleet, policy = mixed(), RoutingPolicy(explore=0.5)
    for number in range(200):
        choice = plan(ask(f"t{number}"), fleet, policy, NOW).choice
        assert isinstance(choice, Chosen)
        assert choice.margin is not None
        assert (choice.margin > 0) is (choice.agent_id == "good")
        assert choice.explored or choice.agent_id == "good"


def test_another_attempt_and_another_seed_draw_anew() -> None:
    fleet = mixed()
    dice = Dice("attempts")
    task_ids = [f"t{dice.below(10**9)}" for _ in range(20)]

    def draws(seed: str, attempt: int) -> list[float]:
        policy = RoutingPolicy(seed=seed)
        return [plan(ask(task_id, attempt=attempt), fleet, policy, NOW).draw for task_id in task_ids]

    assert draws("x", 1) == draws("x", 1)
    assert not set(draws("x", 1)) & {*draws("x", 2), *draws("y", 1)}
