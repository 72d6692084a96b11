"""Manifests: every field, every refusal with its place, and what is made of an agent's own word."""

import json
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_worker.core.document import Document
from reach_worker.core.json_schema import compile_schema, first_fault
from reach_worker.core.manifest import (
    Capability,
    Manifest,
    load_manifest,
    manifest_from,
    manifest_json_schema,
    payload_problem,
)
from reach_worker.core.tags import TagTable
from reach_worker.core.yaml_text import parse
from reach_worker.errors import BadInput, Problem

NO_TAGS = TagTable({})
FULL = """\
id: Log-Analyst
name: Log analyst
version: "2.1"
capabilities:
  - id: Log.Query
    name: Query the log
    description: Finds lines of the access log by status and time.
    input_schema: {type: object, required: [status], properties: {status: {type: integer}}}
    output_schema: {type: object}
    tags: [LOG, 报表, daily_report]
    side_effects: true
    cost: 2
    latency_ms: 1500
    timeout_ms: 20000
    examples: ["Which requests failed?", 哪些请求失败了]
mutually_exclusive_tags: [Vision]
permission_domains: [Ops]
callable_by: [Alice, bob]
max_concurrency: 8
rate: 2.5
region: eu-west
team: platform
price: {per_task: 0.01}
pii: [/client/ip]
presence: consumers
"""
FULL_TAGS = TagTable({"report": ["报表", "daily_report"]})


def with_fields(fields: str = "", capability: str = "") -> str:
    return f"id: a\nmutually_exclusive_tags: []\ncapabilities:\n  - id: c\n{capability}{fields}"


def load(text: str) -> Manifest:
    return load_manifest(text, file="a.yaml", tags=NO_TAGS)


def refused(text: str) -> tuple[Problem, ...]:
    with pytest.raises(BadInput) as caught:
        load(text)
    return caught.value.problems


def one_capability(**fields: Any) -> Capability:
    return Capability.model_validate({"id": "c", **fields})


def test_every_field_is_read() -> None:
    manifest = load_manifest(FULL, file="log-analyst.yaml", tags=FULL_TAGS)

    assert (manifest.id, manifest.name, manifest.version) == ("log-analyst", "Log analyst", "2.1")
    assert manifest.mutually_exclusive_tags == ("vision",)
    assert manifest.permission_domains == ("ops",)
    assert manifest.callable_by == ("Alice", "bob")
    assert (manifest.max_concurrency, manifest.rate) == (8, 2.5)
    assert (manifest.region, manifest.team, manifest.presence) == ("eu-west", "platform", "consumers")
    assert manifest.price is not None
    assert manifest.price.per_task == 0.01
    assert manifest.pii == ("/client/ip",)
    capability = manifest.capability("log.query")
    assert capability is not None
    assert capability.tags == ("log", "report")
    assert capability.side_effects
    assert (capability.cost, capability.latency_ms, capability.timeout_ms) == (2.0, 1500.0, 20000)
    assert capability.examples == ("Which requests failed?", "哪些请求失败了")
    assert capability.title == "Query the log"


def test_defaults_claim_nothing() -> None:
    manifest = load(with_fields())
    capability = manifest.capabilities[0]

    assert manifest.callable_by == ("*",)
    assert manifest.permission_domains == ()
    assert (manifest.max_concurrency, manifest.rate, manifest.presence) == (1, None, "heartbeat")
    assert (manifest.title, capability.title) == ("a", "c")
    assert (capability.cost, capability.latency_ms) == (3.0, 5500.0)
    assert (capability.timeout_ms, capability.side_effects) == (None, False)
    assert payload_problem(capability, {"anything": 1}) is None


@pytest.mark.parametrize(
    ("fields", "line", "column", "field", "message", "hint"),
    [
        ("teams: x\n", 5, 1, "/teams", "unknown field", "did you mean team?"),
        (
            "permision_domains: []\n",
            5,
            1,
            "/permision_domains",
            "unknown field",
            "did you mean permission_domains?",
        ),
        ("user_group: x\n", 5, 1, "/user_group", "unknown field", "known here: callable_by, capabilities"),
        (
            "version: 1.10\n",
            5,
            1,
            "/version",
            "must be text, and 1.10 without quotes is a number",
            'write "1.10"',
        ),
        ("max_concurrency: 0\n", 5, 1, "/max_concurrency", "must be at least 1, not 0", ""),
        ("rate: 0\n", 5, 1, "/rate", "must be greater than 0, not 0", ""),
        (
            "presence: consumer\n",
            5,
            1,
            "/presence",
            "must be 'heartbeat' or 'consumers'",
            "did you mean consumers?",
        ),
        ("price: {}\n", 5, 1, "/price", "needs per_task or per_1k_tokens", ""),
        ("price: {per_task: -1}\n", 5, 9, "/price/per_task", "must be at least 0, not -1", ""),
        ("price: {per_tsk: 1}\n", 5, 9, "/price/per_tsk", "unknown field", "did you mean per_task?"),
        (
            "callable_by: [bob, anonymous]\n",
            5,
            20,
            "/callable_by/1",
            "a task without a user id",
            '"*" lets anyone in',
        ),
        ("permission_domains: ['']\n", 5, 22, "/permission_domains/0", "must not be empty", ""),
        ('permission_domains: ["\\x1f"]\n', 5, 1, "/permission_domains", "holds an empty name", ""),
        ("permission_domains: ops\n", 5, 1, "/permission_domains", "must be a list, not text", ""),
    ],
)
def test_a_wrong_field_is_refused(
    fields: str, line: int, column: int, field: str, message: str, hint: str
) -> None:
    (problem,) = refused(with_fields(fields))

    assert (problem.file, problem.line, problem.column, problem.field) == ("a.yaml", line, column, field)
    assert problem.message.startswith(message)
    assert (problem.hint or "").startswith(hint)


@pytest.mark.parametrize(
    ("capability", "column", "field", "message", "hint"),
    [
        ("    timeout: 1\n", 5, "/timeout", "unknown field", "did you mean timeout_ms?"),
        ("    timeout_ms: 0\n", 5, "/timeout_ms", "must be greater than 0, not 0", ""),
        ("    timeout_ms: 1.5\n", 5, "/timeout_ms", "must be a whole number, not 1.5", ""),
        ("    cost: .inf\n", 11, "/cost", "must be a finite number", ""),
        ("    cost: high\n", 5, "/cost", "must be a number, not text", ""),
        ("    latency_ms: .nan\n", 17, "/latency_ms", "must be a finite number", ""),
        ("    side_effects: yes\n", 5, "/side_effects", "must be true or false, not text", "write true"),
        ("    input_schema: text\n", 5, "/input_schema", "must be a mapping", ""),
        ("    input_schema: {type: strin}\n", 20, "/input_schema/type", "is not a JSON Schema", ""),
        ("    output_schema: {$ref: 'http://x/y'}\n", 21, "/output_schema/$ref", "the reference", "copy it"),
        ("    tags: ['', a]\n", 12, "/tags/0", "must not be empty", ""),
        ("    description: 3\n", 5, "/description", "must be text, and 3 without quotes", 'write "3"'),
    ],
)
def test_a_wrong_capability_is_refused(
    capability: str, column: int, field: str, message: str, hint: str
) -> None:
    (problem,) = refused(with_fields(capability=capability))

    assert (problem.file, problem.line, problem.column) == ("a.yaml", 5, column)
    assert problem.field == f"/capabilities/0{field}"
    assert problem.message.startswith(message)
    assert (problem.hint or "").startswith(hint)


def test_mutually_exclusive_tags_are_required() -> None:
    (problem,) = refused("id: a\ncapabilities: [{id: c}]\n")

    assert problem == Problem(
        "is required",
        "/mutually_exclusive_tags",
        "a.yaml",
        1,
        1,
        "tags of tasks it never handles; write [] if there are none",
    )


def test_capabilities_are_required_and_not_empty() -> None:
    assert refused("id: a\nmutually_exclusive_tags: []\n")[0].field == "/capabilities"
    (problem,) = refused("id: a\nmutually_exclusive_tags: []\ncapabilities: []\n")
    assert (problem.line, problem.field, problem.message) == (3, "/capabilities", "must not be empty")


def test_two_capabilities_of_one_id_are_refused_also_in_another_case() -> None:
    (problem,) = refused("id: a\nmutually_exclusive_tags: []\ncapabilities:\n- id: c\n- id: d\n- id: C\n")

    assert (problem.line, problem.column, problem.field) == (6, 3, "/capabilities/2/id")
    assert problem.message == "two capabilities have the id 'c'"
    assert problem.hint == "ids are compared without case"


def test_bad_ids_are_refused() -> None:
    (problem,) = refused(with_fields().replace("id: a", "id: ../a"))

    assert (problem.line, problem.field) == (1, "/id")
    assert problem.message == "an id begins with a letter or a digit, not with '.'"


def test_all_problems_are_told_at_once() -> None:
    text = "id: 7\ncapabilities:\n- id: a\n  cost: x\n- cst: 1\n  id: b\nmax_concurrency: none\n"

    assert [(problem.line, problem.field) for problem in refused(text)] == [
        (1, "/id"),
        (1, "/mutually_exclusive_tags"),
        (4, "/capabilities/0/cost"),
        (5, "/capabilities/1/cst"),
        (7, "/max_concurrency"),
    ]


@pytest.mark.parametrize(
    ("declared", "counted"), [(-5, 1.0), (0, 1.0), (1, 1.0), (2.5, 2.5), (5, 5.0), (1e300, 5.0)]
)
def test_cost_is_clamped_and_the_declared_one_kept(declared: float, counted: float) -> None:
    capability = one_capability(cost=declared)

    assert (capability.cost, capability.declared_cost) == (counted, declared)


@pytest.mark.parametrize(
    ("declared", "counted"), [(1, 1000.0), (-1, 1000.0), (2500, 2500.0), (60_000, 10_000.0)]
)
def test_latency_is_clamped_and_the_declared_one_kept(declared: float, counted: float) -> None:
    capability = one_capability(latency_ms=declared)

    assert (capability.latency_ms, capability.declared_latency_ms) == (counted, declared)


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
def test_no_declaration_counts_beyond_its_range(cost: float, latency: float) -> None:
    capability = one_capability(cost=cost, latency_ms=latency)

    assert 1.0 <= capability.cost <= 5.0
    assert 1_000.0 <= capability.latency_ms <= 10_000.0


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("field", ["cost", "latency_ms"])
def test_what_is_not_finite_is_refused_also_from_the_bus(field: str, number: float) -> None:
    data = {"id": "a", "mutually_exclusive_tags": [], "capabilities": [{"id": "c", field: number}]}

    with pytest.raises(BadInput) as caught:
        manifest_from(Document(data), tags=NO_TAGS)
    assert caught.value.problems == (Problem("must be a finite number", f"/capabilities/0/{field}"),)


def test_a_capability_is_found_by_its_id() -> None:
    manifest = load_manifest(FULL, file=None, tags=FULL_TAGS)

    assert manifest.capability("log.query") is manifest.capabilities[0]
    assert manifest.capability("log.count") is None


def test_payloads_are_held_against_the_input_schema() -> None:
    capability = load(FULL).capabilities[0]

    assert payload_problem(capability, {"status": 404}) is None
    assert payload_problem(capability, {"status": "404"}) == ("/status", '"404" is not of type "integer"')
    assert capability.input_validator is capability.input_validator


def test_the_hash_is_of_the_content_and_not_of_the_spelling() -> None:
    lines = with_fields("team: x\nmax_concurrency: 2\n", "    tags: [B, a]\n    cost: 2\n")
    same = with_fields("max_concurrency: 2 # two\nteam: 'x'\n", "    cost: 2.0\n    tags: [a, b, A]\n")

    assert load(lines).hash == load(same).hash
    assert load(lines) == load(same)
    assert load(lines).hash != load(lines.replace("cost: 2", "cost: 2.5")).hash
    assert len(load(lines).hash) == 64


def test_the_hash_does_not_depend_on_the_tag_table() -> None:
    plain, mapped = (load_manifest(FULL, file=None, tags=tags) for tags in (NO_TAGS, FULL_TAGS))

    assert plain.capabilities[0].tags != mapped.capabilities[0].tags
    assert plain.hash == mapped.hash


def test_a_declaration_travels_and_is_the_same_manifest_there() -> None:
    here = load_manifest(FULL, file="a.yaml", tags=NO_TAGS)

    there = manifest_from(Document(json.loads(here.declaration)), tags=FULL_TAGS)

    assert there == load_manifest(FULL, file="b.yaml", tags=FULL_TAGS)
    assert there.hash == here.hash
    assert there.declaration == here.declaration


def test_tags_in_another_spelling_reach_the_lookup_by_id() -> None:
    manifest = load(FULL)
    assert manifest.capability("log.query") is not None

    capability = manifest.with_tags(FULL_TAGS).capability("log.query")

    assert capability is not None
    assert capability.tags == ("log", "report")


@given(
    st.permutations(
        ["id: a", "mutually_exclusive_tags: [x, y]", "capabilities: [{id: c, tags: [p, q]}]", "team: t"]
    )
)
def test_the_order_of_fields_changes_nothing(lines: list[str]) -> None:
    manifest = load("\n".join(lines))

    assert manifest.hash == load("\n".join(sorted(lines))).hash


def shipped_schema() -> Any:
    return json.loads(
        resources.files("reach_worker.core").joinpath("manifest.schema.json").read_text("utf-8")
    )


def test_the_shipped_schema_is_the_models() -> None:
    assert shipped_schema() == manifest_json_schema(), (
        "write it again: python -m reach_worker.settings schema > reach_worker/core/manifest.schema.json"
    )


def test_the_shipped_schema_knows_every_field() -> None:
    schema = shipped_schema()

    assert set(schema["required"]) == {"id", "capabilities", "mutually_exclusive_tags"}
    assert set(schema["properties"]) == set(Manifest.model_fields)
    assert {"cost", "latency_ms"} <= set(schema["$defs"]["Capability"]["properties"])


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        (FULL, True),
        (with_fields(), True),
        (with_fields("owner_team: x\n"), False),
        (with_fields(capability="    cost: high\n"), False),
        (with_fields("permission_domains: [a, b]\n"), True),
    ],
)
def test_editors_and_we_agree(text: str, fits: bool) -> None:
    data = parse(text).data

    assert (first_fault(compile_schema(shipped_schema()), data) is None) == fits
    try:
        load(text)
    except BadInput:
        assert not fits
    else:
        assert fits


def test_the_example_is_a_manifest() -> None:
    path = Path(__file__).parents[2] / "config" / "agents" / "echo.yaml"

    manifest = load_manifest(path.read_text("utf-8"), file=path.name, tags=NO_TAGS)

    assert manifest.id == path.stem
    capability = manifest.capability("text.echo")
    assert capability is not None
    assert payload_problem(capability, {"text": "hello"}) is None
    assert payload_problem(capability, {"txt": "hello"}) is not None
