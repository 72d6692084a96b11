"""What goes by aiormq, and what it must keep doing for that: a release that does not makes these tests fail."""

import asyncio
from dataclasses import dataclass, field
from itertools import pairwise
from typing import cast

import aiormq
import pytest
from aiormq.connection import FrameReceiver
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, frame
from pamqp.commands import Basic
from pamqp.header import ContentHeader
from pamqp.heartbeat import Heartbeat

from reach_worker.bus.bypass import Bypass
from reach_worker.bus.frames import publish_frames
from reach_worker.bus.transport import FrameMender, MendingReader, transport_for
from reach_worker.core.message import Message
from tests.bus.delivering import frames, payload_of
from tests.bus.until import LIMIT_S
from tests.bus.wire import Wire

DELIVER = Basic.Deliver.index.to_bytes(4)
ACK = Basic.Ack.index.to_bytes(4)


@dataclass
class Watched:
    """A bypass that takes deliveries and acks of channel 7, and notes them."""

    bypass: Bypass = field(default_factory=Bypass)
    methods: list[bytes] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.bypass.watch(7, {ACK: self.methods.append}, {DELIVER: self._content})

    def _content(self, _method: bytes, _header: bytes, body: bytes) -> None:
        self.bodies.append(body)

    def passes(self, data: bytes) -> bytes:
        mender = FrameMender(self.bypass)
        return mender.feed(data) + mender.rest()


GET_OK = b"".join(
    frame.marshal(each, 7)
    for each in (
        Basic.GetOk(1, redelivered=False, exchange="", routing_key="k", message_count=0),
        ContentHeader(0, 0),
    )
)
QOS_OK = frame.marshal(Basic.QosOk(), 7)
ALIEN = b"".join(frames(b"not ours", channel=8))


@given(st.lists(st.binary(max_size=300), max_size=5), st.integers(1, 120))
def test_deliveries_are_taken_and_the_rest_passes(bodies: list[bytes], size: int) -> None:
    watched = Watched()
    data = b"".join(b"".join(frames(body, size=size)) + QOS_OK + GET_OK + ALIEN for body in bodies)
    assert watched.passes(data) == (QOS_OK + GET_OK + ALIEN) * len(bodies)
    assert watched.bodies == bodies


@given(st.lists(st.binary(max_size=300), max_size=5), st.lists(st.integers(0, 2000), max_size=6))
def test_pieces_make_no_difference(bodies: list[bytes], cuts: list[int]) -> None:
    data = b"".join(b"".join(frames(body)) + QOS_OK for body in bodies)
    watched = Watched()
    mender = FrameMender(watched.bypass)
    ends = sorted({0, *(min(cut, len(data)) for cut in cuts), len(data)})
    assert b"".join(mender.feed(data[start:end]) for start, end in pairwise(ends)) == QOS_OK * len(bodies)
    assert watched.bodies == bodies


def test_channels_do_not_disturb_each_other() -> None:
    watched = Watched()
    other: list[bytes] = []
    watched.bypass.watch(8, {}, {DELIVER: lambda _method, _header, body: other.append(body)})
    mixed = zip(frames(b"a" * 250, channel=7), frames(b"b" * 250, channel=8), strict=True)
    assert watched.passes(b"".join(one + another for one, another in mixed)) == b""
    assert (watched.bodies, other) == ([b"a" * 250], [b"b" * 250])


def test_a_method_without_content_is_taken_alone() -> None:
    watched = Watched()
    ack = frame.marshal(Basic.Ack(5, multiple=True), 7)
    assert watched.passes(ack + QOS_OK) == QOS_OK
    assert watched.methods == [payload_of(ack)]


def test_content_that_no_broker_sends_is_left_to_aiormq() -> None:
    watched = Watched()
    method = frames(b"")[0]
    short = b"\x02\x00\x07\x00\x00\x00\x02ab\xce"
    assert watched.passes(method + short + QOS_OK) == short + QOS_OK
    assert watched.bodies == []


def test_an_alarm_is_noted_and_passes() -> None:
    watched = Watched()
    blocked, unblocked = (
        frame.marshal(each, 0)
        for each in (commands.Connection.Blocked("low on memory"), commands.Connection.Unblocked())
    )
    assert watched.passes(blocked) == blocked
    assert not watched.bypass.unblocked.is_set()
    assert watched.passes(unblocked) == unblocked
    assert watched.bypass.unblocked.is_set()


def test_nothing_can_be_written_before_and_after_the_connection() -> None:
    with pytest.raises(ConnectionError):
        Bypass().write(b"")


async def test_aiormq_hears_a_sign_of_life_for_what_it_does_not_see() -> None:
    source = asyncio.StreamReader()
    receiver = FrameReceiver(cast("asyncio.StreamReader", MendingReader(source, Watched().bypass)))
    source.feed_data(b"".join(frames(b"first")))
    async with asyncio.timeout(LIMIT_S):
        _, channel, seen = await receiver.get_frame()
        assert (channel, type(seen)) == (0, Heartbeat)
        source.feed_data(b"".join(frames(b"second")) + QOS_OK)  # no second one within the second
        _, channel, seen = await receiver.get_frame()
        assert (channel, type(seen)) == (7, Basic.QosOk)


@pytest.mark.broker
async def test_aiormq_and_the_bypass_write_whole_frames(broker_url: str, wire: Wire, prefix: str) -> None:
    """Both at once, each in its own way, with bodies of several frames; the broker would end it over one mixed frame."""
    queue = await wire.queue(f"{prefix}.work")
    bypass = Bypass()
    async with aiormq.connect(broker_url, transport_factory=transport_for(broker_url, bypass)) as connection:
        channel = await connection.channel(publisher_confirms=False)
        other = await connection.channel(publisher_confirms=False)
        large = bytes(range(256)) * 2048
        for number in range(20):
            bypass.write(b"".join(publish_frames(Message(queue, large), f"{number}", channel.number, 131072)))
            await other.basic_publish(large, routing_key=queue)
            await other.queue_declare(queue, passive=True)
        await wire.until_there(queue, 40)
        assert not connection.is_closed
    assert {message.body for message in await wire.get_all(queue)} == {large}
