"""The properties of a message as they lie on the wire, whoever wrote them.

RabbitMQ hands on properties that a library cannot decode: a message id that is not UTF-8, a timestamp beyond the year
9999, tables nested a thousand deep. Reading them here gives what pamqp would give, or a :class:`Fault` that says why
not; pamqp would raise, guess on where lengths do not add up, or take long.
"""

import struct
from collections.abc import Iterator
from functools import lru_cache
from itertools import repeat
from typing import Any, Final

from pamqp import commands, decode

MAX_DEPTH: Final = 32
"""Tables and arrays in each other. pamqp recurses and gives up at about 480, later encoders sooner."""

MAX_VALUES: Final = 1024
"""Header values, nested ones too. pamqp copies the rest of the frame for each: 120,000 take it a second."""

FIXED: Final = 12
"""What comes before the flags in a content header: class (2 bytes), weight (2), body size (8)."""

FLAGS: Final = struct.Struct(">H")
_MORE_FLAGS: Final = 1  # RabbitMQ ignores it; to pamqp it says that the next two bytes are flags as well
_SIZE: Final = struct.Struct(">I")
_TIMESTAMP: Final = struct.Struct(">Q")
_YEAR_10000: Final = 253_402_300_800
_MILLISECONDS: Final = 0xFFFFFFFF
"""A larger timestamp is taken for milliseconds, as pamqp takes it."""

_TEXT: Final = ord("S")
_NUMBERS: Final = {
    ord(kind): struct.Struct(f">{code}")
    for kind, code in zip("bBsuIilLfd", "bBhHiIqqfd", strict=True)  # kinds of RabbitMQ's, codes of struct's
}
_BOOLEAN, _BYTES, _DECIMAL, _TIME = ord("t"), ord("x"), ord("D"), ord("T")
_NOTHING: Final = frozenset((ord("V"), 0))
_DECIMAL_SIZE: Final = 5
_TABLE, _ARRAY = ord("F"), ord("A")


class Fault(Exception):  # noqa: N818 - of a message, not of ours
    """Why properties are not passed on: short, ASCII, for people."""


class Properties:
    """What a content header says of a message. Absent is ``None``; ``timestamp_s`` in seconds since 1970."""

    __slots__ = (
        "app_id",
        "cluster_id",
        "content_encoding",
        "content_type",
        "correlation_id",
        "delivery_mode",
        "expiration",
        "headers",
        "message_id",
        "message_type",
        "priority",
        "reply_to",
        "timestamp_s",
        "user_id",
    )

    headers: dict[str, Any] | None
    content_type: str | None
    content_encoding: str | None
    delivery_mode: int | None
    priority: int | None
    correlation_id: str | None
    reply_to: str | None
    expiration: str | None
    message_id: str | None
    timestamp_s: float | None
    message_type: str | None
    user_id: str | None
    app_id: str | None
    cluster_id: str | None

    def __init__(self, headers: dict[str, Any] | None = None) -> None:
        self.headers = headers
        self.content_type = self.content_encoding = self.correlation_id = self.reply_to = None
        self.delivery_mode = self.priority = self.timestamp_s = None
        self.expiration = self.message_id = self.message_type = None
        self.user_id = self.app_id = self.cluster_id = None


def read_properties(payload: bytes) -> Properties:
    """The properties in a content header. Raises :class:`Fault`."""
    try:
        found, end = _read(payload)
    except (IndexError, struct.error) as error:
        raise Fault("the properties are cut short") from error
    if end != len(payload):
        raise Fault("the properties do not end where the frame does")
    return found


def _read(payload: bytes) -> tuple[Properties, int]:
    (flags,) = FLAGS.unpack_from(payload, FIXED)
    if flags & _MORE_FLAGS:
        raise Fault("the properties announce more flags")
    found, at = Properties(), FIXED + FLAGS.size
    for name, kind in _flagged(flags):
        if kind == "shortstr":
            start = at + 1
            at = start + payload[at]
            try:
                setattr(found, name, payload[start:at].decode())
            except UnicodeDecodeError as error:
                raise Fault(f"{name} is not UTF-8") from error
        elif kind == "table":
            found.headers, at = _read_table(payload, at, MAX_DEPTH, repeat(1, MAX_VALUES))
        elif kind == "timestamp":
            found.timestamp_s = _seconds(payload, at)
            at += _TIMESTAMP.size
        else:
            setattr(found, name, payload[at])
            at += 1
    return found, at


@lru_cache(maxsize=256)
def _flagged(flags: int) -> tuple[tuple[str, str], ...]:
    known = commands.Basic.Properties
    return tuple((name, known.amqp_type(name)) for name in known.__slots__ if flags & known.flags[name])


def _read_table(payload: bytes, at: int, depth: int, left: Iterator[int]) -> tuple[dict[str, Any], int]:
    """A table and where it ends. ``left``: one more for each value that there may be.

    Texts and numbers, the most by far, without a call each.
    """
    (size,) = _SIZE.unpack_from(payload, at)
    at += 4
    end = at + size
    found: dict[str, Any] = {}
    while at < end and next(left, 0):
        start = at + 1
        at = start + payload[at]
        try:
            name = payload[start:at].decode()
        except UnicodeDecodeError as error:
            raise Fault("a header's name is not UTF-8") from error
        kind = payload[at]
        if kind == _TEXT:
            start = at + 5
            at = start + _SIZE.unpack_from(payload, at + 1)[0]
            raw = payload[start:at]
            try:
                found[name] = raw.decode()
            except UnicodeDecodeError:
                found[name] = raw
        elif (number := _NUMBERS.get(kind)) is not None:
            (found[name],) = number.unpack_from(payload, at + 1)
            at += 1 + number.size
        else:
            found[name], at = _read_value(payload, at, depth, left)
    _check_end(at, end)
    return found, at


def _read_array(payload: bytes, at: int, depth: int, left: Iterator[int]) -> tuple[list[Any], int]:
    (size,) = _SIZE.unpack_from(payload, at)
    at += 4
    end = at + size
    found: list[Any] = []
    while at < end and next(left, 0):
        value, at = _read_value(payload, at, depth, left)
        found.append(value)
    _check_end(at, end)
    return found, at


def _check_end(at: int, end: int) -> None:
    if at > end:
        raise Fault("a header value does not end where its table does")
    if at < end:
        raise Fault(f"there are more than {MAX_VALUES} header values")


def _read_value(payload: bytes, at: int, depth: int, left: Iterator[int]) -> tuple[Any, int]:
    """A value with its kind before it, and where it ends."""
    kind = payload[at]
    at += 1
    if (number := _NUMBERS.get(kind)) is not None:
        return number.unpack_from(payload, at)[0], at + number.size
    if kind == _BOOLEAN:
        return bool(payload[at]), at + 1
    if kind in _NOTHING:
        return None, at
    if kind in {_TEXT, _BYTES}:
        end = at + 4 + _SIZE.unpack_from(payload, at)[0]
        raw = payload[at + 4 : end]
        return (_text(raw) if kind == _TEXT else bytearray(raw)), end
    if kind == _TIME:
        _seconds(payload, at)
        return decode.timestamp(payload[at : at + _TIMESTAMP.size])[1], at + _TIMESTAMP.size
    if kind == _DECIMAL:
        end = at + _DECIMAL_SIZE
        return (decode.decimal(payload[at:end])[1] if end <= len(payload) else None), end
    if kind not in {_TABLE, _ARRAY}:
        raise Fault(f"a header value is of the unknown type {kind:#04x}")
    if not depth:
        raise Fault(f"the headers are nested more than {MAX_DEPTH} deep")
    return (_read_table if kind == _TABLE else _read_array)(payload, at, depth - 1, left)


def _text(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def _seconds(payload: bytes, at: int) -> float:
    (value,) = _TIMESTAMP.unpack_from(payload, at)
    if value >= _YEAR_10000 * 1000:
        raise Fault("a timestamp is beyond the year 9999")
    return value / 1000 if value > _MILLISECONDS else float(value)
