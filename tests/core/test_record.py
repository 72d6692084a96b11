"""A decision's record says the same as the decision, as a mapping and as JSON."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from reach_worker.core.gates import OPEN, GateKind, Verdict
from reach_worker.core.policy import PRESETS, PresetName, RoutingPolicy
from reach_worker.core.record import FORMS, NEWEST, DecisionRecord, expanded
from reach_worker.core.routing import Decision, plan
from reach_worker.core.scoring import NAMES
from tests.core.agents import CAPABILITY, NOW, ask, fleet_of, manifest


def decision(preset: PresetName = "adaptive", **asked: Any) -> Decision:
    fleet = fleet_of(
        [manifest("a"), manifest("b", callable_by=["somebody"]), manifest("c", max_concurrency=3)]
    )
    fleet.record.touch("a", CAPABILITY).ended(NOW - 5, good=False, seconds=None)
    fleet.record.touch("c", CAPABILITY).ended(NOW - 5, good=True, seconds=0.25)
    return plan(ask(**asked), fleet, RoutingPolicy(preset=preset), NOW)


def stored(record: DecisionRecord) -> dict[str, Any]:
    """What is read back of it."""
    return expanded(orjson.loads(record.json()))


@pytest.mark.parametrize("preset", PRESETS)
def test_it_says_what_the_decision_says(preset: PresetName) -> None:
    made = decision(preset)
    record = DecisionRecord(made)
    assert dict(record) == made.as_dict()
    assert len(record) == len(made.as_dict())
    assert stored(record) == orjson.loads(orjson.dumps(made.as_dict()))
    assert list(stored(record)) == list(made.as_dict()), "in the same order"
    assert stored(record) == stored(record), "also the second time"


def test_it_is_asked_like_any_mapping() -> None:
    made = decision()
    record = DecisionRecord(made)
    assert {name: record.get(name) for name in record} == made.as_dict()
    assert (record.get("no such"), record.get("no such", 7)) == (None, 7)


def test_what_is_stored_is_less_than_half_of_what_it_says() -> None:
    made = decision()
    assert len(DecisionRecord(made).json()) * 2 < len(orjson.dumps(made.as_dict()))


def test_the_newest_form_knows_every_dimension_and_every_gate() -> None:
    """Else add a form: what was stored in this one must be read for ever."""
    assert FORMS[NEWEST] == (NAMES, tuple(verdict.gate for verdict in OPEN))


def test_what_an_older_version_stored_is_read_as_it_is() -> None:
    full = orjson.loads(orjson.dumps(decision().as_dict()))
    assert expanded(full) == full


@pytest.mark.parametrize("stored_in", [99, None, "1", []])
def test_a_form_that_is_not_known_is_said(stored_in: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        expanded({"form": stored_in, "candidates": []})


def test_a_closed_gate_keeps_its_reason() -> None:
    gates = {one["agent"]: one["gates"] for one in stored(DecisionRecord(decision()))["candidates"]}
    assert "somebody" in gates["b"]["caller"]
    assert gates["b"]["schema"] is True


def test_a_score_behind_a_closed_gate_is_kept_too() -> None:
    made = decision()
    first, *others = made.candidates
    verdict = Verdict("slots", GateKind.NOT_NOW, passed=False, reason="at max concurrency 1/1")
    made = replace(made, candidates=(replace(first, closed=(verdict,)), *others))
    assert stored(DecisionRecord(made)) == orjson.loads(orjson.dumps(made.as_dict()))


def test_a_decision_without_candidates() -> None:
    made = decision(capability="no.such")
    assert stored(DecisionRecord(made)) == made.as_dict()


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
        told = {one["agent"]: one["probability"] for one in stored(DecisionRecord(made))["candidates"]}
        assert told == {one.agent_id: one.probability for one in made.candidates}
