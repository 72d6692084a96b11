"""Between AMQP's deliveries and ours. Nothing a producer can send makes this raise."""

import struct
from collections.abc import Mapping
from datetime import datetime
from typing import Final, NamedTuple

from aiormq.abc import DeliveredMessage

from reach_worker.bus.properties import Fault, Properties, read_properties
from reach_worker.bus.transport import UNDECODABLE, in_utf8
from reach_worker.core.message import Delivery

DIGITS: Final = 18
"""More make no number of milliseconds that anybody means."""

_TAG: Final = struct.Struct(">QB")
_INDEX_SIZE: Final = 4


class Arrival(NamedTuple):
    """What ``Basic.Deliver`` says."""

    consumer: str
    tag: int
    redelivered: bool
    exchange: str
    routing_key: str


def read_deliver(method: bytes) -> Arrival:
    """The payload of ``Basic.Deliver``."""
    consumer, at = _short(method, _INDEX_SIZE)
    tag, redelivered = _TAG.unpack_from(method, at)
    exchange, at = _short(method, at + _TAG.size)
    routing_key, _ = _short(method, at)
    return Arrival(consumer, tag, bool(redelivered & 1), exchange, routing_key)


def _short(data: bytes, at: int) -> tuple[str, int]:
    """A short string and where it ends, with ``?`` for each byte that is not UTF-8."""
    start = at + 1
    end = start + data[at]
    try:
        return data[start:end].decode(), end
    except UnicodeDecodeError:
        return in_utf8(data[start:end]).decode(), end


def delivery_of(queue: str, arrival: Arrival, header: bytes, body: bytes, receipt: object) -> Delivery:
    """What a consumer was given, in our own words."""
    fault = None
    try:
        found = read_properties(header)
    except Fault as error:
        fault = str(error)
        found = Properties(headers={UNDECODABLE: fault})
    return Delivery(
        queue,
        body,
        receipt,
        found.headers or {},
        found.message_id or None,
        found.correlation_id or None,
        found.reply_to or None,
        found.user_id or None,
        found.content_type or None,
        found.content_encoding or None,
        _whole(found.expiration),
        found.timestamp_s,
        arrival.routing_key,
        arrival.redelivered,
        fault or _told(found.headers),
        arrival.exchange,
    )


def delivery_from(message: DeliveredMessage, queue: str, receipt: object) -> Delivery:
    """What aiormq was given, when it asked for one message."""
    properties = message.header.properties
    headers = properties.headers if isinstance(properties.headers, Mapping) else {}
    timestamp = properties.timestamp
    return Delivery(
        queue=queue,
        body=message.body,
        receipt=receipt,
        headers=headers,
        message_id=properties.message_id or None,
        correlation_id=properties.correlation_id or None,
        reply_to=properties.reply_to or None,
        user_id=properties.user_id or None,
        content_type=properties.content_type or None,
        content_encoding=properties.content_encoding or None,
        expiration_ms=_whole(properties.expiration),
        timestamp_s=timestamp.timestamp() if isinstance(timestamp, datetime) else None,
        routing_key=message.routing_key or "",
        redelivered=bool(getattr(message.delivery, "redelivered", False)),
        fault=_told(headers),
        exchange=message.exchange or "",
    )


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) <= DIGITS else None


def _told(headers: Mapping[str, object] | None) -> str | None:
    fault = headers.get(UNDECODABLE) if headers else None
    return fault if isinstance(fault, str) else None
