"""What AMQP can carry."""

from collections.abc import Mapping
from typing import Any, Final

HEADER_LIMIT: Final = 64 * 1024
LONG: Final = range(-(2**63), 2**63)


def sendable(headers: Mapping[str, Any]) -> bool:
    """Whether AMQP can carry these headers, and the broker would not close the connection for their size."""
    size = sum(
        len(name) + 6 + (len(value.encode()) if isinstance(value, str) else 9)
        for name, value in headers.items()
    )
    return size <= HEADER_LIMIT and all(_fits(value) for value in headers.values())


def _fits(value: object) -> bool:
    match value:
        case str() | bool() | float() | bytes() | None:
            return True
        case int():
            return value in LONG
        case list():
            return all(_fits(item) for item in value)
        case dict():
            return all(isinstance(name, str) and _fits(item) for name, item in value.items())
        case _:
            return False
