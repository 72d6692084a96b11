"""The frames that we write ourselves: publishes and acknowledgements, byte for byte what pamqp would make of them."""

import struct
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from pamqp import commands, constants, encode

from reach_worker.core.message import Message

HEADER_LIMIT: Final = 64 * 1024
"""All headers of a message together, bytes: the broker closes the connection at a frame of 128 KiB."""

OVERHEAD: Final = 8
"""Bytes of a frame beside its payload."""

PERSISTENT: Final = b"\2"
TRANSIENT: Final = b"\1"

_FRAME: Final = struct.Struct(">BHI")
_END: Final = constants.FRAME_END_CHAR
_CONTENT: Final = struct.Struct(">HHQH")  # class, weight, body size, flags
_SIZE: Final = struct.Struct(">I")
_TEXT: Final = struct.Struct(">cI")
_INT: Final = struct.Struct(">ci")
_LONG: Final = struct.Struct(">cq")
_LEAST, _MOST = -(2**31), 2**31 - 1
_SHORT: Final = 255
_LENGTHS: Final = tuple(bytes((length,)) for length in range(_SHORT + 1))
_ACK: Final = struct.Struct(">BHIIQBc")
_ACK_SIZE: Final = 13

_FLAGS: Final = commands.Basic.Properties.flags
_TYPE, _HEADERS, _MODE, _CORRELATION, _REPLY_TO, _EXPIRATION, _ID, _USER = (
    _FLAGS[name]
    for name in (
        "content_type",
        "headers",
        "delivery_mode",
        "correlation_id",
        "reply_to",
        "expiration",
        "message_id",
        "user_id",
    )
)


def publish_frames(message: Message, message_id: str, channel: int, frame_max: int) -> list[bytes]:
    """The pieces of one publish, to be written one behind the other.

    Raises :class:`ValueError`, :class:`TypeError` or :class:`struct.error` for what AMQP cannot carry, or what the
    broker would close the connection over.
    """
    content = _content(message, message_id)
    body = message.body
    room = frame_max - OVERHEAD
    pieces = [
        _publish(message.exchange, message.routing_key, message.mandatory, channel),
        _FRAME.pack(constants.FRAME_HEADER, channel, len(content)),
        content,
        _END,
    ]
    for start in range(0, len(body), room):
        part = body if len(body) <= room else body[start : start + room]
        pieces += (_FRAME.pack(constants.FRAME_BODY, channel, len(part)), part, _END)
    return pieces


def ack_frames(channel: int, acks: Iterable[tuple[int, bool]]) -> bytes:
    """Acknowledgements of delivery tags; each alone, or (``True``) with all before it."""
    index = commands.Basic.Ack.index
    return b"".join(
        _ACK.pack(constants.FRAME_METHOD, channel, _ACK_SIZE, index, tag, multiple, _END)
        for tag, multiple in acks
    )


@lru_cache(maxsize=1024)
def _publish(exchange: str, routing_key: str, mandatory: bool, channel: int) -> bytes:  # noqa: FBT001 - a cache takes positions
    payload = b"".join(
        (
            commands.Basic.Publish.index.to_bytes(4),
            b"\0\0",
            _short(exchange),
            _short(routing_key),
            b"\1" if mandatory else b"\0",
        )
    )
    return _FRAME.pack(constants.FRAME_METHOD, channel, len(payload)) + payload + _END


def _content(message: Message, message_id: str) -> bytes:
    """The payload of the content header: what is absent or empty is left out; the order is AMQP's."""
    flags = _MODE | _ID
    parts = [b""]
    if message.content_type:
        flags |= _TYPE
        parts.append(_known(message.content_type))
    if message.headers:
        flags |= _HEADERS
        parts.append(_headers(message.headers))
    parts.append(PERSISTENT if message.persistent else TRANSIENT)
    if message.correlation_id:
        flags |= _CORRELATION
        parts.append(_short(message.correlation_id))
    if message.reply_to:
        flags |= _REPLY_TO
        parts.append(_known(message.reply_to))
    if message.expiration_ms is not None:
        flags |= _EXPIRATION
        parts.append(_known(str(message.expiration_ms)))
    parts.append(_short(message_id))
    if message.user_id:
        flags |= _USER
        parts.append(_short(message.user_id))
    parts[0] = _CONTENT.pack(commands.Basic.frame_id, 0, len(message.body), flags)
    return b"".join(parts)


def _headers(headers: Mapping[str, Any]) -> bytes:
    parts: list[bytes] = []
    for name, value in headers.items():
        parts.append(_known(name))
        if type(value) is str:
            text = value.encode()
            parts += (_TEXT.pack(b"S", len(text)), text)
        elif type(value) is int:
            parts.append(_INT.pack(b"I", value) if _LEAST <= value <= _MOST else _LONG.pack(b"l", value))
        else:
            parts.append(encode.encode_table_value(value))
    table = b"".join(parts)
    if len(table) > HEADER_LIMIT:
        raise ValueError(f"headers of more than {HEADER_LIMIT} bytes would end the connection")
    return _SIZE.pack(len(table)) + table


@lru_cache(maxsize=1024)
def _known(text: str) -> bytes:
    """A short text of which there are few: a header's name, a content type, a queue that answers go to."""
    return _short(text)


def _short(text: str) -> bytes:
    raw = text.encode()
    if len(raw) > _SHORT:
        raise ValueError(f"{raw[:20]!r}… is longer than {_SHORT} bytes")
    return _LENGTHS[len(raw)] + raw
