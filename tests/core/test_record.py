"""A decision's record says the same as the decision, as a mapping and as JSON."""

from typing import Any

import orjson
import pytest

from reach_worker.core.policy import PRESETS, PresetName, RoutingPolicy
from reach_worker.core.record import DecisionRecord
from reach_worker.core.routing import Decision, plan
from tests.core.agents import CAPABILITY, NOW, ask, fleet_of, manifest


def decision(preset: PresetName = "adaptive", **asked: Any) -> Decision:
    fleet = fleet_of(
        [manifest("a"), manifest("b", callable_by=["somebody"]), manifest("c", max_concurrency=3)]
    )
    fleet.record.touch("a", CAPABILITY).ended(NOW - 5, good=False, seconds=None)
    fleet.record.touch("c", CAPABILITY).ended(NOW - 5, good=True, seconds=0.25)
    return plan(ask(**asked), fleet, RoutingPolicy(preset=preset), NOW)


@pytest.mark.parametrize("preset", PRESETS)
def test_it_says_what_the_decision_says(preset: PresetName) -> None:
    made = decision(preset)
    record = DecisionRecord(made)
    assert dict(record) == made.as_dict()
    assert len(record) == len(made.as_dict())
    assert orjson.loads(record.json()) == orjson.loads(orjson.dumps(made.as_dict()))
    assert orjson.loads(record.json()) == orjson.loads(record.json()), "also the second time"


def test_a_decision_without_candidates() -> None:
    made = decision(capability="no.such")
    assert orjson.loads(DecisionRecord(made).json()) == made.as_dict()


def test_what_the_shadow_would_have_chosen_is_beside_it() -> None:
    made, shadow = decision("declared"), decision("adaptive")
    record = DecisionRecord(made, shadow)
    assert record["shadow"] == shadow.summary()
    assert orjson.loads(record.json())["shadow"]["policy"] == "adaptive"


def test_one_score_serves_two_decisions_with_their_own_probabilities() -> None:
    """Scores are kept within a second; what differs from task to task must not be."""
    fleet = fleet_of([manifest("a"), manifest("b")])
    policy = RoutingPolicy(preset="adaptive")
    first, second = plan(ask(task_id="t1"), fleet, policy, NOW), plan(ask(task_id="t3"), fleet, policy, NOW)
    assert first.candidates[0].scored is second.candidates[0].scored
    for made in (first, second):
        told = {
            one["agent"]: one["probability"]
            for one in orjson.loads(DecisionRecord(made).json())["candidates"]
        }
        assert told == {one.agent_id: one.probability for one in made.candidates}
