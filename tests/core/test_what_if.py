"""What another policy would have done, and how well: worked out from logged decisions alone."""

from typing import Any

import orjson
import pytest

from reach_worker.core.exploration import exploration_draw
from reach_worker.core.fleet import Fleet
from reach_worker.core.gates import Ask
from reach_worker.core.policy import RoutingPolicy
from reach_worker.core.routing import plan
from reach_worker.core.what_if import THIN, Logged, choose_again, compare
from tests.core.agents import CAPABILITY, NOW, fleet_of, manifest

RATES = {"cheap": 0.85, "good": 0.95}


def fleet() -> Fleet:
    found = fleet_of(
        [manifest("cheap", offers={"cost": 1}), manifest("good", offers={"cost": 4})], capacity=1000
    )
    for agent_id, rate in RATES.items():
        for number in range(40):
            found.record.touch(agent_id, CAPABILITY).ended(NOW, good=number < 40 * rate, seconds=1.0)
    return found


def log(policy: RoutingPolicy, decisions: int) -> list[Logged]:
    """Decisions of a policy as the store has them, each with an end drawn from its agent's true rate."""
    agents = fleet()
    logged = []
    for number in range(decisions):
        decision = plan(Ask(f"t{number}", CAPABILITY, {}), agents, policy, NOW)
        record: dict[str, Any] = orjson.loads(orjson.dumps(decision.as_dict()))
        logged.append(Logged(record, exploration_draw("ends", f"t{number}", 1) < RATES[record["agent"]]))
    return logged


@pytest.mark.parametrize("preset", ["adaptive", "declared", "observed", "balanced", "reachability"])
def test_choice_from_the_record_is_the_choice_of_the_policy(preset: Any) -> None:
    live, other = RoutingPolicy(preset="declared"), RoutingPolicy(preset=preset)
    agents = fleet()
    record = plan(Ask("t1", CAPABILITY, {}), agents, live, NOW).as_dict()

    best_first, scores, shares = choose_again(record, other)

    decided = plan(Ask("t1", CAPABILITY, {}), agents, other, NOW)
    assert scores == {c.agent_id: pytest.approx(c.score) for c in decided.candidates}
    assert shares == {c.agent_id: pytest.approx(c.probability) for c in decided.candidates}
    assert best_first[0] == max(scores, key=lambda agent_id: scores[agent_id])


def test_same_policy_differs_nowhere_but_where_it_explored() -> None:
    policy = RoutingPolicy(explore=0.0)
    result = compare(log(policy, 200), policy)

    assert (result.decisions, result.comparable, result.judged, result.differing) == (200, 200, 200, 0)
    assert result.estimate is not None
    assert result.estimate.rate == pytest.approx(result.logged_rate)
    assert result.effective == pytest.approx(200)


def test_estimate_finds_the_rate_of_the_agent_that_the_other_policy_prefers() -> None:
    """The live policy explores half of the time: enough to judge one that always takes the cheap agent."""
    live = RoutingPolicy(preset="adaptive", explore=0.5)
    always_cheap = RoutingPolicy(weights={"cost": 1.0}, multipliers=(), explore=0.0)

    result = compare(log(live, 4000), always_cheap)

    assert result.differing > 1000
    assert result.estimate is not None
    assert abs(result.estimate.rate - RATES["cheap"]) < 4 * result.estimate.error
    assert result.estimate.effective < result.judged


def test_thin_overlap_states_no_estimate() -> None:
    live = RoutingPolicy(preset="adaptive", explore=0.0)
    always_cheap = RoutingPolicy(weights={"cost": 1.0}, multipliers=(), explore=0.0)

    result = compare(log(live, 500), always_cheap)

    assert result.differing == 500
    assert result.estimate is None
    assert result.effective < THIN
    assert len(result.examples) == 20
    assert result.examples[0].other == "cheap"


def test_records_without_the_facts_are_counted_and_left_out() -> None:
    logged = log(RoutingPolicy(), 3)
    old = {**logged[0].record, "candidates": [{"agent": "good", "score": 0.5}]}

    result = compare([Logged(old, None), *logged[1:]], RoutingPolicy())

    assert (result.decisions, result.comparable) == (3, 2)


def test_nothing_logged_says_nothing() -> None:
    result = compare([], RoutingPolicy())

    assert (result.logged_rate, result.estimate, result.effective) == (None, None, 0.0)
