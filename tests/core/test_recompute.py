"""A decision can be worked out again from its record alone."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from reach_worker.core.policy import RoutingPolicy
from reach_worker.core.recompute import Recomputed, recompute, recomputed_score
from reach_worker.core.routing import Chosen, Decision, plan
from tests.core.agents import NOW, ask, fleet_of, manifest
from tests.core.fleets import Dice, rolled_ask, rolled_fleet, rolled_policy


def decided(number: int) -> Decision:
    dice = Dice(f"recompute-{number}")
    return plan(rolled_ask(dice, f"task-{number}"), rolled_fleet(dice), rolled_policy(dice), NOW)


def recorded(decision: Decision) -> dict[str, Any]:
    """As the reach log keeps it."""
    told: dict[str, Any] = orjson.loads(orjson.dumps(decision.as_dict()))
    return told


def test_a_thousand_recorded_decisions_are_worked_out_again() -> None:
    seen: Counter[str] = Counter()
    for number in range(1_000):
        decision = decided(number)
        record = recorded(decision)
        if isinstance(decision.choice, Chosen):
            assert recompute(record) == Recomputed(decision.choice.agent_id, decision.choice.probability)
            seen["explored"] += decision.choice.explored
            seen["tied"] += decision.choice.margin == 0.0
        else:
            assert recompute(record) == Recomputed(None, 0.0)
        for candidate in record["candidates"]:
            if candidate["score"] is not None:
                assert recomputed_score(candidate) == candidate["score"]
        seen[decision.verdict] += 1

    assert seen["chosen"] > 700
    assert min(seen["explored"], seen["tied"], seen["wait"]) > 30


def hide(record: dict[str, Any]) -> dict[str, Any]:
    """What the choice was, and all that follows from the rest, is taken out."""
    for name in ("agent", "score", "margin", "probability", "explored", "verdict", "capability", "policy"):
        record.pop(name, None)
    for candidate in record["candidates"]:
        for name in ("score", "probability", "facts"):
            del candidate[name]
        for part in candidate["dimensions"]:
            del part["share"], part["raw"]
    return record


def test_the_recorded_choice_is_not_looked_at() -> None:
    for number in range(100):
        decision = decided(number)

        assert recompute(hide(recorded(decision))).agent_id == decision.agent_id


def two() -> dict[str, Any]:
    fleet = fleet_of([manifest("a", offers={"cost": 1}), manifest("b", offers={"cost": 5})])
    return recorded(plan(ask("t"), fleet, RoutingPolicy(preset="declared"), NOW))


def better(record: dict[str, Any]) -> None:
    record["candidates"][1]["dimensions"][0]["value"] = 9.0


def closed(record: dict[str, Any]) -> None:
    record["candidates"][0]["gates"]["slots"] = "at max concurrency 8/8"


def multiplied(record: dict[str, Any]) -> None:
    record["candidates"][0]["factors"] = [{"name": "rejections", "raw": 0.5, "value": 0.05}]


def bonus(record: dict[str, Any]) -> None:
    record["candidates"][0]["bonus"] = -1.0


@pytest.mark.parametrize("change", [better, closed, multiplied, bonus])
def test_every_part_of_the_record_counts(change: Callable[[dict[str, Any]], None]) -> None:
    record = {**two(), "exploration": 0.0}
    assert recompute(record) == Recomputed("a", 1.0)

    change(record)

    assert recompute(record) == Recomputed("b", 1.0)


def test_the_draw_counts() -> None:
    record = {**two(), "exploration": 0.5, "ties": "name"}
    for candidate in record["candidates"]:
        candidate["optimistic"] = 0.7

    assert recompute({**record, "draw": 0.74}) == Recomputed("a", 0.75)
    assert recompute({**record, "draw": 0.76}) == Recomputed("b", 0.25)


def test_a_record_that_lacks_a_part_is_refused() -> None:
    record = two()
    del record["draw"]

    with pytest.raises(KeyError, match="draw"):
        recompute(record)
