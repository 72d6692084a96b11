"""Reading JSON that somebody else wrote: bounded words about what is none, and one place in it."""

from typing import Any, Final

import orjson

from reach_worker.adapters.endings import Failed
from reach_worker.core.document import pointer_parts

SHOWN: Final = 200
"""Characters of what is no JSON that an error text shows."""

NOTHING: Final = object()


def read_json(body: bytes, what: str) -> Any:
    """The JSON value. Raises :class:`Failed` with the first characters of what is none."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        raise Failed(f"{what} is no JSON, it begins {beginning(body)!r}") from None


def beginning(body: bytes) -> str:
    """The first characters."""
    text = body[: 4 * SHOWN].decode("utf-8", "replace")
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def at(document: Any, pointer: str) -> Any:
    """What is at a JSON pointer, ``NOTHING`` if nothing is there."""
    for part in pointer_parts(pointer):
        if isinstance(document, dict) and part in document:
            document = document[part]
        elif isinstance(document, list) and part.isdecimal() and int(part) < len(document):
            document = document[int(part)]
        else:
            return NOTHING
    return document


def result_at(document: Any, pointer: str, what: str) -> Any:
    """What is at a JSON pointer. Raises :class:`Failed` if nothing is there."""
    found = at(document, pointer)
    if found is NOTHING:
        raise Failed(f"{what} has nothing at {pointer}")
    return found
