"""A message as it came, and one to send."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from reach_worker.core.value import value


@value(frozen=True, slots=True)
class Delivery:
    """A message as it came. ``receipt`` is the adapter's own; only it knows what to do with it.

    ``expiration_ms`` and ``timestamp_s`` are the publisher's; ``fault`` tells that the properties could not be decoded.
    ``exchange``: where it was published to, empty for the default one.
    """

    queue: str
    body: bytes
    receipt: object
    headers: Mapping[str, Any] = field(default_factory=dict)
    message_id: str | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    user_id: str | None = None
    content_type: str | None = None
    content_encoding: str | None = None
    expiration_ms: int | None = None
    timestamp_s: float | None = None
    routing_key: str = ""
    redelivered: bool = False
    fault: str | None = None
    exchange: str = ""


@value(frozen=True, slots=True)
class Message:
    """A message to send. An empty ``exchange`` is the default one: ``routing_key`` names the queue.

    ``message_id``: only for a caller who names a task by it; all others get one that is new for every publish.
    """

    routing_key: str
    body: bytes
    headers: Mapping[str, Any] = field(default_factory=dict)
    exchange: str = ""
    message_id: str | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    content_type: str | None = "application/json"
    expiration_ms: int | None = None
    user_id: str | None = None
    persistent: bool = True
    mandatory: bool = True
