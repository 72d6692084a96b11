"""Between AMQP's properties and ours."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from aiormq.abc import DeliveredMessage
from pamqp.commands import Basic

from reach_worker.bus.transport import UNDECODABLE
from reach_worker.core.message import Delivery, Message

PERSISTENT: Final = 2
TRANSIENT: Final = 1
DIGITS: Final = 18
"""More make no number of milliseconds that anybody means."""
HEADER_LIMIT: Final = 64 * 1024
"""All headers of a message together, bytes: the broker closes the connection at a frame of 128 KiB."""


def delivery_from(message: DeliveredMessage, queue: str, receipt: object) -> Delivery:
    """What came, in our own words. Nothing a producer can send makes this raise."""
    properties = message.header.properties
    headers = properties.headers if isinstance(properties.headers, Mapping) else {}
    timestamp = properties.timestamp
    fault = headers.get(UNDECODABLE)
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
        fault=fault if isinstance(fault, str) else None,
        exchange=message.exchange or "",
    )


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) <= DIGITS else None


def properties_of(message: Message, message_id: str) -> Basic.Properties:
    """AMQP's properties for a message of ours. The message id is new for every publish: confirms are told apart by it."""
    return Basic.Properties(
        content_type=message.content_type,
        headers=dict(message.headers),
        delivery_mode=PERSISTENT if message.persistent else TRANSIENT,
        correlation_id=message.correlation_id,
        reply_to=message.reply_to,
        expiration=None if message.expiration_ms is None else str(message.expiration_ms),
        message_id=message_id,
        user_id=message.user_id,
    )


def header_size(headers: Mapping[str, Any]) -> int:
    """About how many bytes the headers take on the wire."""
    return sum(
        len(name) + 6 + (len(value.encode()) if isinstance(value, str) else 9)
        for name, value in headers.items()
    )
