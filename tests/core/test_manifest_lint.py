"""What is allowed in a manifest and probably not meant."""

import pytest

from reach_worker.core.manifest import Manifest, manifest_from
from reach_worker.core.manifest_lint import fleet_warnings, manifest_warnings
from reach_worker.core.tags import TagTable
from reach_worker.core.yaml_text import parse


def manifest(text: str) -> Manifest:
    return manifest_from(parse(text), tags=TagTable({}))


def one(agent: str, *capabilities: str) -> Manifest:
    listed = "".join(f"\n  - {{{capability}}}" for capability in capabilities)
    return manifest(f"id: {agent}\nmutually_exclusive_tags: []\ncapabilities:{listed}")


@pytest.mark.parametrize(
    ("fields", "field", "message", "hint"),
    [
        ("latency_ms: 2", "latency_ms", "2 ms is very short, is it in seconds?", "2 s is latency_ms: 2000"),
        ("latency_ms: 2000000", "latency_ms", "2e+06 ms is 33 minutes", "in milliseconds"),
        (
            "timeout_ms: 30",
            "timeout_ms",
            "30 ms is very short, is it in seconds?",
            "30 s is timeout_ms: 30000",
        ),
        (
            "timeout_ms: 2000, latency_ms: 3000",
            "timeout_ms",
            "attempts end after 2000 ms",
            "raise timeout_ms",
        ),
        ("cost: 0.5", "cost", "0.5 is outside 1-5 and counts as 1", "money belongs in price"),
        ("cost: 80", "cost", "80 is outside 1-5 and counts as 5", "money belongs in price"),
    ],
)
def test_a_value_that_looks_wrong_is_told_with_its_line(
    fields: str, field: str, message: str, hint: str
) -> None:
    lines = "".join(f"  {line}\n" for line in fields.split(", "))
    text = f"id: a\nmutually_exclusive_tags: []\ncapabilities:\n- id: c\n- id: d\n{lines}"
    document = parse(text, file="a.yaml")

    (problem,) = manifest_warnings(manifest(text), document)

    assert problem.field == f"/capabilities/1/{field}"
    assert problem.message.startswith(message)
    assert hint in (problem.hint or "")
    assert (problem.file, problem.line, problem.column) == ("a.yaml", 6, 3)


@pytest.mark.parametrize(
    "fields", ["", "latency_ms: 600000", "timeout_ms: 100", "timeout_ms: 2000", "cost: 5"]
)
def test_what_may_well_be_meant_is_not_told(fields: str) -> None:
    assert manifest_warnings(one("a", f"id: c, {fields}")) == []


def test_without_a_document_there_are_no_lines() -> None:
    (problem,) = manifest_warnings(one("a", "id: c, cost: 9"))

    assert (problem.file, problem.line) == (None, None)


def test_a_capability_of_one_agent_only_is_told() -> None:
    text = "id: b\nmutually_exclusive_tags: []\ncapabilities:\n- id: shared\n- id: alone\n"
    document = parse(text, file="b.yaml")

    (problem,) = fleet_warnings([one("a", "id: shared"), manifest(text)], {"b": document})

    assert problem.message == "only agent 'b' has the capability 'alone'"
    assert (problem.file, problem.line, problem.field) == ("b.yaml", 5, "/capabilities/1/id")
    assert problem.hint


def near(*manifests: Manifest) -> list[str]:
    return [problem.message for problem in fleet_warnings(manifests) if "nearly" in problem.message]


def test_texts_that_are_nearly_the_same_are_told_once_per_capability() -> None:
    tools = [f"id: search_{n}, name: Search, description: Search the documents for {n} words" for n in "abc"]

    found = near(one("x", *tools))

    assert [message.split(" is ")[0] for message in found] == [
        "the text of 'search_b'",
        "the text of 'search_c'",
    ]
    assert "%" in found[0]


def test_texts_without_spaces_are_compared_by_character() -> None:
    assert near(
        one("x", "id: a, description: 查询访问日志的状态"),
        one("y", "id: b, description: 查询访问日志的状态。"),
    )


def test_a_pair_without_description_points_at_the_id() -> None:
    problems = fleet_warnings([one("x", "id: log.query"), one("y", "id: query.log")])

    assert [problem.field for problem in problems if "nearly" in problem.message] == ["/capabilities/0/id"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (
            "id: log.query, description: Finds lines of the access log",
            "id: docs.search, description: Searches documents",
        ),
        ("id: a, name: '?'", "id: b, name: '!'"),
    ],
)
def test_texts_that_differ_are_not_told(first: str, second: str) -> None:
    assert near(one("x", first), one("y", second)) == []


def test_one_capability_of_two_agents_is_no_duplicate() -> None:
    same = "id: c, description: Does one thing"

    assert fleet_warnings([one("x", same), one("y", same)]) == []


def test_the_order_of_manifests_changes_nothing() -> None:
    fleet = [one(agent, f"id: t{agent}, description: Makes tables of numbers") for agent in "abcd"]

    assert fleet_warnings(fleet) == fleet_warnings(fleet[::-1])


def test_a_worker_that_only_consumes_should_say_how_long_it_takes_and_better_have_no_side_effects() -> None:
    lines = "capabilities: [{id: a.b}, {id: c.d, timeout_ms: 9000, side_effects: true}]"
    silent = f"id: old\nmutually_exclusive_tags: []\n{lines}\n"
    assert manifest_warnings(manifest(silent)) == []
    one, two = manifest_warnings(manifest(silent + "presence: consumers\n"))
    assert (one.field, one.hint) == (
        "/capabilities/0/id",
        "declare timeout_ms: the longest time from task to reply",
    )
    assert (two.field, two.hint) == (
        "/capabilities/1/side_effects",
        "run it with `adapter: {kind: queue}`, and what never began is tried again",
    )
