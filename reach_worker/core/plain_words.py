"""What pydantic found, in words for someone who does not read Python."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from pydantic_core import ErrorDetails

LONGEST_VALUE: Final = 60
_COLLECTION: Final = "must be a list"
_MAPPING: Final = "must be a mapping (`name: value`)"

_WANTED: Final[Mapping[str, str]] = {
    "string_type": "must be text",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "list_type": _COLLECTION,
    "tuple_type": _COLLECTION,
    "set_type": _COLLECTION,
    "frozen_set_type": _COLLECTION,
    "dict_type": _MAPPING,
    "model_type": _MAPPING,
}

_BROKEN: Final[Mapping[str, Callable[[dict[str, Any]], str]]] = {
    "missing": lambda _: "is required",
    "extra_forbidden": lambda _: "unknown field",
    "unexpected_keyword_argument": lambda _: "unknown field",
    "finite_number": lambda _: "must be a finite number",
    "greater_than": lambda ctx: f"must be greater than {ctx['gt']:g}",
    "greater_than_equal": lambda ctx: f"must be at least {ctx['ge']:g}",
    "less_than": lambda ctx: f"must be less than {ctx['lt']:g}",
    "less_than_equal": lambda ctx: f"must be at most {ctx['le']:g}",
    "literal_error": lambda ctx: f"must be {ctx['expected']}",
    "enum": lambda ctx: f"must be {ctx['expected']}",
    "string_too_short": lambda ctx: _at_least(ctx["min_length"], "character"),
    "string_too_long": lambda ctx: f"is too long, {ctx['max_length']} characters at most",
    "string_pattern_mismatch": lambda ctx: f"must match {ctx['pattern']}",
    "too_short": lambda ctx: _at_least(ctx["min_length"], "item"),
    "too_long": lambda ctx: f"has too many items, {ctx['max_length']} at most",
    "value_error": lambda ctx: str(ctx["error"]),
}

_SHOWN: Final = frozenset(
    ["greater_than", "greater_than_equal", "less_than", "less_than_equal", "literal_error", "enum"]
)
"""Kinds whose message says what was there. Other texts are not repeated: they may be secret."""


def in_words(item: ErrorDetails) -> str:
    """One of pydantic's error details as the end of a sentence that begins with the field's name."""
    kind, value = item["type"], item["input"]
    if kind in _WANTED:
        return f"{_WANTED[kind]}, not {kind_of(value)}"
    if kind not in _BROKEN:
        return _as_an_end(item["msg"])
    text = _BROKEN[kind](item.get("ctx", {}))
    return f"{text}, not {_short(value)}" if kind in _SHOWN else text


def kind_of(value: object) -> str:
    """What a JSON value is, with its article. Numbers and truths show themselves."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return _short(value)
        case str():
            return "text"
        case list():
            return "a list"
        case _:
            return "a mapping"


def _as_an_end(sentence: str) -> str:
    for beginning in ("Input should ", "Value should "):
        if sentence.startswith(beginning):
            return f"must {sentence.removeprefix(beginning)}"
    return sentence[:1].lower() + sentence[1:]


def _at_least(count: int, noun: str) -> str:
    return "must not be empty" if count == 1 else f"needs at least {count} {noun}s"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST_VALUE else text[:LONGEST_VALUE] + "…"
