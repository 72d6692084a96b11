"""Every gate decides alone: with all others open it takes the better agent out, and with it open it does not."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from reach_worker.core.fleet import Fleet
from reach_worker.core.gates import OPEN, GateKind, judge
from reach_worker.core.manifest import Manifest
from reach_worker.core.policy import RoutingPolicy
from reach_worker.core.presence import PresenceState
from reach_worker.core.routing import Chosen, PayloadRefused, Unmatched, Wait, plan
from reach_worker.core.slots import SlotPolicy
from tests.core.agents import (
    CAPABILITY,
    NOW,
    ask,
    fleet_of,
    manifest,
    occupy,
    offer_of,
    open_breaker,
)

TEXT = {"type": "object", "required": ["q"], "properties": {"q": {"type": "string"}}}
FALLBACK = {"fallback": {CAPABILITY: ("a",)}, "fallback_after_ms": 5_000}


def silent(fleet: Fleet) -> None:
    instance = fleet.agents["a"].roster.instances["a-1"]
    instance.heard_at, instance.state = NOW - 12, PresenceState.SUSPECT


def broken(fleet: Fleet) -> None:
    open_breaker(fleet.agents["a"].breaker, NOW + 11.2 - 30)


def resting(fleet: Fleet) -> None:
    fleet.agents["a"].rests_until = NOW + 2.5


def paced(fleet: Fleet) -> None:
    fleet.agents["a"].pace.take(1, NOW - 0.25)


def busy(fleet: Fleet) -> None:
    occupy(fleet, "a", 8)


class Case(NamedTuple):
    """What closes just one gate of agent ``a``, the better of two. ``agent``, ``task``: fields; ``happens`` to it."""

    reason: str
    agent: Mapping[str, Any] = MappingProxyType({})
    task: Mapping[str, Any] = MappingProxyType({})
    happens: Callable[[Fleet], None] = lambda _: None
    other: Mapping[str, Any] = MappingProxyType({})
    policy: Mapping[str, Any] = MappingProxyType({})


CASES = {
    "capability": Case(
        "missing vision", task={"requires": ("vision",)}, other={"offers": {"tags": ["vision"], "cost": 5}}
    ),
    "schema": Case(
        'payload/q: 7 is not of type "string"', {"offers": {"input_schema": TEXT}}, {"payload": {"q": 7}}
    ),
    "tags": Case(
        "never handles vision",
        {"offers": {"tags": ["vision"]}, "mutually_exclusive_tags": ["vision"]},
        {"requires": ("vision",)},
        other={"offers": {"tags": ["vision"], "cost": 5}},
    ),
    "domain": Case(
        "not allowed in domain ops, only in none", task={"domain": "ops"}, other={"permission_domains": ["*"]}
    ),
    "caller": Case("not callable by alice, only by bob", {"callable_by": ["bob"]}, {"caller": "alice"}),
    "personal_data": Case(
        "does not ask for the personal data in payload/user/Email",
        task={"payload": {"user": {"Email": "x@y"}}},
        other={
            "pii": ["email"],
            "offers": {"cost": 5, "input_schema": {"properties": {"user": {"properties": {"email": {}}}}}},
        },
    ),
    "price": Case("costs 2, at most 1 is paid", {"price": {"per_task": 2}}, {"max_cost": 1.0}),
    "sent_to": Case("a person sent it to b", task={"to_agent": "b"}),
    "rejected": Case("said that it is not its own", task={"rejected_by": frozenset({"a"})}),
    "presence": Case("suspect, silent for 12 s", happens=silent),
    "breaker": Case("breaker open for 12 s more", happens=broken),
    "rested": Case("rate limited for 3 s more", happens=resting),
    "rate": Case("at its rate, 2 tasks per second, next in 0.3 s", {"rate": 2}, happens=paced),
    "slots": Case("at max concurrency 8/8", happens=busy),
    "fallback": Case("kept as a fallback for 5.0 s more", policy=FALLBACK),
    "excluded": Case("failed it, another agent can take it", task={"excluded": {"a": "failed it"}}),
}


def test_there_is_a_case_for_every_gate() -> None:
    assert set(CASES) == {verdict.gate for verdict in OPEN}


def decide(case: Case, agent: Mapping[str, Any], task: Mapping[str, Any], *, happens: bool) -> Any:
    fleet = fleet_of([manifest("a", **agent), manifest("b", **{"offers": {"cost": 5}, **case.other})])
    if happens:
        case.happens(fleet)
    policy = RoutingPolicy(preset="declared", **(case.policy if happens else {}))
    return plan(ask(**task), fleet, policy, NOW)


@pytest.mark.parametrize("gate", CASES)
def test_a_gate_alone_takes_the_better_agent_out(gate: str) -> None:
    case = CASES[gate]
    decision = decide(case, case.agent, case.task, happens=True)
    better, other = decision.candidates

    assert [(verdict.gate, verdict.reason) for verdict in better.closed] == [(gate, case.reason)]
    assert not other.closed
    assert decision.agent_id == "b"


@pytest.mark.parametrize("gate", CASES)
def test_with_the_gate_open_the_better_agent_has_it(gate: str) -> None:
    assert decide(CASES[gate], {}, {}, happens=False).agent_id == "a"


@pytest.mark.parametrize("gate", [gate for gate in CASES if gate not in ("fallback", "excluded")])
def test_busy_is_a_wait_and_may_not_is_none(gate: str) -> None:
    """Of the only agent: what time may change waits, what only a manifest may change does not."""
    case = CASES[gate]
    marks = [manifest("elsewhere", capability="other", pii=["email"])]
    fleet = fleet_of([manifest("a", **case.agent), *marks])
    case.happens(fleet)
    kind = next(verdict.kind for verdict in OPEN if verdict.gate == gate)

    choice = plan(ask(**case.task), fleet, RoutingPolicy(preset="declared"), NOW).choice

    assert not isinstance(choice, Chosen)
    if kind is GateKind.NOT_NOW:
        assert isinstance(choice, Wait)
    else:
        assert isinstance(choice, PayloadRefused if gate == "schema" else Unmatched)
    assert case.reason in choice.reason


# ------------------------------------------------------------------ personal data


def reasons(fleet: Fleet, payload: dict[str, Any]) -> list[str]:
    return [verdict.reason for verdict in judge(ask(payload=payload), offer_of(fleet, "a"), fleet, NOW)]


def test_while_no_manifest_marks_anything_nothing_is_personal() -> None:
    fleet = fleet_of([manifest("a")])
    one = ask(payload={"email": 1})

    assert judge(one, offer_of(fleet, "a"), fleet, NOW) == ()
    assert one.personal == {}


def test_the_agent_that_marks_a_field_must_ask_for_it_too() -> None:
    fleet = fleet_of([manifest("a", pii=["email"])])

    assert reasons(fleet, {"email": 1, "phone": 2}) == ["does not ask for the personal data in payload/email"]


def test_every_field_that_it_does_not_ask_for_is_named() -> None:
    schema: dict[str, Any] = {"properties": {"phone": {}}}
    fleet = fleet_of([manifest("a", pii=["email", "phone", "iban"], offers={"input_schema": schema})])

    assert reasons(fleet, {"email": 1, "phone": 2, "bank": [{"IBAN": 3}]}) == [
        "does not ask for the personal data in payload/email, payload/bank/0/IBAN"
    ]


def test_what_is_marked_follows_the_manifests() -> None:
    def marking(*names: str) -> Manifest:
        return manifest("b", capability="other", pii=list(names))

    fleet = fleet_of([manifest("a"), marking("email")])
    assert reasons(fleet, {"email": 1})
    fleet.register(marking())
    assert not reasons(fleet, {"email": 1})
    fleet.register(marking("email"))
    fleet.withdraw("b")
    assert not reasons(fleet, {"email": 1})


def test_a_payload_is_looked_through_once_for_a_fleet() -> None:
    fleet = fleet_of([manifest(agent_id, pii=["email"]) for agent_id in "ab"])
    one = ask(payload={"email": 1})

    for offer in fleet.capable(CAPABILITY):
        judge(one, offer, fleet, NOW)

    assert one.personal == {frozenset({"email"}): (("email", "/email"),)}
    assert one == ask(payload={"email": 1})


# ------------------------------------------------------------------------ rates


def rate_reason(fleet: Fleet, now: float = NOW) -> str | None:
    return next((v.reason for v in judge(ask(), offer_of(fleet, "a"), fleet, now) if v.gate == "rate"), None)


def take(fleet: Fleet, now: float = NOW) -> None:
    fleet.agents["a"].pace.take(1, now)


def test_a_rate_lets_tasks_through_evenly() -> None:
    fleet = fleet_of([manifest("a", rate=4)])
    taken = []
    for step in range(41):
        now = NOW + step * 0.05
        if rate_reason(fleet, now) is None:
            take(fleet, now)
            taken.append(round(now - NOW, 2))

    assert taken == [0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0]


def test_a_high_rate_may_be_used_in_bursts_of_a_tenth_of_a_second() -> None:
    fleet = fleet_of([manifest("a", rate=50)])
    assert fleet.free_slots(CAPABILITY, NOW) == 5
    for _ in range(5):
        assert rate_reason(fleet) is None
        take(fleet)

    assert rate_reason(fleet) == "at its rate, 50 tasks per second, next in 0.1 s"
    assert fleet.free_slots(CAPABILITY, NOW) == 0
    assert fleet.next_by_rate(NOW) == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("rate", "routers", "reason"),
    [
        (1, 1, "at its rate, 1 task per second, next in 1 s"),
        (0.1, 1, "at its rate, 0.1 tasks per second, next in 10 s"),
        (2, 4, "at its rate, 2 tasks per second shared by 4 routers, next in 2 s"),
    ],
)
def test_the_reason_says_when_the_next_may_go(rate: float, routers: int, reason: str) -> None:
    fleet = fleet_of([manifest("a", rate=rate)])
    fleet.routers = routers
    fleet.until_rate(fleet.agents["a"], NOW)
    take(fleet)

    assert rate_reason(fleet) == reason


def test_without_a_rate_nothing_is_counted() -> None:
    fleet = fleet_of([manifest("a")])
    for _ in range(100):
        take(fleet)

    assert rate_reason(fleet) is None
    assert fleet.next_by_rate(NOW) is None


def test_what_is_given_back_may_be_taken_again() -> None:
    fleet = fleet_of([manifest("a", rate=1)])
    take(fleet)
    fleet.agents["a"].pace.give_back()
    fleet.agents["a"].pace.give_back()

    assert rate_reason(fleet) is None
    take(fleet)
    assert rate_reason(fleet) is not None


def test_another_rate_counts_at_once_and_the_same_one_forgets_nothing() -> None:
    fleet = fleet_of([manifest("a", rate=0.1)])
    take(fleet)
    fleet.register(manifest("a", rate=0.1, version="2"))
    assert rate_reason(fleet) is not None

    fleet.register(manifest("a", rate=5))
    assert rate_reason(fleet) is None
    fleet.register(manifest("a"))
    assert (rate_reason(fleet), fleet.free_slots(CAPABILITY, NOW)) == (None, 8)


def test_the_next_by_rate_is_the_soonest_of_those_that_are_at_it() -> None:
    fleet = fleet_of([manifest("a", rate=1), manifest("b", rate=4), manifest("c", rate=9)])
    for agent_id in "ab":
        fleet.agents[agent_id].pace.take(1, NOW)

    assert fleet.next_by_rate(NOW) == 0.25
    assert fleet.next_by_rate(NOW + 0.5) == 0.5
    assert fleet.next_by_rate(NOW + 1) is None


def test_one_at_its_rate_is_busy_so_who_failed_the_task_waits_for_it() -> None:
    fleet = fleet_of([manifest("a"), manifest("b", rate=1)], slots=SlotPolicy())
    fleet.agents["b"].pace.take(1, NOW)

    choice = plan(ask(excluded={"a": "failed it"}), fleet, RoutingPolicy(preset="declared"), NOW).choice

    assert isinstance(choice, Wait)
    assert "failed it, another agent can take it" in choice.reason
