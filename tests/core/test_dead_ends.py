"""What can never happen, told with the field and the way out; what may well happen is not told."""

from collections.abc import Sequence
from typing import Any

import pytest

from reach_worker.core import dead_ends
from reach_worker.core.backoff import RetryPolicy
from reach_worker.core.breaker import DECLARED_BREAKER, BreakerPolicy
from reach_worker.core.manifest import Manifest
from reach_worker.core.policy import RoutingPolicy
from reach_worker.core.presence import PresencePolicy
from reach_worker.core.recovery import TimeoutPolicy
from reach_worker.core.yaml_text import parse
from reach_worker.errors import Problem
from tests.core.agents import manifest

FLEET = (
    manifest("log-a", region="eu", team="ops"),
    manifest("log-b"),
    manifest("docs", capability="docs.search"),
)
MINUTE = 60_000

Told = list[tuple[str, str, str]]


def told(problems: Sequence[Problem]) -> Told:
    return [(problem.field, problem.message, problem.hint or "") for problem in problems]


def of_manifest(**fields: Any) -> Told:
    return told(list(dead_ends.manifest_dead_ends(manifest("a", **fields))))


def test_a_tag_that_is_offered_and_never_handled() -> None:
    found = of_manifest(offers={"tags": ["Vision", "ocr"]}, mutually_exclusive_tags=["vision", "audio"])

    assert found == [
        (
            "/capabilities/0/tags",
            "the tag 'vision' is also in mutually_exclusive_tags: a task that requires it is always refused",
            "take it out of one of the two",
        )
    ]


def test_an_agent_that_nobody_may_call() -> None:
    assert of_manifest(callable_by=[]) == [
        ("/callable_by", "nobody may send it work, so it never gets any", '"*" lets anyone in')
    ]


@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        ({"type": "string"}, "allows string only"),
        ({"type": ["array", "null"]}, "allows ['array', 'null'] only"),
        (
            {"required": ["q", "r"], "properties": {"r": {}}, "additionalProperties": False},
            "requires 'q' and allows no such field",
        ),
    ],
)
def test_a_schema_that_no_payload_fits(schema: dict[str, Any], fault: str) -> None:
    assert [(field, message) for field, message, _ in of_manifest(offers={"input_schema": schema})] == [
        ("/capabilities/0/input_schema", fault)
    ]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"callable_by": ["alice"], "permission_domains": []},
        {"offers": {"tags": ["vision"]}, "mutually_exclusive_tags": ["audio"]},
        {"offers": {"input_schema": {"type": ["object", "null"]}}},
        {"offers": {"input_schema": {"required": ["q"]}}},
        {"offers": {"input_schema": {"required": ["q"], "additionalProperties": {"type": "string"}}}},
        {
            "offers": {
                "input_schema": {
                    "required": ["q"],
                    "additionalProperties": False,
                    "patternProperties": {"^q$": {}},
                }
            }
        },
    ],
)
def test_what_somebody_can_use_is_not_told(fields: dict[str, Any]) -> None:
    assert of_manifest(**fields) == []


# --------------------------------------------------------------------------- time


def of_time(timeout_ms: int | None, presence: str = "heartbeat", **retry: Any) -> Told:
    offers = {} if timeout_ms is None else {"timeout_ms": timeout_ms}
    one = manifest("a", offers=offers, presence=presence)
    return told(list(dead_ends.time_dead_ends(one, RetryPolicy(**retry), TimeoutPolicy())))


@pytest.mark.parametrize("timeout_ms", [None, 1000, 30 * MINUTE])
def test_limits_that_the_broker_waits_for(timeout_ms: int | None) -> None:
    assert of_time(timeout_ms) == []


def test_an_attempt_that_the_broker_would_take_back() -> None:
    """Of a worker that is none of ours: ours park it before."""
    assert of_time(45 * MINUTE) == []
    assert of_time(45 * MINUTE, presence="consumers") == [
        (
            "/capabilities/0/timeout_ms",
            "an attempt may take 45 minutes, and RabbitMQ takes work back after 30 minutes",
            "split the work, or raise the broker's consumer_timeout above it",
        )
    ]


@pytest.mark.parametrize(
    ("hours", "retry", "message"),
    [
        (8, {}, "4 attempts of 8 hours and the waits between may take 32.1 hours"),
        (40, {"max_retries": 1}, "2 attempts of 40 hours and the waits between may take 3.33 days"),
        (8, {"max_retries": 30, "max_dispatches": 4}, "4 attempts of 8 hours"),
    ],
)
def test_retries_that_take_longer_than_a_day(hours: int, retry: dict[str, Any], message: str) -> None:
    found = of_time(hours * 60 * MINUTE, **retry)

    assert found[0][1].startswith(message)
    assert "lower timeout_ms or retry.max_retries" in found[0][2]


def test_one_attempt_may_take_as_long_as_it_is_given() -> None:
    assert of_time(40 * 60 * MINUTE, max_retries=0) == []
    assert of_time(6 * 60 * MINUTE - 3 * MINUTE) == []


# ------------------------------------------------------------------------ routing


def of_routing(fleet: Sequence[Manifest] = FLEET, /, **fields: Any) -> Told:
    return told(list(dead_ends.routing_dead_ends(RoutingPolicy(**fields), fleet)))


@pytest.mark.parametrize(
    ("fields", "field", "message", "hint"),
    [
        (
            {"fallback": {"log.qurey": ("log-b",)}},
            "/fallback/log.qurey",
            "no manifest has the capability 'log.qurey'",
            "did you mean log.query?",
        ),
        (
            {"fallback": {"zzz": ("log-b",)}},
            "/fallback/zzz",
            "no manifest has the capability 'zzz'",
            "known here: docs.search, log.query; an agent that brings its manifest itself is known once it was there",
        ),
        (
            {"fallback": {"log.query": ("log-bb",)}},
            "/fallback/log.query/0",
            "no manifest is of agent 'log-bb'",
            "did you mean log-b?",
        ),
        (
            {"fallback": {"log.query": ("log-b", "docs")}},
            "/fallback/log.query/1",
            "agent 'docs' has not the capability 'log.query', so it never takes over",
            "these have it: log-a, log-b",
        ),
        (
            {"fallback": {"log.query": ("log-a", "log-b")}},
            "/fallback/log.query",
            "every agent that has 'log.query' is its fallback, so none is ever kept back",
            "leave out those that should have the tasks first",
        ),
        (
            {"fallback_after_ms": 9_000},
            "/fallback_after_ms",
            "never counts: no capability has a fallback",
            "name the capability and its agents in fallback",
        ),
        (
            {"score_bonus": {"log-c": 0.1}},
            "/score_bonus/log-c",
            "no manifest is of agent 'log-c'",
            "did you mean log-b?",
        ),
        ({"region": "us"}, "/region", "no manifest is of region 'us', so none is near", "known here: eu;"),
        ({"team": "opps"}, "/team", "no manifest is of team 'opps', so none is near", "did you mean ops?"),
        (
            {"shadow": {"score_bonus": {"zzz": 1}}},
            "/shadow/score_bonus/zzz",
            "no manifest is of agent 'zzz'",
            "known here: docs, log-a, log-b;",
        ),
    ],
)
def test_a_rule_that_reaches_nobody(fields: dict[str, Any], field: str, message: str, hint: str) -> None:
    ((found, said, way_out),) = of_routing(**fields)

    assert (found, said) == (field, message)
    assert way_out.startswith(hint)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"fallback": {"log.query": ("log-b",)}, "fallback_after_ms": 1},
        {"fallback": {"Log.Query": ("LOG-B",)}},
        {"score_bonus": {"Log-A": 0.1, "docs": -0.1}},
        {"region": "eu", "team": "ops", "shadow": {"preset": "declared"}},
    ],
)
def test_a_rule_that_reaches_somebody_is_not_told(fields: dict[str, Any]) -> None:
    assert of_routing(**fields) == []


def test_without_any_manifest_the_hint_says_so() -> None:
    ((_, _, hint),) = of_routing((), score_bonus={"a": 0.1})

    assert hint.startswith("known here: none;")


# ------------------------------------------------------------------ other sections


def test_numbers_that_never_count() -> None:
    assert told(list(dead_ends.retry_dead_ends(RetryPolicy(max_retries=5, max_dispatches=5)))) == [
        (
            "/max_retries",
            "never all come: a task ends after max_dispatches, 5",
            "max_dispatches is at least max_retries + 1",
        )
    ]
    assert told(list(dead_ends.retry_dead_ends(RetryPolicy(base_s=90, cap_s=60)))) == [
        ("/base_s", "never counts: no bound is above cap_s, 60", "base_s is at most cap_s")
    ]
    assert told(list(dead_ends.presence_dead_ends(PresencePolicy(suspect_s=3)))) == [
        (
            "/suspect_s",
            "every instance is suspect before it beats again, after 3 s",
            "three heartbeats are usual",
        )
    ]
    assert told(list(dead_ends.breaker_dead_ends(BreakerPolicy(open_s=400)))) == [
        (
            "/open_s",
            "never counts: no cool-down is longer than max_open_s, 300",
            "open_s is at most max_open_s",
        )
    ]


def test_the_defaults_are_all_of_use() -> None:
    assert not list(dead_ends.retry_dead_ends(RetryPolicy()))
    assert not list(dead_ends.presence_dead_ends(PresencePolicy()))
    assert not list(dead_ends.breaker_dead_ends(BreakerPolicy()))
    assert not list(dead_ends.breaker_dead_ends(DECLARED_BREAKER))


def test_a_finding_has_its_place_in_the_file() -> None:
    text = "routing:\n  fallback:\n    log.query:\n      - log-b\n      - docs\n"
    found = dead_ends.routing_dead_ends(RoutingPolicy(fallback={"log.query": ("log-b", "docs")}), FLEET)

    (problem,) = dead_ends.located(found, parse(text, file="reach.yaml"), "/routing")

    assert (problem.file, problem.line, problem.column) == ("reach.yaml", 5, 9)
    assert problem.field == "/routing/fallback/log.query/1"
