"""Personal data in a payload: which fields are, by the word of the fleet's manifests, and which a schema asks for.

Fields are known by their name, at whatever depth they stand and in whatever case they are written. A name is the last
part of what a manifest marks: ``customer.email`` and ``/customer/email`` mark ``email``.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from reach_worker.core.document import json_pointer
from reach_worker.core.manifest import Manifest

MOST_TOLD: Final = 3
"""Fields of one payload that are named; the others are only counted."""


def marked(manifests: Iterable[Manifest]) -> frozenset[str]:
    """The names of fields that any of the manifests marks as personal."""
    return frozenset(_name(field) for manifest in manifests for field in manifest.pii)


def asked_for(schema: Mapping[str, Any]) -> frozenset[str]:
    """The names of fields that a JSON Schema describes or requires, at any depth."""
    found: set[str] = set()
    for _, part in _parts(schema):
        properties, required = part.get("properties"), part.get("required")
        if isinstance(properties, dict):
            found.update(name.casefold() for name in properties)
        if isinstance(required, list):
            found.update(name.casefold() for name in required if isinstance(name, str))
    return frozenset(found)


def fields_named(payload: Mapping[str, Any], names: frozenset[str]) -> tuple[tuple[str, str], ...]:
    """Name and JSON pointer of the fields of a payload that bear one of the names, the first of each name."""
    found: dict[str, str] = {}
    for place, part in _parts(payload):
        for key in part:
            name = key.casefold()
            if name in names and name not in found:
                found[name] = json_pointer((*place, key))
    return tuple(found.items())


def told(pointers: Iterable[str]) -> str:
    """A few places in words: ``payload/email, payload/user/phone``."""
    places = [f"payload{pointer}" for pointer in pointers]
    more = len(places) - MOST_TOLD
    return ", ".join(places[:MOST_TOLD]) + (f" and {more} more" if more > 0 else "")


def _name(field: str) -> str:
    return re.split(r"[./]", field.rstrip("./[]*"))[-1].casefold()


def _parts(data: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """Every object inside with its place, the outermost first. A payload may be nested deeper than the stack."""
    left: deque[tuple[tuple[str, ...], Any]] = deque([((), data)])
    while left:
        place, part = left.popleft()
        if isinstance(part, list):
            inside = [(str(index), value) for index, value in enumerate(part)]
        else:
            yield place, part
            inside = list(part.items())
        left += [((*place, name), value) for name, value in inside if isinstance(value, dict | list)]
