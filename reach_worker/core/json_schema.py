"""JSON Schemas of capabilities: compiled once, never fetching anything, never raising on a payload."""

import functools
from collections.abc import Iterator, Mapping
from typing import Any, Final

import jsonschema_rs

from reach_worker.core.document import fault, json_pointer

LONGEST_MESSAGE: Final = 300
_BACKTRACK_LIMIT: Final = 100_000
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_TROUBLE: Final = (ValueError, TypeError, RecursionError, jsonschema_rs.ReferencingError)
"""What the library raises for values it cannot look at: nested too deep, or with keys that are no text."""


def compile_schema(schema: Mapping[str, Any]) -> jsonschema_rs.Validator:
    """A validator for ``schema``. Raises a ``fault`` that points at what is wrong inside it.

    It works offline: a reference that leaves the schema is an error, nothing is ever fetched. Patterns take a
    bounded number of steps.
    """
    try:
        return jsonschema_rs.validator_for(
            dict(schema), offline=True, pattern_options=jsonschema_rs.FancyRegexOptions(_BACKTRACK_LIMIT)
        )
    except _TROUBLE as error:
        outside = next(_outside_references(schema, ()), None)
        if outside is not None:
            *at, reference = outside
            message = f"the reference {reference!r} leaves the schema, and nothing is fetched"
            raise fault(message, *at, hint="copy it under $defs and refer to #/$defs/…") from None
        at = error.instance_path if isinstance(error, jsonschema_rs.ValidationError) else []
        raise fault(f"is not a JSON Schema: {_message(error)}", *at) from None


def first_fault(validator: jsonschema_rs.Validator, value: object) -> tuple[str, str] | None:
    """JSON pointer and words for the first thing in ``value`` that breaks the schema; ``None`` if it fits."""
    try:
        error = next(validator.iter_errors(value), None)
    except _TROUBLE as trouble:
        return "", f"cannot be checked: {_message(trouble)}"
    if error is None:
        return None
    name = _unexpected(error, value)
    if name is None:
        return json_pointer(error.instance_path), _message(error)
    return json_pointer([*error.instance_path, name]), f"no field is called {_cut(repr(name))} here"


def _unexpected(error: jsonschema_rs.ValidationError, value: Any) -> str | None:
    """The field that must not be there: it is pointed at itself, not at what holds it."""
    match error.kind:
        case (
            jsonschema_rs.ValidationErrorKind.AdditionalProperties(unexpected=[name, *_])
            | jsonschema_rs.ValidationErrorKind.UnevaluatedProperties(unexpected=[name, *_])
        ):
            return str(name)
        case jsonschema_rs.ValidationErrorKind.FalseSchema() if error.schema_path[-1:] == [
            "additionalProperties"
        ]:
            holder = functools.reduce(lambda inner, part: inner[part], error.instance_path, value)
            return str(next(iter(holder)))
        case _:
            return None


def _message(error: Exception) -> str:
    return _cut(error.message if isinstance(error, jsonschema_rs.ValidationError) else str(error))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_MESSAGE else text[:LONGEST_MESSAGE] + "… (cut)"


def _outside_references(schema: object, at: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    """Path and target of each reference that does not begin with ``#``."""
    if isinstance(schema, Mapping):
        for key, value in schema.items():
            if key in _REFERENCES and isinstance(value, str) and not value.startswith("#"):
                yield (*at, key, value)
            yield from _outside_references(value, (*at, key))
    elif isinstance(schema, list):
        for index, value in enumerate(schema):
            yield from _outside_references(value, (*at, index))
