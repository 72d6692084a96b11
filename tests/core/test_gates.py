"""Gates: each one decides alone, with a reason that a person understands."""

from collections.abc import Callable
from typing import Any

import pytest

from reach_worker.core.fleet import Fleet
from reach_worker.core.gates import GATES, OPEN, Ask, GateKind, Verdict, all_verdicts, excluded, judge
from reach_worker.core.manifest import Manifest
from reach_worker.core.presence import PresenceState
from reach_worker.core.slots import SlotPolicy
from tests.core.agents import (
    CAPABILITY,
    NOW,
    ask,
    beat,
    fleet_of,
    manifest,
    occupy,
    offer_of,
    open_breaker,
    there,
)

MAY_NOT, NOT_NOW = GateKind.MAY_NOT, GateKind.NOT_NOW
SCHEMA = {"type": "object", "required": ["q"], "properties": {"q": {"type": "string"}}}


def verdicts(fleet: Fleet, one: Ask, now: float = NOW) -> list[tuple[str, GateKind, str]]:
    found = judge(one, offer_of(fleet, "a"), fleet, now)
    assert not any(verdict.passed for verdict in found)
    return [(verdict.gate, verdict.kind, verdict.reason) for verdict in found]


def test_an_agent_that_is_there_may_have_a_plain_task() -> None:
    assert verdicts(fleet_of([manifest("a")]), ask()) == []


@pytest.mark.parametrize(
    ("agent", "task", "gate", "reason"),
    [
        ({}, {"requires": ("vision",)}, "capability", "missing vision"),
        (
            {"offers": {"tags": ["ocr"]}},
            {"requires": ("vision", "ocr", "audio")},
            "capability",
            "missing vision, audio",
        ),
        (
            {"offers": {"input_schema": SCHEMA}},
            {"payload": {"q": 7}},
            "schema",
            'payload/q: 7 is not of type "string"',
        ),
        ({"offers": {"input_schema": SCHEMA}}, {}, "schema", 'payload: "q" is a required property'),
        (
            {"offers": {"tags": ["vision"]}, "mutually_exclusive_tags": ["vision", "audio"]},
            {"requires": ("vision",)},
            "tags",
            "never handles vision",
        ),
        ({}, {"domain": "ops"}, "domain", "not allowed in domain ops, only in none"),
        (
            {"permission_domains": ["dev", "hr"]},
            {"domain": "ops"},
            "domain",
            "not allowed in domain ops, only in dev, hr",
        ),
        ({"callable_by": ["bob"]}, {"caller": "alice"}, "caller", "not callable by alice, only by bob"),
        ({"callable_by": ["bob"]}, {}, "caller", "not callable by anonymous, only by bob"),
        ({"callable_by": []}, {"caller": "alice"}, "caller", "not callable by alice, only by nobody"),
        ({"callable_by": ["Alice"]}, {"caller": "alice"}, "caller", "not callable by alice, only by Alice"),
        ({"price": {"per_task": 0.05}}, {"max_cost": 0.01}, "price", "costs 0.05, at most 0.01 is paid"),
        (
            {"price": {"per_1k_tokens": 0.001}},
            {"max_cost": 9.0},
            "price",
            "charges by tokens, so nobody can say that it stays within 9",
        ),
        ({}, {"to_agent": "b"}, "sent_to", "a person sent it to b"),
        ({}, {"rejected_by": frozenset({"a"})}, "rejected", "said that it is not its own"),
    ],
)
def test_who_may_not_have_it(agent: dict[str, Any], task: dict[str, Any], gate: str, reason: str) -> None:
    assert verdicts(fleet_of([manifest("a", **agent)]), ask(**task)) == [(gate, MAY_NOT, reason)]


def silent(fleet: Fleet) -> None:
    instance = fleet.agents["a"].roster.instances["a-1"]
    instance.heard_at = NOW - 12
    instance.state = PresenceState.SUSPECT


def goodbye(fleet: Fleet) -> None:
    fleet.agents["a"].roster.instances["a-1"].heard(beat("a", stopping=True), NOW - 40)


def broken(fleet: Fleet) -> None:
    open_breaker(fleet.agents["a"].breaker, NOW + 11.2 - 30)


def probed(fleet: Fleet) -> None:
    breaker = fleet.agents["a"].breaker
    open_breaker(breaker, NOW - 30)
    breaker.admits(NOW)
    breaker.take_probe("probe", NOW)


def resting(fleet: Fleet) -> None:
    fleet.agents["a"].rests_until = NOW + 2.5


def busy(fleet: Fleet) -> None:
    occupy(fleet, "a", 8)


def stuck(fleet: Fleet) -> None:
    there(fleet.agents["a"], capacity=0)


@pytest.mark.parametrize(
    ("happens", "gate", "reason"),
    [
        (broken, "breaker", "breaker open for 12 s more"),
        (probed, "breaker", "breaker half-open, its one probe is under way"),
        (resting, "rested", "rate limited for 3 s more"),
        (busy, "slots", "at max concurrency 8/8"),
        (stuck, "slots", "at max concurrency 0/0"),
    ],
)
def test_who_cannot_have_it_now(happens: Callable[[Fleet], None], gate: str, reason: str) -> None:
    fleet = fleet_of([manifest("a")])
    happens(fleet)

    assert verdicts(fleet, ask()) == [(gate, NOT_NOW, reason)]


@pytest.mark.parametrize(
    ("happens", "reason"),
    [
        (silent, "suspect, silent for 12 s"),
        (goodbye, "dead, silent for 40 s"),
        (lambda fleet: fleet.agents["a"].roster.instances.clear(), "pending, no instance is known"),
    ],
)
def test_of_who_is_away_nothing_is_said_of_slots(happens: Callable[[Fleet], None], reason: str) -> None:
    fleet = fleet_of([manifest("a")])
    happens(fleet)

    assert verdicts(fleet, ask()) == [("presence", NOT_NOW, reason)]


def test_presence_decides_alone_where_slots_are_left() -> None:
    """Gates do not lean on each other: an agent that nobody hears of is out, whatever its slots say."""
    fleet = fleet_of([manifest("a")])
    silent(fleet)
    presence = next(gate for gate in GATES if gate.name == "presence")

    assert presence.check(ask(), offer_of(fleet, "a"), fleet, NOW) == "suspect, silent for 12 s"


def test_a_full_router_is_no_fault_of_the_agents() -> None:
    fleet = fleet_of([manifest("a")], slots=SlotPolicy(in_flight=3))
    occupy(fleet, "elsewhere", 3)

    assert verdicts(fleet, ask()) == [
        ("slots", NOT_NOW, "the router itself is full, 3 dispatches are under way")
    ]


@pytest.mark.parametrize(
    ("agent", "task"),
    [
        ({"offers": {"tags": ["vision", "ocr"]}}, {"requires": ("ocr", "vision")}),
        ({"offers": {"input_schema": SCHEMA}}, {"payload": {"q": "x"}}),
        ({"mutually_exclusive_tags": ["vision"]}, {}),
        ({"permission_domains": ["ops"]}, {"domain": "ops"}),
        ({"permission_domains": ["*"]}, {"domain": "anything"}),
        ({"permission_domains": []}, {"domain": None}),
        ({"callable_by": ["*"]}, {}),
        ({"callable_by": ["alice", "bob"]}, {"caller": "alice"}),
        ({"price": {"per_task": 0.05}}, {"max_cost": 0.05}),
        ({"price": {"per_task": 0.05}}, {}),
        ({"price": {"per_task": 0.0, "per_1k_tokens": 0.0}}, {"max_cost": 0.0}),
        ({"price": {"per_1k_tokens": 0.05}}, {}),
        ({}, {"max_cost": 0.0}),
        ({}, {"to_agent": "a"}),
        ({}, {"rejected_by": frozenset({"b"})}),
    ],
)
def test_who_may_have_it(agent: dict[str, Any], task: dict[str, Any]) -> None:
    assert verdicts(fleet_of([manifest("a", **agent)]), ask(**task)) == []


def test_the_gates_say_what_a_wait_would_change() -> None:
    assert {gate.name: gate.kind for gate in GATES} == {
        "capability": MAY_NOT,
        "schema": MAY_NOT,
        "tags": MAY_NOT,
        "domain": MAY_NOT,
        "caller": MAY_NOT,
        "personal_data": MAY_NOT,
        "price": MAY_NOT,
        "sent_to": MAY_NOT,
        "rejected": MAY_NOT,
        "presence": NOT_NOW,
        "breaker": NOT_NOW,
        "rested": NOT_NOW,
        "rate": NOT_NOW,
        "slots": NOT_NOW,
    }


def test_every_gate_that_is_closed_is_told() -> None:
    fleet = fleet_of([manifest("a", callable_by=["bob"])])
    busy(fleet)
    resting(fleet)

    assert [gate for gate, _, _ in verdicts(fleet, ask(requires=("vision",), domain="ops"))] == [
        "capability",
        "domain",
        "caller",
        "rested",
        "slots",
    ]


def test_open_gates_are_told_too() -> None:
    closed = (Verdict("slots", NOT_NOW, passed=False, reason="full"), excluded("failed"))

    told = all_verdicts(closed)

    assert [verdict.gate for verdict in told] == [verdict.gate for verdict in OPEN]
    assert [verdict for verdict in told if not verdict.passed] == list(closed)
    assert all_verdicts(()) == OPEN


def fleet_with_schemas(*schemas: dict[str, Any]) -> Fleet:
    def one(number: int, schema: dict[str, Any]) -> Manifest:
        return manifest(f"agent-{number}", offers={"input_schema": schema})

    return fleet_of(one(number, schema) for number, schema in enumerate(schemas))


def test_a_payload_is_checked_once_for_each_schema() -> None:
    reordered = dict(reversed(SCHEMA.items()))
    fleet = fleet_with_schemas(SCHEMA, reordered, {"required": ["z"]}, SCHEMA)
    one = ask(payload={"q": 7})

    for _ in range(3):
        for offer in fleet.capable(CAPABILITY):
            judge(one, offer, fleet, NOW)

    assert sorted(one.checked.values(), key=str) == [
        'payload/q: 7 is not of type "string"',
        'payload: "z" is a required property',
    ]


def test_another_schema_is_looked_at_anew() -> None:
    fleet = fleet_of([manifest("a", offers={"input_schema": SCHEMA})])
    one = ask()
    assert [gate for gate, _, _ in verdicts(fleet, one)] == ["schema"]

    fleet.register(manifest("a"))

    assert verdicts(fleet, one) == []


def test_what_was_checked_is_no_part_of_the_question() -> None:
    fleet = fleet_of([manifest("a")])
    one, other = ask(), ask()
    judge(one, offer_of(fleet, "a"), fleet, NOW)

    assert one == other
    assert "checked" not in repr(one)
