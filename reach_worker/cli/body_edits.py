"""Changing the body of a dead letter before it is replayed."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from reach_worker.core.dead_letter import DeadLetter
from reach_worker.core.document import pointer_parts
from reach_worker.core.replaying import HeldBack

_INDEX: Final = re.compile(r"0|[1-9][0-9]*")


def set_out(body: bytes) -> bytes:
    """The body for a person's eyes: JSON over several lines, anything else as it is."""
    try:
        return orjson.dumps(orjson.loads(body), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    except orjson.JSONDecodeError:
        return body


def of_the_same_task(letter: DeadLetter, body: bytes | HeldBack) -> bytes | HeldBack:
    """The new body, unless it names another task: history and answer belong to the id that the letter has."""
    if isinstance(body, HeldBack):
        return body
    new, old = _task_id(body), _task_id(letter.body)
    if new in (None, old, letter.task_id):
        return body
    return HeldBack(f"its task_id would become {new!r}; leave it, or publish that as a task of its own")


def _task_id(body: bytes) -> object:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return document.get("task_id") if isinstance(document, dict) else None


@dataclass(frozen=True, slots=True)
class Changes:
    """What is to be set and taken out, each at a JSON pointer (RFC 6901)."""

    settings: Sequence[tuple[str, Any]] = ()
    removals: Sequence[str] = ()

    def apply(self, body: bytes) -> bytes | HeldBack:
        """The changed body; held back where it is no JSON object or a pointer leads nowhere."""
        try:
            document = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            return HeldBack(f"its body is no JSON, so nothing can be set in it: {error}; use --edit")
        try:
            for pointer in self.removals:
                _remove(document, pointer)
            for pointer, value in self.settings:
                _set(document, pointer, value)
        except LookupError as error:
            return HeldBack(str(error.args[0]))
        return orjson.dumps(document)


def _set(document: Any, pointer: str, value: Any) -> None:
    """Replace or add. In a list ``-`` is the place after its end."""
    around, last = _around(document, pointer)
    if isinstance(around, dict):
        around[last] = value
    elif isinstance(around, list) and last == "-":
        around.append(value)
    else:
        around[_index(around, last, pointer)] = value


def _remove(document: Any, pointer: str) -> None:
    around, last = _around(document, pointer)
    if isinstance(around, dict):
        if last not in around:
            raise _nowhere(pointer)
        del around[last]
    else:
        del around[_index(around, last, pointer)]


def _around(document: Any, pointer: str) -> tuple[Any, str]:
    """What holds the place, and its name there."""
    *way, last = pointer_parts(pointer)
    for part in way:
        if isinstance(document, dict) and part in document:
            document = document[part]
        else:
            document = document[_index(document, part, pointer)]
    return document, last


def _index(around: Any, part: str, pointer: str) -> int:
    if isinstance(around, list) and _INDEX.fullmatch(part) and int(part) < len(around):
        return int(part)
    raise _nowhere(pointer)


def _nowhere(pointer: str) -> LookupError:
    return LookupError(f"its body has no {pointer}")
