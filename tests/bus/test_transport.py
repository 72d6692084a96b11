import asyncio
import os
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from itertools import chain, islice
from typing import Any, Final, cast

import aiormq
import pytest
from aiormq import exceptions as amqp
from aiormq.abc import AbstractChannel, AbstractConnection, DeliveredMessage
from aiormq.connection import FrameReceiver
from hypothesis import example, given
from hypothesis import strategies as st
from pamqp import commands, decode, frame
from pamqp.body import ContentBody
from pamqp.commands import Basic
from pamqp.common import FieldTable
from pamqp.exceptions import PAMQPException
from pamqp.header import ContentHeader
from pamqp.heartbeat import Heartbeat

from reach_worker.bus import transport
from reach_worker.bus.properties import MAX_DEPTH, MAX_VALUES
from reach_worker.bus.transport import UNDECODABLE, FrameMender, MendingReader, transport_for
from tests.bus import hostile_publisher as odd
from tests.bus.any_header import headers, texts
from tests.bus.hostile_publisher import OddMessage, RawPublisher

LIMIT_S: Final = 30.0
BODY_SIZE: Final = 1234
FIXED: Final = struct.pack(">HHQ", Basic.frame_id, 0, BODY_SIZE)


def framed(kind: int, payload: bytes, channel: int = 7) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def mend(data: bytes) -> bytes:
    mender = FrameMender()
    return mender.feed(data) + mender.rest()


def decoded(data: bytes) -> ContentHeader:
    size, channel, header = frame.unmarshal(data)
    assert isinstance(header, ContentHeader)
    assert (size, channel) == (len(data), 7)
    return header


def decodes(data: bytes) -> bool:
    try:
        frame.unmarshal(data)
    except (PAMQPException, RecursionError, OverflowError, OSError):
        return False
    return True


# ---- What is good stays as it is


@given(headers)
def test_a_good_header_passes_byte_for_byte(header: ContentHeader) -> None:
    data = frame.marshal(header, 7)
    assert mend(data) == data


def test_a_good_header_is_not_even_copied() -> None:
    payload = FIXED + odd.properties(message_id=odd.short(b"m"))
    assert transport.mend_header(payload) is payload


@pytest.mark.parametrize(
    "method",
    [
        Basic.Deliver("täg", 2**63 - 1, redelivered=True, exchange="reach.v1.tasks", routing_key="schlüssel"),
        Basic.GetOk(200, redelivered=False, exchange="", routing_key="🙈" * 60, message_count=2**32 - 1),
        Basic.Return(312, "NO_ROUTE", "x", "ключ"),
        Basic.Ack(2**63 - 1, multiple=True),
        commands.Channel.Close(404, "kein Schloß", 50, 10),
        commands.Queue.DeclareOk("lane", 255, 255),
    ],
)
def test_a_good_method_passes_byte_for_byte(method: Basic.Deliver) -> None:
    data = frame.marshal(method, 7)
    assert mend(data) == data


def test_bodies_and_heartbeats_pass_byte_for_byte() -> None:
    data = frame.marshal(ContentBody(bytes(range(256))), 7) + Heartbeat().marshal()
    assert mend(data) == data


# ---- What would not decode is replaced

header_payloads = headers.map(lambda header: FIXED + header.marshal()[len(FIXED) :])


@st.composite
def mutations(draw: st.DrawFn) -> bytes:
    """A good header with a few bytes changed, put in, or taken out, after the body size."""
    payload = bytearray(draw(header_payloads))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(len(FIXED), len(payload)))
        payload[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(payload)


def check_mended(payload: bytes) -> None:
    """What aiormq will see decodes, has its class and body size, and is what came or says that it is not."""
    data = framed(2, payload)
    mended = mend(data)
    header = decoded(mended)
    assert (header.class_id, header.body_size) == struct.unpack_from(">HxxQ", payload)
    if mended == data:
        return
    reason = (header.properties.headers or {})[UNDECODABLE]
    assert isinstance(reason, str)
    assert reason.isascii()
    assert len(reason) < 100
    assert dict(header.properties) == dict(Basic.Properties(headers={UNDECODABLE: reason}))


@given(mutations())
def test_any_mutation_of_a_header_decodes(payload: bytes) -> None:
    check_mended(payload)


@given(st.binary(max_size=80))
@example(b"")
@example(b"\x20\0\0\0\0\x0b\x01kF\0\0\0\x04\x01kzz")
def test_any_bytes_for_properties_decode(after: bytes) -> None:
    check_mended(FIXED + after)


@given(st.lists(st.sampled_from([*odd.ODD_VALUES.values()]), max_size=6), st.binary(max_size=4))
def test_any_odd_values_decode(odd_values: list[bytes], name: bytes) -> None:
    entries = [(name, value) for value in odd_values]
    check_mended(FIXED + odd.properties(headers=odd.headers(*entries, (b"a", odd.array(*odd_values)))))


@pytest.mark.parametrize("message", odd.catalogue(), ids=lambda message: message.kind)
def test_every_odd_message_decodes(message: OddMessage) -> None:
    check_mended(message.header_payload())


@pytest.mark.parametrize(
    "message", list(islice(odd.odd_messages(seed=1), 300)), ids=lambda message: message.kind
)
def test_mixed_odd_messages_decode(message: OddMessage) -> None:
    check_mended(message.header_payload())


@pytest.mark.parametrize("message", odd.catalogue(), ids=lambda message: message.kind)
def test_what_decodes_is_kept_unless_it_is_misread_or_too_much(message: OddMessage) -> None:
    data = framed(2, message.header_payload())
    if decodes(data) and mend(data) != data:
        reason = transport.fault_of(message.header_payload())
        misread = (
            "a header value does not end where its table does",
            "the properties do not end where the frame does",
            "the properties announce more flags",
            "the properties are cut short",
        )
        assert reason in (
            *misread,
            f"the headers are nested more than {MAX_DEPTH} deep",
            f"there are more than {MAX_VALUES} header values",
        )


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        (odd.properties(reply_to=odd.short(b"\xff")), "reply_to is not UTF-8"),
        (odd.properties(timestamp=b"\xff" * 8), "a timestamp is beyond the year 9999"),
        (odd.properties(headers=odd.headers((b"\xff", b"V"))), "a header's name is not UTF-8"),
        (odd.properties(headers=odd.headers((b"k", b"z"))), "a header value is of the unknown type 0x7a"),
        (
            odd.properties(headers=odd.headers((b"k", odd.nested(500)))),
            "the headers are nested more than 32 deep",
        ),
        (b"\x80\0\x09cut", "the properties do not end where the frame does"),
        (b"\x40\0", "the properties are cut short"),
        (
            b"\x20\0" + odd.sized(b"\x01kF\0\0\0\x03\x01aS\0\0\0\x01x"),
            "a header value does not end where its table does",
        ),
    ],
)
def test_the_reason_says_what_is_wrong(properties: bytes, reason: str) -> None:
    header = decoded(mend(framed(2, FIXED + properties)))
    assert header.properties.headers == {UNDECODABLE: reason}


def test_depth_and_number_of_values_have_a_limit() -> None:
    def fault(*values: bytes) -> str | None:
        return transport.fault_of(
            FIXED + odd.properties(headers=odd.headers(*((b"k", value) for value in values)))
        )

    depth, count = MAX_DEPTH, MAX_VALUES
    assert fault(odd.nested(depth)) is None
    assert fault(odd.nested(depth, as_array=True)) is None
    assert fault(odd.nested(depth + 1)) is not None
    assert fault(odd.nested(depth + 1, as_array=True)) is not None
    assert fault(*[b"V"] * count) is None
    assert fault(odd.array(*[b"V"] * (count - 1))) is None
    assert fault(*[b"V"] * (count + 1)) is not None
    assert fault(odd.array(*[b"V"] * (count // 2)), odd.table(*[(b"k", b"V")] * (count // 2))) is not None


def test_the_walk_knows_the_types_that_pamqp_knows() -> None:
    def known(kind: int) -> bool:
        entry = odd.headers((b"k", bytes([kind]) + bytes(40)))
        return "unknown type" not in (transport.fault_of(FIXED + odd.properties(headers=entry)) or "")

    assert {kind for kind in range(256) if known(kind)} == {ord(kind) for kind in decode.TABLE_MAPPING}


@given(st.integers(0, 2**64 - 1) | st.integers(-2000, 2000).map(lambda near: 253_402_300_800_000 + near))
def test_every_timestamp_decodes_or_is_replaced(value: int) -> None:
    check_mended(FIXED + odd.properties(timestamp=struct.pack(">Q", value)))


def test_a_header_too_short_for_a_body_size_is_left_to_aiormq() -> None:
    data = framed(2, FIXED[:-1])
    assert mend(data) == data


# ---- Texts in methods

short_texts = st.binary(max_size=255) | texts.map(str.encode)


def as_utf8(text: bytes) -> str:
    return text.decode("utf-8", "surrogateescape").encode("utf-8", "replace").decode()


def unmarshalled(payload: bytes) -> Any:
    before = framed(1, payload)
    mended = mend(before)
    assert len(mended) == len(before)
    assert mended == before or not decodes(before)
    return frame.unmarshal(mended)[2]


@given(short_texts, st.integers(0, 2**63 - 1), st.booleans(), short_texts, short_texts)
def test_a_delivery_decodes_and_keeps_its_numbers(
    tag: bytes, number: int, redelivered: bool, exchange: bytes, key: bytes
) -> None:
    start = struct.pack(">I", Basic.Deliver.index) + odd.short(tag) + struct.pack(">QB", number, redelivered)
    method = unmarshalled(start + odd.short(exchange) + odd.short(key))
    assert (method.delivery_tag, method.redelivered) == (number, redelivered)
    assert method.consumer_tag == as_utf8(tag)
    assert (method.exchange, method.routing_key) == (as_utf8(exchange), as_utf8(key))


@given(st.integers(0, 2**63 - 1), st.booleans(), short_texts, short_texts, st.integers(0, 2**32 - 1))
def test_a_message_that_was_got_decodes_and_keeps_its_numbers(
    number: int, redelivered: bool, exchange: bytes, key: bytes, count: int
) -> None:
    start = struct.pack(">IQB", Basic.GetOk.index, number, redelivered)
    method = unmarshalled(start + odd.short(exchange) + odd.short(key) + struct.pack(">I", count))
    assert (method.delivery_tag, method.redelivered, method.message_count) == (number, redelivered, count)
    assert (method.exchange, method.routing_key) == (as_utf8(exchange), as_utf8(key))


@given(st.integers(0, 65535).map(lambda code: code - 32768), short_texts, short_texts, short_texts)
def test_a_return_decodes(code: int, text: bytes, exchange: bytes, key: bytes) -> None:
    start = struct.pack(">Ih", Basic.Return.index, code) + odd.short(text)
    method = unmarshalled(start + odd.short(exchange) + odd.short(key))
    assert (method.exchange, method.routing_key, method.reply_text) == tuple(
        map(as_utf8, (exchange, key, text))
    )


@pytest.mark.parametrize("method", [commands.Channel.Close, commands.Connection.Close])
@given(text=short_texts)
def test_a_close_reason_decodes(method: type[commands.Channel.Close], text: bytes) -> None:
    close = unmarshalled(struct.pack(">IH", method.index, 404) + odd.short(text) + struct.pack(">HH", 50, 10))
    assert (close.reply_code, close.class_id, close.method_id) == (404, 50, 10)
    assert close.reply_text == as_utf8(text)


@given(st.sampled_from(sorted(transport._TEXTS)), st.binary(max_size=40))  # noqa: SLF001 - all there are
def test_a_method_of_any_bytes_raises_nothing(index: bytes, arguments: bytes) -> None:
    assert len(transport.mend_method(index + arguments)) == len(index + arguments)


# ---- The stream

streams = st.lists(
    st.one_of(
        mutations().map(lambda payload: framed(2, payload)),
        st.binary(max_size=40).map(lambda body: framed(3, body)),
        short_texts.map(
            lambda key: framed(1, struct.pack(">IQB", Basic.GetOk.index, 1, 0) + b"\0" + odd.short(key))
        ),
        st.just(Heartbeat().marshal()),
        st.just(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    ),
    max_size=8,
).map(b"".join)


@given(streams, st.lists(st.integers(1, 40)))
def test_pieces_make_no_difference(data: bytes, sizes: list[int]) -> None:
    mender, pieces, at = FrameMender(), [], 0
    for size in sizes:
        pieces.append(mender.feed(data[at : at + size]))
        at += size
    pieces.append(mender.feed(data[at:]))
    assert b"".join(pieces) + mender.rest() == mend(data)


async def observed(
    data: bytes, wrap: Callable[[asyncio.StreamReader], Any], error: Exception | None = None
) -> list[str]:
    """What aiormq makes of a stream that ends there, in an orderly way or with an error."""
    source = asyncio.StreamReader()
    receiver = FrameReceiver(wrap(source))
    source.feed_data(data)
    if error is None:
        source.feed_eof()
    seen: list[str] = []
    try:
        async for size, channel, found in receiver:
            seen.append(f"{size} {channel} {found.name} {getattr(found, 'value', b'')!r}")
            if error is not None and len(seen) == data.count(b"\xce"):
                source.set_exception(error)
    except (amqp.AMQPError, ValueError) as problem:
        seen.append(repr(problem))
    return seen


GOOD_STREAM: Final = b"".join(
    (
        frame.marshal(Basic.Deliver("tag", 1, redelivered=False, exchange="", routing_key="k"), 7),
        frame.marshal(
            ContentHeader(0, 3, Basic.Properties(headers={"k": [1, {"n": None}]}, message_id="m")), 7
        ),
        frame.marshal(ContentBody(b"abc"), 7),
        Heartbeat().marshal(),
    )
)


@pytest.mark.parametrize("length", range(len(GOOD_STREAM) + 1))
async def test_any_end_looks_as_it_does_without(length: int) -> None:
    data = GOOD_STREAM[:length]
    assert await observed(data, MendingReader) == await observed(data, lambda reader: reader)


@pytest.mark.parametrize(
    "data",
    [
        b"AMQP\0\0\x09\x01",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x15\x03\x01\0\x02\x02\x46",
        GOOD_STREAM + b"\x07\0\0\0\0\0\x01x\xce",
        GOOD_STREAM[:-1] + b"\0",
        framed(2, FIXED[:5]),
        framed(2, b""),
        framed(1, b"\0"),
        framed(1, b"\0\x3c\0\xff"),
        framed(2, FIXED + b"\x80\0\x01\xff")[:-1] + b"\0",
        b"\x03\0\x01\xff\xff\xff\xffabc",
    ],
    ids=repr,
)
async def test_what_no_broker_sends_ends_as_it_does_without(data: bytes) -> None:
    assert await observed(data, MendingReader) == await observed(data, lambda reader: reader)


async def test_another_protocol_ends_at_once_as_it_does_without() -> None:
    source = asyncio.StreamReader()
    source.feed_data(
        b"AMQP\0\0\x09\x01"
    )  # a broker's answer to a version that it does not speak; it waits then
    async with asyncio.timeout(LIMIT_S):
        with pytest.raises(amqp.ProtocolSyntaxError):
            await FrameReceiver(cast("asyncio.StreamReader", MendingReader(source))).get_frame()


async def test_a_reset_looks_as_it_does_without() -> None:
    reset = ConnectionResetError(104, "reset")
    seen = await observed(GOOD_STREAM, MendingReader, reset)
    assert seen == await observed(GOOD_STREAM, lambda reader: reader, reset)
    assert "reset" in seen[-1]


async def test_read_gives_the_rest() -> None:
    source = asyncio.StreamReader()
    reader = MendingReader(source)
    source.feed_data(GOOD_STREAM[:-3])
    assert await reader.readexactly(1) == GOOD_STREAM[:1]
    source.feed_eof()
    assert not reader.at_eof()
    assert await reader.read() == GOOD_STREAM[1:-3]
    assert reader.at_eof()


async def test_the_url_says_whether_it_is_tls() -> None:
    first: asyncio.Queue[bytes] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await first.put(await reader.readexactly(3))
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    async with asyncio.timeout(LIMIT_S), await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        for scheme, greeting in (("amqp", b"AMQ"), ("amqps", b"\x16\x03\x01")):
            url = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
            with pytest.raises(amqp.AMQPConnectionError):
                await aiormq.connect(url, transport_factory=transport_for(url))
            assert await first.get() == greeting


# ---- With a broker


@pytest.fixture
def url() -> str:
    url = os.environ.get("REACH_AMQP_URL")
    if url is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("REACH_AMQP_URL names no broker")
    return url


@pytest.fixture
async def connection(url: str) -> AsyncIterator[AbstractConnection]:
    async with aiormq.connect(url, transport_factory=transport_for(url)) as connection:
        yield connection


@pytest.fixture
async def channel(connection: AbstractConnection) -> AbstractChannel:
    return await connection.channel(publisher_confirms=False)


Declare = Callable[[str], Any]


@pytest.fixture
async def declare(channel: AbstractChannel) -> AsyncIterator[Declare]:
    """Declares an exchange and a queue that gets all that is sent there; gives the name of both."""
    async with AsyncExitStack() as stack:

        async def queue(name: str, arguments: FieldTable) -> str:
            await channel.queue_declare(name, durable=True, arguments=arguments)
            stack.push_async_callback(channel.queue_delete, name)
            return name

        async def declare(kind: str) -> str:
            name = f"test-transport-{os.urandom(8).hex()}"
            await channel.exchange_declare(name, exchange_type="fanout")
            stack.push_async_callback(channel.exchange_delete, name)
            if kind == "classic":
                first = await queue(name, {})
            elif kind == "quorum":
                first = await queue(name, {"x-queue-type": "quorum"})
            else:
                await queue(name, {"x-queue-type": "quorum"})
                dead: FieldTable = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": name}
                first = await queue(f"{name}-ttl", {"x-queue-type": "quorum", "x-message-ttl": 1, **dead})
            await channel.queue_bind(first, name)
            return name

        yield declare


async def publish_all(url: str, exchange: str, messages: list[OddMessage]) -> list[bytes]:
    """Send the messages, a good one before each; returns the bodies that the broker took."""
    goods = [OddMessage("good", pieces=(b"good %d" % number,)) for number in range(len(messages))]
    async with RawPublisher(url) as publisher:
        return [
            message.body
            for message in chain.from_iterable(zip(goods, messages, strict=True))
            if (await publisher.publish(message, exchange=exchange)).taken
        ]


async def consumed(channel: AbstractChannel, queue: str, count: int) -> list[DeliveredMessage]:
    """The first messages of a queue, acknowledged."""
    arrived: asyncio.Queue[DeliveredMessage] = asyncio.Queue()
    await channel.basic_qos(prefetch_count=50)
    await channel.basic_consume(queue, arrived.put)
    messages = []
    async with asyncio.timeout(LIMIT_S):
        for _ in range(count):
            message = await arrived.get()
            assert message.delivery_tag is not None
            await channel.basic_ack(message.delivery_tag, wait=False)
            messages.append(message)
    return messages


def undecodable(messages: list[DeliveredMessage]) -> int:
    return sum(UNDECODABLE in (message.header.properties.headers or {}) for message in messages)


@pytest.mark.broker
@pytest.mark.parametrize("kind", ["classic", "quorum", "dead-lettered"])
async def test_every_odd_message_arrives_in_order_on_one_connection(
    url: str, channel: AbstractChannel, declare: Declare, kind: str
) -> None:
    exchange = await declare(kind)
    sent = await publish_all(url, exchange, odd.catalogue())
    arrived = await consumed(channel, exchange, len(sent))
    assert [message.body for message in arrived] == sent
    assert undecodable(arrived) > 50


@pytest.mark.broker
@pytest.mark.parametrize("seed", [1, 2])
async def test_mixed_odd_messages_arrive_in_order_on_one_connection(
    url: str, channel: AbstractChannel, declare: Declare, seed: int
) -> None:
    exchange = await declare("classic")
    sent = await publish_all(url, exchange, list(islice(odd.odd_messages(seed), 150)))
    arrived = await consumed(channel, exchange, len(sent))
    assert [message.body for message in arrived] == sent
    assert undecodable(arrived) > 30


@pytest.mark.broker
async def test_odd_messages_can_be_got_one_by_one(
    url: str, channel: AbstractChannel, declare: Declare
) -> None:
    exchange = await declare("classic")
    message = OddMessage("odd", odd.properties(message_id=odd.short(b"\xff")), routing_key=b"key \xff\xfe")
    sent = await publish_all(url, exchange, [message])
    good, bad = [await channel.basic_get(exchange, no_ack=True) for _ in sent]
    assert (good.header.properties.headers, bad.header.properties.headers) == (
        None,
        {UNDECODABLE: "message_id is not UTF-8"},
    )
    assert (bad.routing_key, bad.body, bad.message_count) == ("key ??", message.body, 0)


@pytest.mark.broker
@pytest.mark.parametrize("shift", [0, 1], ids=["cut between characters", "cut in a character"])
async def test_a_close_reason_that_rabbitmq_cut_ends_the_channel_only(
    connection: AbstractConnection, shift: int
) -> None:
    channel = await connection.channel()
    properties = Basic.Properties(expiration="x" * shift + "ü" * 120)
    with pytest.raises(amqp.ChannelPreconditionFailed, match="invalid expiration"):
        await channel.basic_publish(b"", properties=properties)
    assert not connection.is_closed


@pytest.mark.broker
async def test_without_it_the_connection_dies(url: str, channel: AbstractChannel, declare: Declare) -> None:
    exchange = await declare("classic")
    async with RawPublisher(url) as publisher:
        message = OddMessage("odd", odd.properties(message_id=odd.short(b"\xff")))
        assert (await publisher.publish(message, exchange=exchange)).taken
    bare = await aiormq.connect(url)
    ended = bare.closing
    bare_channel = await bare.channel()
    with suppress(amqp.AMQPError):  # the end may come before the answer
        await bare_channel.basic_consume(exchange, asyncio.Queue[DeliveredMessage]().put)
    with pytest.raises(amqp.InvalidFrameError):
        await asyncio.wait_for(ended, LIMIT_S)
    assert len(await consumed(channel, exchange, 1)) == 1
