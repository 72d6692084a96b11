"""Reading one field of a payload, with an error that names the field."""

from collections.abc import Mapping
from typing import Any

_LONGEST_PROBLEM = 400


class PayloadError(ValueError):
    """A payload the job cannot work with. `field` is the key at fault; a long message is cut."""

    def __init__(self, field: str, problem: str) -> None:
        """Make the message `field: problem`."""
        super().__init__(f"{field}: {problem[:_LONGEST_PROBLEM]}")
        self.field = field


def text(payload: Mapping[str, Any], field: str) -> str:
    """The string in `field`, which must hold something other than white space."""
    value = payload.get(field)
    if not isinstance(value, str):
        raise PayloadError(field, f"must be a string, not {type(value).__name__}")
    if not value.strip():
        raise PayloadError(field, "is empty")
    return value


def whole(payload: Mapping[str, Any], field: str, default: int, at_most: int, at_least: int = 1) -> int:
    """The whole number in `field`, from `at_least` to `at_most`; `default` where the field is missing.

    JSON Schema calls `3.0` an integer, so a float without a fraction is one here too.
    """
    value = payload.get(field, default)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise PayloadError(field, f"must be a whole number, not {value!r}")
    if not at_least <= value <= at_most:
        raise PayloadError(field, f"must be between {at_least} and {at_most}, not {value}")
    return value


def switch(payload: Mapping[str, Any], field: str) -> bool:
    """The true or false in `field`; false where the field is missing."""
    value = payload.get(field, False)
    if not isinstance(value, bool):
        raise PayloadError(field, f"must be true or false, not {value!r}")
    return value
