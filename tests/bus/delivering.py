"""Frames as the broker sends them to a consumer."""

from types import SimpleNamespace
from typing import Any, Final, cast

from aiormq.abc import AbstractChannel, DeliveredMessage
from pamqp import frame
from pamqp.body import ContentBody
from pamqp.commands import Basic
from pamqp.header import ContentHeader

FIXED_SIZE: Final = 12
_BEFORE: Final = 7


def payload_of(data: bytes) -> bytes:
    """What is in a frame."""
    return data[_BEFORE:-1]


def delivered(method: Basic.Deliver, header: ContentHeader, body: bytes) -> DeliveredMessage:
    """The message as aiormq would give it, properties decoded."""
    decoded = frame.unmarshal(frame.marshal(header, 1))[2]
    return DeliveredMessage(method, cast("Any", decoded), body, cast("AbstractChannel", SimpleNamespace()))


def frames(body: bytes, tag: int = 1, *, channel: int = 7, size: int = 100, **properties: Any) -> list[bytes]:
    """A delivery; its body in frames of so many bytes."""
    method = Basic.Deliver("ctag", tag, redelivered=False, exchange="", routing_key="work")
    header = ContentHeader(0, len(body), Basic.Properties(**properties))
    parts = [ContentBody(body[at : at + size]) for at in range(0, len(body), size)]
    return [frame.marshal(method, channel), frame.marshal(header, channel)] + [
        frame.marshal(part, channel) for part in parts
    ]
