import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import frame
from pamqp.body import ContentBody
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from reach_worker.bus.frames import HEADER_LIMIT, ack_frames, publish_frames
from reach_worker.core.message import Message
from tests.bus.any_header import names, texts, values

FRAME_MAX = 4096

some = st.none() | texts
messages = st.builds(
    Message,
    routing_key=texts,
    body=st.binary(max_size=60) | st.sampled_from([4088, 4089, 3 * 4088 + 1]).map(bytes),
    headers=st.dictionaries(names, values, max_size=8),
    exchange=st.sampled_from(["", "reach.v1.tasks"]),
    correlation_id=some,
    reply_to=some,
    content_type=st.none() | st.just("application/json"),
    expiration_ms=st.none() | st.integers(0, 2**40),
    user_id=some,
    persistent=st.booleans(),
    mandatory=st.booleans(),
)


def unmarshalled(data: bytes) -> list[Any]:
    found = []
    while data:
        size, channel, one = frame.unmarshal(data)
        assert channel == 3
        found.append(one)
        data = data[size:]
    return found


def told(properties: Basic.Properties) -> list[str]:
    """What properties say; headers in any order, and what is not a number as equal to itself."""
    said = {**dict(properties), "headers": None}
    return sorted(map(repr, [*said.items(), *(properties.headers or {}).items()]))


@given(messages)
def test_a_publish_is_read_as_what_pamqp_would_have_written(message: Message) -> None:
    written = b"".join(publish_frames(message, "m-1", 3, FRAME_MAX))
    method, header, *bodies = unmarshalled(written)
    wanted = Basic.Properties(
        content_type=message.content_type,
        headers=dict(message.headers),
        delivery_mode=2 if message.persistent else 1,
        correlation_id=message.correlation_id,
        reply_to=message.reply_to,
        expiration=None if message.expiration_ms is None else str(message.expiration_ms),
        message_id="m-1",
        user_id=message.user_id,
    )
    theirs = frame.unmarshal(frame.marshal(ContentHeader(0, len(message.body), wanted), 3))[2]
    assert isinstance(header, ContentHeader)
    assert isinstance(theirs, ContentHeader)
    assert header.body_size == len(message.body)
    assert told(header.properties) == told(theirs.properties)
    assert isinstance(method, Basic.Publish)
    assert (method.exchange, method.routing_key) == (message.exchange, message.routing_key)
    assert (method.mandatory, method.immediate) == (message.mandatory, False)
    assert all(isinstance(body, ContentBody) and len(body.value) <= FRAME_MAX - 8 for body in bodies)
    assert b"".join(body.value for body in bodies) == message.body
    assert len(bodies) == -(-len(message.body) // (FRAME_MAX - 8))


@pytest.mark.parametrize(
    "message",
    [
        Message("q", b"", {"n": 2**63}),
        Message("q", b"", {"x": object()}),
        Message("q", b"", {"t": "\ud800"}),
        Message("q", b"", {"n" * 256: 1}),
        Message("r" * 256, b""),
        Message("q", b"", reply_to="a" * 256),
        Message("q", b"", {"long": "m" * HEADER_LIMIT}),
    ],
    ids=["number", "type", "surrogate", "name", "routing key", "reply to", "size"],
)
def test_what_amqp_cannot_carry_raises(message: Message) -> None:
    with pytest.raises((ValueError, TypeError, struct.error)):
        publish_frames(message, "m-1", 3, FRAME_MAX)


@given(st.lists(st.tuples(st.integers(1, 2**63 - 1), st.booleans()), max_size=5))
def test_acknowledgements_are_what_pamqp_would_have_written(acks: list[tuple[int, bool]]) -> None:
    theirs = [frame.marshal(Basic.Ack(tag, multiple=multiple), 3) for tag, multiple in acks]
    assert ack_frames(3, acks) == b"".join(theirs)
