"""The decision: who gets a task, that it waits, or that nobody may have it; and the same again for the same question."""

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_worker.core.fleet import Fleet
from reach_worker.core.gates import OPEN, Ask
from reach_worker.core.identifier import identifier
from reach_worker.core.policy import DIMENSIONS, RoutingPolicy
from reach_worker.core.routing import (
    Chosen,
    Decision,
    PayloadRefused,
    Unmatched,
    Wait,
    plan,
    somebody_may,
    why_none_is_free,
)
from reach_worker.core.slots import SlotPolicy
from tests.core.agents import CAPABILITY, NOW, ask, fleet_of, manifest, occupy, open_breaker
from tests.core.fleets import ASK, FLEET, POLICY, fleet_from

DECLARED = RoutingPolicy(preset="declared")
SPREAD = RoutingPolicy(preset="declared", tie_break="spread")
SCHEMA = {"type": "object", "required": ["q"], "properties": {"q": {"type": "string"}}}


def decide(
    fleet: Fleet, one: Ask | None = None, policy: RoutingPolicy = DECLARED, now: float = NOW
) -> Decision:
    return plan(one or ask(), fleet, policy, now)


def equal_agents(count: int) -> Fleet:
    return fleet_of(manifest(f"agent-{number}") for number in range(count))


def closed_gates(decision: Decision, agent_id: str) -> list[str]:
    candidate = next(c for c in decision.candidates if c.agent_id == agent_id)
    return [verdict.gate for verdict in candidate.gates if not verdict.passed]


# ------------------------------------------------------------------ the best


def test_the_best_score_wins_by_its_lead() -> None:
    fleet = fleet_of([manifest("a", offers={"cost": 3}), manifest("b", offers={"cost": 1})])
    choice = decide(fleet).choice

    assert isinstance(choice, Chosen)
    assert choice.agent_id == "b"
    assert choice.score == pytest.approx(0.725)
    assert choice.margin == pytest.approx(0.175)


def test_who_is_alone_has_no_lead() -> None:
    choice = decide(equal_agents(1)).choice

    assert isinstance(choice, Chosen)
    assert choice.margin is None


def test_equals_go_by_name() -> None:
    fleet = fleet_of([manifest("b"), manifest("a"), manifest("c")])

    for number in range(20):
        decision = decide(fleet, ask(f"t{number}"))
        assert decision.agent_id == "a"
        assert isinstance(decision.choice, Chosen)
        assert decision.choice.margin == 0.0


def test_scores_that_differ_by_rounding_are_equal() -> None:
    fleet = fleet_of([manifest("b", offers={"cost": 3}), manifest("a", offers={"cost": 3 + 1e-10})])
    choice = decide(fleet).choice

    assert isinstance(choice, Chosen)
    assert choice.agent_id == "a"
    assert str(choice.margin) == "0.0"


def test_spread_shares_the_work_of_equals() -> None:
    fleet = equal_agents(4)
    got = Counter(decide(fleet, ask(f"t{number}"), SPREAD).agent_id for number in range(2_000))

    assert set(got) == {f"agent-{number}" for number in range(4)}
    assert all(400 < count < 600 for count in got.values())


def test_spread_sends_a_task_to_the_same_agent_again() -> None:
    fleet = equal_agents(7)

    for number in range(50):
        assert decide(fleet, ask(f"t{number}"), SPREAD) == decide(equal_agents(7), ask(f"t{number}"), SPREAD)


def test_spread_moves_only_the_tasks_of_an_agent_that_goes() -> None:
    """Rendezvous: the others keep what they had."""
    for number in range(200):
        before = decide(equal_agents(5), ask(f"t{number}"), SPREAD).agent_id
        after = decide(equal_agents(4), ask(f"t{number}"), SPREAD).agent_id
        assert before in {after, "agent-4"}


def test_spread_takes_any_task_id() -> None:
    assert decide(equal_agents(2), ask("日\udc80"), SPREAD).agent_id is not None


def test_spread_is_only_for_equals() -> None:
    fleet = fleet_of([manifest("a", offers={"cost": 3}), manifest("b", offers={"cost": 2})])

    assert {decide(fleet, ask(f"t{number}"), SPREAD).agent_id for number in range(50)} == {"b"}


# ----------------------------------------------------- the same question again


@given(FLEET.flatmap(lambda fields: st.tuples(st.just(fields), st.permutations(list(fields)))), ASK, POLICY)
def test_the_order_of_agents_and_fields_changes_nothing(
    both: tuple[dict[str, dict[str, Any]], list[str]], one: Ask, policy: RoutingPolicy
) -> None:
    fields, order = both
    other_order = {agent_id: dict(reversed(fields[agent_id].items())) for agent_id in order}

    assert decide(fleet_from(fields), one, policy) == decide(fleet_from(other_order), one, policy)


@given(FLEET, ASK, POLICY)
def test_the_order_of_a_policys_own_dictionaries_changes_nothing(
    fields: dict[str, Any], one: Ask, policy: RoutingPolicy
) -> None:
    weights = {name: weight for name, weight in policy.weight_table.items() if weight > 0}
    own: dict[str, Any] = {"weights": weights, "score_bonus": policy.score_bonus, "preset": policy.preset}
    turned: dict[str, Any] = {
        "score_bonus": dict(reversed(policy.score_bonus.items())),
        "weights": dict(reversed(weights.items())),
        "preset": policy.preset,
    }
    match = None if one.match is None else dict(reversed([*one.match.items()]))

    first = decide(fleet_from(fields), one, RoutingPolicy(**own))
    second = decide(fleet_from(fields), replace(one, match=match), RoutingPolicy(**turned))

    assert first == second


@given(FLEET, ASK, POLICY)
def test_two_plans_of_one_fleet_are_equal(fields: dict[str, Any], one: Ask, policy: RoutingPolicy) -> None:
    fleet = fleet_from(fields)

    assert decide(fleet, one, policy) == decide(fleet, one, policy)


@given(FLEET, ASK, POLICY)
def test_a_gated_agent_is_never_chosen_and_never_forgotten(
    fields: dict[str, Any], one: Ask, policy: RoutingPolicy
) -> None:
    decision = decide(fleet_from(fields), one, policy)

    assert [candidate.agent_id for candidate in decision.candidates] == sorted(fields)
    for candidate in decision.candidates:
        assert len(candidate.gates) == len(OPEN)
        assert candidate.eligible is all(verdict.passed for verdict in candidate.gates)
        assert candidate.eligible is (candidate.score is not None)
        assert all(verdict.passed or verdict.reason for verdict in candidate.gates)
        if candidate.agent_id == decision.agent_id:
            assert candidate.eligible
        if candidate.score is not None:
            assert 0.0 <= candidate.score <= 1.0
    best = max((c.score for c in decision.candidates if c.score is not None), default=None)
    if isinstance(decision.choice, Chosen):
        assert best is not None
        assert decision.choice.explored or decision.choice.score == pytest.approx(best)
    else:
        assert best is None
        assert decision.choice.reason


@given(FLEET, ASK, POLICY)
def test_a_decision_is_plain_data(fields: dict[str, Any], one: Ask, policy: RoutingPolicy) -> None:
    decision = decide(fleet_from(fields), one, policy)
    told = json.loads(json.dumps(decision.as_dict()))

    assert told["verdict"] == decision.verdict
    assert len(told["candidates"]) == len(fields)


def test_what_a_decision_tells() -> None:
    fleet = fleet_of([manifest("a", offers={"cost": 1}), manifest("b", callable_by=["bob"])])

    decision = decide(fleet)
    facts = decision.as_dict()["candidates"][0]["facts"]

    assert facts.keys() == {*DIMENSIONS, "trust", "low_success", "rejections", "hoped"}
    assert decision.as_dict() == {
        "task": "t1",
        "capability": CAPABILITY,
        "policy": "declared",
        "verdict": "chosen",
        "agent": "a",
        "score": pytest.approx(0.725),
        "margin": None,
        "probability": 1.0,
        "explored": False,
        "exploration": 0.0,
        "draw": decision.draw,
        "ties": "name",
        "candidates": [
            {
                "agent": "a",
                "score": pytest.approx(0.725),
                "probability": 1.0,
                "gates": dict.fromkeys([verdict.gate for verdict in OPEN], True),
                "dimensions": [
                    {"name": "cost", "raw": 1.0, "value": 1.0, "weight": 0.35, "share": 0.35},
                    {"name": "latency", "raw": 5500.0, "value": 0.5, "weight": 0.35, "share": 0.175},
                    {"name": "success", "raw": None, "value": 0.5, "weight": 0.2, "share": 0.1},
                    {"name": "load", "raw": 0.0, "value": 1.0, "weight": 0.1, "share": 0.1},
                ],
                "factors": [],
                "bonus": 0.0,
                "optimistic": pytest.approx(0.725),
                "facts": facts,
            },
            {
                "agent": "b",
                "score": None,
                "probability": 0.0,
                "gates": {
                    **dict.fromkeys([verdict.gate for verdict in OPEN], True),
                    "caller": "not callable by anonymous, only by bob",
                },
                "dimensions": [],
                "factors": [],
                "bonus": 0.0,
                "optimistic": None,
                "facts": {},
            },
        ],
    }


def test_a_decision_tells_every_multiplier_and_bonus() -> None:
    fleet = fleet_of([manifest("a", offers={"cost": 1})])
    told = decide(fleet, policy=RoutingPolicy(score_bonus={"a": 0.1})).as_dict()["candidates"][0]

    assert told["bonus"] == 0.1
    assert told["factors"] == [
        {"name": "trust", "raw": 0.5, "value": 0.25},
        {"name": "rejections", "raw": None, "value": 1.0},
    ]


def test_a_shadows_decision_is_kept_in_short() -> None:
    fleet = fleet_of([manifest("a", offers={"cost": 1}), manifest("b"), manifest("c", callable_by=["bob"])])

    assert decide(fleet).summary() == {
        "policy": "declared",
        "verdict": "chosen",
        "agent": "a",
        "score": pytest.approx(0.725),
        "margin": pytest.approx(0.175),
        "probability": 1.0,
        "explored": False,
        "scores": {"a": pytest.approx(0.725), "b": pytest.approx(0.55)},
    }


# ------------------------------------------------- those that failed it before


def failed(*agents: str) -> Ask:
    return ask(excluded=dict.fromkeys(agents, "failed at attempt 1"))


def test_who_failed_steps_back_for_another() -> None:
    fleet = fleet_of([manifest("a", offers={"cost": 1}), manifest("b", offers={"cost": 5})])
    decision = decide(fleet, failed("a"))

    assert decision.agent_id == "b"
    assert closed_gates(decision, "a") == ["excluded"]
    assert decision.candidates[0].closed[0].reason == "failed at attempt 1, another agent can take it"


def test_who_failed_steps_back_for_another_that_is_busy() -> None:
    fleet = equal_agents(2)
    occupy(fleet, "agent-1", 8)
    choice = decide(fleet, failed("agent-0")).choice

    assert choice == Wait(
        "agent-0: failed at attempt 1, another agent can take it; agent-1: at max concurrency 8/8"
    )


@pytest.mark.parametrize("why", ["dead", "open", "may not", "rejected"])
def test_who_failed_tries_again_where_nobody_else_can(why: str) -> None:
    fleet = fleet_of([manifest("a"), manifest("b", callable_by=["bob"] if why == "may not" else ["*"])])
    rejected = frozenset({"b"} if why == "rejected" else ())
    if why == "dead":
        fleet.agents["b"].roster.instances.clear()
    if why == "open":
        open_breaker(fleet.agents["b"].breaker)

    decision = decide(fleet, ask(excluded={"a": "failed at attempt 1"}, rejected_by=rejected))

    assert decision.agent_id == "a"
    assert closed_gates(decision, "a") == []


def test_the_only_agent_tries_again() -> None:
    assert decide(equal_agents(1), failed("agent-0")).agent_id == "agent-0"


def test_where_all_have_failed_all_may_try_again() -> None:
    fleet = fleet_of([manifest("a", offers={"cost": 5}), manifest("b", offers={"cost": 1})])

    assert decide(fleet, failed("a", "b")).agent_id == "b"


def test_who_rejected_a_task_never_gets_it_again() -> None:
    fleet = fleet_of([manifest("a")])
    one = ask(excluded={"a": "rejected at attempt 1"}, rejected_by=frozenset({"a"}))

    assert decide(fleet, one).choice == Unmatched("a: said that it is not its own")


def test_an_agent_that_a_person_chose_gets_it_though_it_failed() -> None:
    fleet = equal_agents(3)

    assert decide(fleet, ask(to_agent="agent-2", excluded={"agent-2": "failed"})).agent_id == "agent-2"


# ----------------------------------------------------- nobody now, nobody ever


def test_busy_is_a_wait_with_each_ones_reason() -> None:
    fleet = equal_agents(3)
    occupy(fleet, "agent-0", 8)
    fleet.agents["agent-1"].rests_until = NOW + 7
    open_breaker(fleet.agents["agent-2"].breaker)

    assert decide(fleet).choice == Wait(
        "agent-0: at max concurrency 8/8; agent-1: rate limited for 7 s more; "
        "agent-2: breaker open for 30 s more"
    )


def test_away_is_a_wait() -> None:
    fleet = equal_agents(1)
    fleet.agents["agent-0"].roster.instances.clear()

    assert decide(fleet).choice == Wait("agent-0: pending, no instance is known")


def test_a_wait_tells_only_of_those_who_may() -> None:
    fleet = fleet_of([manifest("a", callable_by=["bob"]), manifest("b")])
    occupy(fleet, "b", 8)

    assert decide(fleet).choice == Wait("b: at max concurrency 8/8")


def test_what_no_manifest_allows_is_unmatched() -> None:
    fleet = fleet_of([manifest("a", callable_by=["bob"]), manifest("b", offers={"tags": ["vision"]})])
    choice = decide(fleet, ask(requires=("audio",))).choice

    assert choice == Unmatched("a: missing audio, not callable by anonymous, only by bob; b: missing audio")


@pytest.mark.parametrize(
    ("capability", "reason"),
    [
        ("log.qurey", "no known agent has the capability 'log.qurey', did you mean 'log.query'?"),
        ("zzz", "no known agent has the capability 'zzz'"),
        ("", "only an intent is given: routing by meaning is not part of this version, name a capability"),
    ],
)
def test_what_nobody_offers_is_unmatched(capability: str, reason: str) -> None:
    decision = decide(equal_agents(1), ask(capability=capability))

    assert decision.choice == Unmatched(reason)
    assert decision.candidates == ()
    assert decision.as_dict()["reason"] == reason


def test_an_agent_that_does_not_exist_is_unmatched() -> None:
    assert decide(equal_agents(1), ask(to_agent="z")).choice == Unmatched("agent-0: a person sent it to z")


def test_a_payload_that_fits_nobody_is_refused_with_its_place() -> None:
    fleet = fleet_of(
        [manifest("a", offers={"input_schema": SCHEMA}), manifest("b", offers={"input_schema": SCHEMA})]
    )

    assert decide(fleet, ask(payload={"q": 7})).choice == PayloadRefused(
        'a, b: payload/q: 7 is not of type "string"'
    )


def test_a_payload_that_fits_somebody_is_no_fault() -> None:
    fleet = fleet_of([manifest("a", offers={"input_schema": SCHEMA}), manifest("b")])
    assert decide(fleet).agent_id == "b"

    occupy(fleet, "b", 8)
    assert isinstance(decide(fleet).choice, Wait)


def test_a_payload_that_fits_only_those_who_may_not_is_unmatched() -> None:
    fleet = fleet_of([manifest("a", offers={"input_schema": SCHEMA}), manifest("b", callable_by=["bob"])])

    assert isinstance(decide(fleet).choice, Unmatched)


def test_reasons_stay_readable_in_a_large_fleet() -> None:
    slots = SlotPolicy(in_flight=10_000)
    fleet = fleet_of((manifest(f"agent-{number}") for number in range(100)), slots=slots)
    for number in range(100):
        occupy(fleet, f"agent-{number}", 8)
    busy = decide(fleet).choice
    for number in range(100):
        fleet.agents[f"agent-{number}"].rests_until = NOW + number + 1
    resting = decide(fleet).choice

    assert busy == Wait("agent-0, agent-1, agent-10, agent-11, agent-12 and 95 more: at max concurrency 8/8")
    assert isinstance(resting, Wait)
    assert resting.reason.endswith("; and 95 reasons more")
    assert len(resting.reason) < 600


@given(FLEET, ASK, st.sampled_from([CAPABILITY, "Log.Query", "a/b", "#", "", "x" * 200, "\ufdfa" * 50]))
def test_only_a_known_capability_is_waited_for(fields: dict[str, Any], one: Ask, capability: str) -> None:
    """What waits gets a lane, a queue of that name: so it is one that a manifest may have."""
    fleet = fleet_from(fields)
    decision = decide(fleet, ask(capability=capability, requires=one.requires, to_agent=one.to_agent))

    if isinstance(decision.choice, Wait | Chosen):
        assert identifier(capability) == capability == CAPABILITY


@pytest.mark.parametrize(
    ("choice", "verdict"),
    [
        (Chosen("a", 1.0, None, 1.0, explored=False), "chosen"),
        (Wait("w"), "wait"),
        (Unmatched("u"), "unmatched"),
        (PayloadRefused("p"), "payload_refused"),
    ],
)
def test_each_choice_has_a_word(choice: Any, verdict: str) -> None:
    decision = Decision("t", "c", "declared", choice, ())

    assert decision.verdict == decision.as_dict()["verdict"] == verdict
    assert (decision.agent_id is not None) is (verdict == "chosen")


# ------------------------------------------------------------------- the probe


def test_of_a_hundred_plans_as_the_cool_down_ends_one_goes() -> None:
    fleet = equal_agents(1)
    agent = fleet.agents["agent-0"]
    open_breaker(agent.breaker)
    went = 0
    for number in range(100):
        decision = decide(fleet, ask(f"t{number}"), now=NOW + 30)
        if isinstance(decision.choice, Chosen):
            agent.breaker.take_probe(f"d{number}", NOW + 30)
            went += 1

    assert went == 1


def test_an_open_agent_is_waited_for_and_loses_no_attempt() -> None:
    fleet = equal_agents(1)
    open_breaker(fleet.agents["agent-0"].breaker)
    one = ask()

    assert decide(fleet, one, now=NOW + 29).choice == Wait("agent-0: breaker open for 1 s more")
    assert decide(fleet, one, now=NOW + 30).agent_id == "agent-0"


# ---------------------------------------------- why nobody takes anything at all


def test_while_somebody_is_free_there_is_no_reason_whatever_a_task_may_need() -> None:
    fleet = fleet_of([manifest("a", offers={"input_schema": SCHEMA}), manifest("b")])
    occupy(fleet, "b", 8)
    assert why_none_is_free(CAPABILITY, fleet, NOW) == ""


def test_while_nobody_is_free_each_says_why() -> None:
    fleet = fleet_of([manifest("a", offers={"input_schema": SCHEMA}), manifest("b")])
    open_breaker(fleet.agents["a"].breaker)
    occupy(fleet, "b", 8)
    assert why_none_is_free(CAPABILITY, fleet, NOW) == (
        "a: breaker open for 30 s more; b: at max concurrency 8/8"
    )


def test_where_nobody_offers_it_that_is_the_reason() -> None:
    assert why_none_is_free("x.y", fleet_of([manifest("a")]), NOW).startswith("no known agent has")


@given(FLEET, ASK, POLICY)
def test_who_may_have_it_and_who_is_free_tell_what_a_plan_would_say(
    fields: dict[str, Any], one: Ask, policy: RoutingPolicy
) -> None:
    fleet = fleet_from(fields)
    choice = plan(one, fleet, policy, NOW).choice

    assert somebody_may(one, fleet, NOW) is not isinstance(choice, Unmatched | PayloadRefused)
    if why_none_is_free(one.capability, fleet, NOW):
        assert not isinstance(choice, Chosen)


def test_where_all_breakers_are_open_it_says_who_is_asked_first() -> None:
    fleet = fleet_of([manifest("a"), manifest("b")])
    for agent_id in ("a", "b"):
        open_breaker(fleet.agents[agent_id].breaker)
    assert why_none_is_free(CAPABILITY, fleet, NOW).startswith(
        "all 2 breakers are open, a is asked first, in 30 s; "
    )
