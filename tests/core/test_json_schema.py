"""Schemas are compiled offline, and no payload makes the validator raise."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError

from reach_worker.core.json_schema import LONGEST_MESSAGE, compile_schema, first_fault


def refused(schema: dict[str, Any]) -> tuple[str, list[Any]]:
    with pytest.raises(PydanticCustomError) as caught:
        compile_schema(schema)
    context = caught.value.context or {}
    return context["message"], context["at"]


@pytest.mark.parametrize(
    ("schema", "at"),
    [
        ({"type": "strin"}, ["type"]),
        ({"properties": {"a": {"minLength": "x"}}}, ["properties", "a", "minLength"]),
        ({"pattern": "("}, ["pattern"]),
        ({"required": ["a"], "minimum": "x"}, ["minimum"]),
        ({"$ref": "#/$defs/none"}, []),
        ({"$schema": "https://example.com/mine"}, []),
    ],
)
def test_what_is_no_schema_is_refused_at_its_place(schema: dict[str, Any], at: list[Any]) -> None:
    message, place = refused(schema)

    assert message.startswith("is not a JSON Schema: ")
    assert place == at


@pytest.mark.parametrize(
    ("schema", "at"),
    [
        ({"$ref": "http://127.0.0.1:9/x.json"}, ["$ref"]),
        ({"$ref": "file:///etc/hostname"}, ["$ref"]),
        ({"$ref": "other.json#/a"}, ["$ref"]),
        ({"$dynamicRef": "http://127.0.0.1:9/x.json"}, ["$dynamicRef"]),
        ({"items": {"anyOf": [{}, {"$ref": "http://127.0.0.1:9/x"}]}}, ["items", "anyOf", 1, "$ref"]),
        ({"properties": {"$ref": {"$ref": "http://127.0.0.1:9/x"}}}, ["properties", "$ref", "$ref"]),
    ],
)
def test_a_reference_that_leaves_the_schema_is_refused(schema: dict[str, Any], at: list[Any]) -> None:
    message, place = refused(schema)

    assert message.endswith("leaves the schema, and nothing is fetched")
    assert place == at


def test_a_schema_that_is_too_deep_is_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"not": deep}

    with pytest.raises((PydanticCustomError, RecursionError)):
        compile_schema(deep)


@pytest.mark.parametrize(
    ("schema", "payload", "pointer", "message"),
    [
        ({"type": "object"}, [], "", '[] is not of type "object"'),
        ({"required": ["a"]}, {}, "", '"a" is a required property'),
        ({"properties": {"a": {"minimum": 3}}}, {"a": 1}, "/a", "1 is less than the minimum of 3"),
        (
            {"properties": {"a/b": {"items": {"type": "string"}}}},
            {"a/b": ["x", 2]},
            "/a~1b/1",
            '2 is not of type "string"',
        ),
        ({"additionalProperties": False}, {"x~": 1}, "/x~0", "no field is called 'x~' here"),
        ({"items": {"additionalProperties": False}}, [{}, {"x": 1}], "/1/x", "no field is called 'x' here"),
        ({"properties": {}, "additionalProperties": False}, {"x": 1}, "/x", "no field is called 'x' here"),
        ({"unevaluatedProperties": False}, {"x": 1}, "/x", "no field is called 'x' here"),
        ({"properties": {"x": False}}, {"x": 1}, "/x", "False schema does not allow 1"),
        ({"$ref": "#/$defs/n", "$defs": {"n": {"type": "null"}}}, {}, "", '{} is not of type "null"'),
    ],
)
def test_the_first_fault_has_its_pointer(
    schema: dict[str, Any], payload: Any, pointer: str, message: str
) -> None:
    found = first_fault(compile_schema(schema), payload)

    assert found is not None
    assert found[0] == pointer
    assert message in found[1]


def test_a_payload_that_fits_has_no_fault() -> None:
    assert first_fault(compile_schema({}), {"anything": [1, None, "x"]}) is None


def test_long_messages_are_cut_and_say_so() -> None:
    found = first_fault(compile_schema({"type": "integer"}), "x" * 1_000_000)

    assert found is not None
    assert len(found[1]) < LONGEST_MESSAGE + 10
    assert found[1].endswith("… (cut)")


def deep_list(depth: int) -> list[Any]:
    deep: list[Any] = []
    for _ in range(depth):
        deep = [deep]
    return deep


@pytest.mark.parametrize(
    ("schema", "payload"),
    [
        ({"properties": {"a": {}}}, {1: "keys that are no text"}),
        ({"type": "array", "items": {"$ref": "#"}, "minItems": 1}, deep_list(1000)),
        ({"type": "object"}, deep_list(1000)),
    ],
)
def test_what_the_library_cannot_look_at_is_a_fault_too(schema: dict[str, Any], payload: Any) -> None:
    assert first_fault(compile_schema(schema), payload) is not None


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}]},
        {"anyOf": [{"$ref": "#"}, {"not": {"$ref": "#"}}]},
        {"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}}},
        {"pattern": r"^(a+)+\1b(?=c)$"},
        {"type": "array", "items": {"$ref": "#"}},
    ],
)
@pytest.mark.parametrize("payload", [{}, "a" * 5000, deep_list(1000)])
def test_schemas_that_turn_in_circles_come_to_an_end(schema: dict[str, Any], payload: Any) -> None:
    found = first_fault(compile_schema(schema), payload)

    assert found is None or found[1]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=10,
    )
)
def test_no_payload_raises(payload: Any) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "additionalProperties": {"maxLength": 2},
    }

    found = first_fault(compile_schema(schema), payload)

    assert found is None or found[0] == "" or found[0].startswith("/")
