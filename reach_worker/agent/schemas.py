"""JSON Schemas and checks from type hints, by way of pydantic."""

import dataclasses
import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, Final, Literal, get_origin

from pydantic import ConfigDict, PydanticUndefinedAnnotation, PydanticUserError, TypeAdapter
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

from reach_worker.errors import BadInput, Problem

MAPPINGS: Final = (dict, Mapping)


class _Terse(GenerateJsonSchema):
    """Without the titles that pydantic makes out of the fields' names."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic's signature
        return False


def json_schema(
    adapter: TypeAdapter[Any], mode: Literal["validation", "serialization"], place: str
) -> dict[str, Any]:
    """The JSON Schema of what is read (``validation``) or written (``serialization``). Raises ``BadInput``."""
    with _own_words(place):
        return adapter.json_schema(mode=mode, by_alias=True, schema_generator=_Terse)


def adapter_of(hint: Any, place: str) -> TypeAdapter[Any]:
    """What reads and writes values of a type. Raises ``BadInput`` for a type that pydantic does not know."""
    with _own_words(place):
        return TypeAdapter(hint)


def takes_object(hint: Any, place: str) -> bool:
    """Whether a payload, which is an object, can be what ``hint`` says."""
    if hint in MAPPINGS or get_origin(hint) in MAPPINGS:
        return True
    schema = json_schema(adapter_of(hint, place), "validation", place)
    return any(each.get("type", "object") == "object" for each in _branches(schema, schema, ()))


def fields_adapter(name: str, fields: Mapping[str, inspect.Parameter], place: str) -> TypeAdapter[Any]:
    """What reads a payload whose fields are a function's parameters; it gives an object with them as attributes."""
    made = dataclasses.make_dataclass(
        name,
        [(each.name, each.annotation, _default(each)) for each in fields.values()],
        kw_only=True,
        namespace={"__pydantic_config__": ConfigDict(extra="forbid")},
    )
    return adapter_of(made, place)


def _default(parameter: inspect.Parameter) -> Any:
    value = parameter.default
    if value is parameter.empty:
        return dataclasses.field()
    if isinstance(value, FieldInfo) or value.__hash__ is not None:
        return dataclasses.field(default=value)
    return dataclasses.field(default_factory=lambda: deepcopy(value))


def _branches(
    schema: Mapping[str, Any], whole: Mapping[str, Any], seen: tuple[str, ...]
) -> Iterator[Mapping[str, Any]]:
    """What a value may be, one schema each."""
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference not in seen:
        yield from _branches(whole["$defs"][reference.rpartition("/")[2]], whole, (*seen, reference))
        return
    choices = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    if not choices:
        yield schema
    for choice in choices:
        yield from _branches(choice, whole, seen)


@contextmanager
def _own_words(place: str) -> Iterator[None]:
    """Pydantic's complaint about a type, with the place of the hint and without an address of its manual."""
    try:
        yield
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        first = str(error.message).splitlines()[0].partition(". ")[0]
        hint = "hint a pydantic model, a dataclass or a type that JSON has, or Any"
        raise BadInput(Problem(f"{place} has a type that has no JSON: {first}", hint=hint)) from None
