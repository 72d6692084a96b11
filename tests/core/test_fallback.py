"""Agents that are used only when no other can take a task in time."""

from typing import Any

import pytest

from reach_worker.core.fleet import Fleet
from reach_worker.core.gates import Ask
from reach_worker.core.policy import RoutingPolicy
from reach_worker.core.routing import Decision, PayloadRefused, Wait, plan
from tests.core.agents import CAPABILITY, NOW, ask, fleet_of, manifest, occupy, open_breaker

POLICY = RoutingPolicy(preset="declared", fallback={CAPABILITY: ("spare",)}, fallback_after_ms=5_000)


def decide(fleet: Fleet, one: Ask | None = None, policy: RoutingPolicy = POLICY) -> Decision:
    return plan(one or ask(), fleet, policy, NOW)


def with_spare(**first: Any) -> Fleet:
    """``spare`` would win every time: it is free and instant."""
    return fleet_of([manifest("first", **first), manifest("spare", offers={"cost": 1, "latency_ms": 1})])


def reason(decision: Decision, agent_id: str = "spare") -> list[str]:
    candidate = next(one for one in decision.candidates if one.agent_id == agent_id)
    return [verdict.reason for verdict in candidate.closed]


def test_without_a_rule_the_better_agent_has_it() -> None:
    assert decide(with_spare(), policy=RoutingPolicy(preset="declared")).agent_id == "spare"
    other = RoutingPolicy(preset="declared", fallback={"other": ("spare",)})
    assert decide(with_spare(), policy=other).agent_id == "spare"


def test_another_that_can_take_it_has_it() -> None:
    decision = decide(with_spare())

    assert decision.agent_id == "first"
    assert reason(decision) == ["kept as a fallback for 5.0 s more"]


@pytest.mark.parametrize(
    ("waited_s", "left"), [(0.0, "5.0"), (0.04, "5.0"), (1.25, "3.8"), (4.9, "0.1"), (4.999, "0.0")]
)
def test_it_waits_for_another_that_is_busy(waited_s: float, left: str) -> None:
    fleet = with_spare()
    occupy(fleet, "first", 8)

    decision = decide(fleet, ask(waited_s=waited_s))

    assert decision.choice == Wait(
        f"first: at max concurrency 8/8; spare: kept as a fallback for {left} s more"
    )


@pytest.mark.parametrize("waited_s", [5.0, 5.001, 600.0])
def test_when_it_has_waited_long_enough_the_fallback_may_have_it(waited_s: float) -> None:
    fleet = with_spare()
    occupy(fleet, "first", 8)

    assert decide(fleet, ask(waited_s=waited_s)).agent_id == "spare"


@pytest.mark.parametrize("why", ["busy", "open", "away", "resting"])
def test_whatever_keeps_the_others_may_pass_in_time(why: str) -> None:
    fleet = with_spare()
    match why:
        case "busy":
            occupy(fleet, "first", 8)
        case "open":
            open_breaker(fleet.agents["first"].breaker)
        case "away":
            fleet.agents["first"].roster.instances.clear()
        case _:
            fleet.agents["first"].rests_until = NOW + 1

    assert reason(decide(fleet)) == ["kept as a fallback for 5.0 s more"]
    assert decide(fleet, ask(waited_s=5.0)).agent_id == "spare"


def test_where_nobody_else_may_have_it_nothing_is_waited_for() -> None:
    assert decide(with_spare(callable_by=["bob"])).agent_id == "spare"
    assert decide(with_spare(), ask(rejected_by=frozenset({"first"}))).agent_id == "spare"
    assert decide(with_spare(), ask(to_agent="spare")).agent_id == "spare"
    assert decide(fleet_of([manifest("spare")])).agent_id == "spare"


def test_who_failed_the_task_steps_back_for_a_fallback_too() -> None:
    decision = decide(with_spare(), ask(excluded={"first": "timed out at attempt 1"}))

    assert decision.agent_id == "spare"
    assert reason(decision, "first") == ["timed out at attempt 1, another agent can take it"]


def test_where_both_have_failed_it_both_may_try_again() -> None:
    one = ask(excluded={"first": "failed at attempt 1", "spare": "failed at attempt 2"})

    assert reason(decide(with_spare(), one)) == []


def test_a_fallback_that_is_busy_too_is_waited_for_as_the_others_are() -> None:
    fleet = with_spare()
    occupy(fleet, "first", 8)
    occupy(fleet, "spare", 8)

    assert reason(decide(fleet)) == ["at max concurrency 8/8", "kept as a fallback for 5.0 s more"]
    assert decide(fleet, ask(waited_s=5.0)).choice == Wait("first, spare: at max concurrency 8/8")


def test_no_time_to_wait_means_equal_rights() -> None:
    policy = POLICY.model_copy(update={"fallback_after_ms": 0})

    assert decide(with_spare(), policy=policy).agent_id == "spare"


def test_a_fallback_is_held_back_from_exploring_too() -> None:
    policy = RoutingPolicy(fallback={CAPABILITY: ("spare",)}, explore=0.5)

    assert {decide(with_spare(), ask(f"t{number}"), policy).agent_id for number in range(100)} == {"first"}


def test_a_fallback_never_gets_what_it_may_not_have() -> None:
    schema = {"required": ["q"]}
    fleet = with_spare(offers={"input_schema": schema})
    fleet.register(manifest("spare", offers={"input_schema": schema}))

    assert isinstance(decide(fleet, ask(waited_s=60.0)).choice, PayloadRefused)
