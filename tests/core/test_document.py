"""A model's complaints in plain words, with file, line, column, field and the nearest known name."""

from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from reach_worker.core.document import (
    Document,
    Place,
    fault,
    fields_at,
    json_pointer,
    nearest,
    pointer_parts,
    problems,
    validate,
)
from reach_worker.core.yaml_text import parse
from reach_worker.errors import BadInput, Problem


class Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(description="what it is called")
    size_ms: int = Field(1, ge=1, le=9)
    share: float = Field(0.5, gt=0, lt=1, allow_inf_nan=False)
    on: bool = False
    kind: Literal["fast", "slow"] = "fast"
    free: dict[str, Any] = Field(default_factory=dict)
    text: str | tuple[str, ...] = ""

    @field_validator("free")
    @classmethod
    def _no_bad(cls, free: dict[str, Any]) -> dict[str, Any]:
        if "bad" in free:
            raise fault("holds bad", "bad", hint="take it out")
        if "worse" in free:
            raise fault("holds worse")
        return free


class Whole(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field("x", min_length=1, max_length=5, pattern="^[a-z]*$")
    parts: tuple[Part, ...] = Field((), min_length=1, max_length=2)
    by_name: dict[str, Part] = Field(default_factory=dict)
    numbers: frozenset[int] = frozenset()
    limits: dict[Literal["low", "high"], float] = Field(default_factory=dict)
    declared: int = Field(0, alias="said")
    two: list[int] = Field(default_factory=lambda: [1, 2], min_length=2)

    @model_validator(mode="after")
    def _no_x(self) -> "Whole":
        if self.name == "never":
            raise ValueError("is never called so")
        return self


def complaint(text: str) -> Problem:
    (problem,) = complaints(text)
    return problem


def complaints(text: str) -> tuple[Problem, ...]:
    with pytest.raises(BadInput) as caught:
        validate(Whole, parse(text, file="w.yaml"))
    return caught.value.problems


def test_a_document_that_fits_is_the_model() -> None:
    whole = validate(Whole, parse("parts: [{id: a, share: 0.25}]\nnumbers: [1, 1, 2]\nsaid: 3"))

    assert whole.parts == (Part(id="a", share=0.25),)
    assert whole.numbers == frozenset({1, 2})
    assert whole.declared == 3


@pytest.mark.parametrize(
    ("line", "field", "column", "message", "hint"),
    [
        ("parts: [{id: a, size_mss: 1}]", "/parts/0/size_mss", 17, "unknown field", "did you mean size_ms?"),
        ("parts: [{id: a, sizeMs: 1}]", "/parts/0/sizeMs", 17, "unknown field", "did you mean size_ms?"),
        ("by_name: {k: {id: a, Kind: fast}}", "/by_name/k/Kind", 22, "unknown field", "did you mean kind?"),
        ("declared: 1", "/declared", 1, "unknown field", "known here: by_name, limits, name"),
        ("parts: [{}]", "/parts/0/id", 9, "is required", "what it is called"),
        (
            "parts: [{id: 1.10}]",
            "/parts/0/id",
            10,
            "must be text, and 1.10 without quotes is a number",
            'write "1.10"',
        ),
        (
            "parts: [{id: True}]",
            "/parts/0/id",
            10,
            "must be text, and True without quotes is true",
            'write "True"',
        ),
        ("parts: [{id: ~}]", "/parts/0/id", 10, "must be text, and ~ without quotes is nothing", 'write "~"'),
        ("parts: [{id: }]", "/parts/0/id", 10, "must be text, not nothing", ""),
        ("parts: [{id: [a]}]", "/parts/0/id", 10, "must be text, not a list", ""),
        ("parts: [{id: a, size_ms: 2.5}]", "/parts/0/size_ms", 17, "must be a whole number, not 2.5", ""),
        ("parts: [{id: a, size_ms: '2'}]", "/parts/0/size_ms", 17, "must be a whole number, not text", ""),
        ("parts: [{id: a, size_ms: true}]", "/parts/0/size_ms", 17, "must be a whole number, not true", ""),
        ("parts: [{id: a, size_ms: 0}]", "/parts/0/size_ms", 17, "must be at least 1, not 0", ""),
        ("parts: [{id: a, size_ms: 10}]", "/parts/0/size_ms", 17, "must be at most 9, not 10", ""),
        ("parts: [{id: a, share: 0}]", "/parts/0/share", 17, "must be greater than 0, not 0", ""),
        ("parts: [{id: a, share: 1}]", "/parts/0/share", 17, "must be less than 1, not 1", ""),
        ("parts: [{id: a, share: x}]", "/parts/0/share", 17, "must be a number, not text", ""),
        ("parts: [{id: a, on: 1}]", "/parts/0/on", 17, "must be true or false, not 1", ""),
        ("parts: [{id: a, on: yes}]", "/parts/0/on", 17, "must be true or false, not text", "write true"),
        ("parts: [{id: a, on: off}]", "/parts/0/on", 17, "must be true or false, not text", "write false"),
        (
            "parts: [{id: a, kind: fats}]",
            "/parts/0/kind",
            17,
            "must be 'fast' or 'slow'",
            "did you mean fast?",
        ),
        ("parts: [{id: a, kind: 77}]", "/parts/0/kind", 17, "must be 'fast' or 'slow', not 77", ""),
        ("parts: [{id: a, free: 1}]", "/parts/0/free", 17, "must be a mapping (`name: value`), not 1", ""),
        ("parts: [{id: a, free: {bad: 1}}]", "/parts/0/free/bad", 24, "holds bad", "take it out"),
        ("parts: [{id: a, free: {worse: 1}}]", "/parts/0/free", 17, "holds worse", ""),
        ("parts: [7]", "/parts/0", 9, "must be a mapping (`name: value`), not 7", ""),
        ("parts: {id: a}", "/parts", 1, "must be a list, not a mapping", ""),
        ("parts: []", "/parts", 1, "must not be empty", ""),
        ("parts: [{id: a}, {id: b}, {id: c}]", "/parts", 1, "has too many items, 2 at most", ""),
        ("two: [1]", "/two", 1, "needs at least 2 items", ""),
        ("name: ''", "/name", 1, "must not be empty", ""),
        ("name: abcdef", "/name", 1, "is too long, 5 characters at most", ""),
        ("name: A", "/name", 1, "must match ^[a-z]*$", ""),
        ("name: never", "", 1, "is never called so", ""),
        ("numbers: [1, x]", "/numbers/1", 14, "must be a whole number, not text", ""),
        ("limits: {lwo: 1}", "/limits/lwo", 10, "must be 'low' or 'high', not 'lwo'", "did you mean low?"),
        ("- 1", "", 1, "must be a mapping (`name: value`), not a list", ""),
    ],
)
def test_one_fault_is_one_problem_at_its_place(
    line: str, field: str, column: int, message: str, hint: str
) -> None:
    problem = complaint(f"# a comment\n{line}\n")

    assert (problem.file, problem.line, problem.column) == ("w.yaml", 2, column)
    assert problem.field == field
    assert problem.message.startswith(message)
    assert (problem.hint or "").startswith(hint)
    assert bool(hint) == bool(problem.hint)


def test_all_faults_come_in_the_order_of_lines() -> None:
    found = complaints("two: x\nparts:\n- id: 3\n- size_ms: 0\nname: 5\n")

    assert [(problem.line, problem.field) for problem in found] == [
        (1, "/two"),
        (3, "/parts/0/id"),
        (4, "/parts/1/id"),
        (4, "/parts/1/size_ms"),
        (5, "/name"),
    ]


def test_members_of_a_union_are_not_part_of_the_field() -> None:
    found = complaints("parts: [{id: a, text: [1]}]")

    assert {problem.field for problem in found} == {"/parts/0/text", "/parts/0/text/0"}


def test_long_values_are_cut() -> None:
    problem = complaint(f"parts: [{{id: a, kind: {'x' * 500}}}]")

    assert problem.message.endswith("…")
    assert len(problem.message) < 150


def test_texts_are_not_repeated_because_they_may_be_secret() -> None:
    assert "hunter2" not in complaint("parts: [{id: a, size_ms: hunter2}]").render()


@pytest.mark.parametrize("text", ["", "# only a comment"])
def test_an_empty_file_says_so(text: str) -> None:
    problem = complaint(text)

    assert (problem.file, problem.line) == ("w.yaml", None)
    assert problem.message == "is empty; write its fields as `name: value`"


def test_data_without_a_file_has_fields_and_no_lines() -> None:
    with pytest.raises(BadInput) as caught:
        validate(Whole, Document({"parts": [{"id": "a", "knd": "fast"}]}))

    assert caught.value.problems == (Problem("unknown field", "/parts/0/knd", hint="did you mean kind?"),)
    assert str(caught.value) == "/parts/0/knd: unknown field (did you mean kind?)"


def test_data_that_is_nested_too_deep_is_a_problem() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]

    with pytest.raises(BadInput, match="nested too deep"):
        validate(Whole, Document({"parts": deep}))


def test_half_a_character_is_a_problem() -> None:
    with pytest.raises(BadInput, match="invalid JSON"):
        validate(Whole, Document({"name": "\ud800"}))


def test_a_missing_field_that_the_model_does_not_list_has_no_hint() -> None:
    with pytest.raises(ValidationError) as caught:
        Part.model_validate({})

    (problem,) = problems(caught.value, Whole, Document({}))
    assert problem == Problem("is required", "/id")


def test_the_place_of_something_that_is_not_there_is_the_nearest_around_it() -> None:
    document = parse("a:\n  b: [1]\n", file="f.yaml")

    assert document.place("/a/b/7/x") == Place("f.yaml", 2, 3)
    assert document.place("/zzz") == Place("f.yaml", 1, 1)
    assert Document({}, "f.yaml").place("/a") == Place("f.yaml")


def test_fields_are_found_through_lists_and_mappings() -> None:
    assert "size_ms" in fields_at(Whole, ["parts", 0])
    assert "size_ms" in fields_at(Whole, ["by_name", "anything"])
    assert "said" in fields_at(Whole, [])
    assert fields_at(Whole, ["name"]) == {}


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("user_grop", ["user_group", "owner"], "user_group"),
        ("timeoutMs", ["timeout_ms", "latency_ms"], "timeout_ms"),
        ("Max-Concurrency", ["max_concurrency"], "max_concurrency"),
        ("log.qery", ["log.query", "log.count"], "log.query"),
        ("zzz", ["abc"], None),
        ("x", [], None),
        ("", ["a"], None),
    ],
)
def test_nearest(name: str, known: list[str], expected: str | None) -> None:
    assert nearest(name, known) == expected


@given(st.text(max_size=20), st.lists(st.text(min_size=1, max_size=12), max_size=8))
def test_nearest_does_not_depend_on_the_order(name: str, known: list[str]) -> None:
    found = nearest(name, known)

    assert found is None or found in known
    assert nearest(name, list(reversed(known))) == found


@given(st.text(min_size=1, max_size=30))
def test_a_known_name_is_nearest_to_itself(name: str) -> None:
    assert nearest(name, [name, name + "x"]) is not None
    assert nearest(name, [name]) == name


def test_pointers_escape_what_they_are_made_of() -> None:
    assert json_pointer([]) == ""
    assert json_pointer(["a/b", 0, "m~n", ""]) == "/a~1b/0/m~0n/"
    assert pointer_parts("") == []
    assert pointer_parts("/a~1b/0/m~0n/") == ["a/b", "0", "m~n", ""]
