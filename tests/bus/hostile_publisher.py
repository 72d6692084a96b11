"""Messages that no well-behaved client would send, and a bare socket that sends them.

``catalogue()`` holds one message of each kind; ``odd_messages(seed)`` goes on for ever and mixes them, always
the same for the same seed. Both are plain bytes. ``RawPublisher`` sends them, and says what the broker did::

    async with RawPublisher(url) as publisher:
        for message in itertools.islice(odd_messages(seed=7), 500):
            taken = await publisher.publish(message, exchange="reach.v1.tasks", routing_key="any.thing")

RabbitMQ closes the channel or the connection over some of them; the publisher then connects anew by itself.
"""

import asyncio
import json
import random  # noqa: TID251 - only with a seed, which the test names: the same messages every time
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Final, Self

from pamqp import base, commands, frame
from pamqp.commands import Basic
from pamqp.constants import FRAME_BODY, FRAME_END_CHAR, FRAME_HEADER
from yarl import URL

GOOD_BODY: Final = b'{"capability": "any.thing", "payload": {}}'


@dataclass(frozen=True, slots=True)
class OddMessage:
    """A message as it goes over the wire.

    ``kind`` says what is odd. ``properties`` are the flags and the values. ``pieces`` are the body's frames.
    ``routing_key`` replaces the one given to ``publish``. ``fixed`` is the header's class id and weight.
    """

    kind: str
    properties: bytes = b"\0\0"
    pieces: tuple[bytes, ...] = (GOOD_BODY,)
    routing_key: bytes | None = None
    fixed: bytes = struct.pack(">HH", Basic.frame_id, 0)

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)

    def header_payload(self) -> bytes:
        """The payload of the content header frame."""
        return self.fixed + struct.pack(">Q", len(self.body)) + self.properties


# ---- The parts, as bytes


def short(text: bytes) -> bytes:
    return bytes([len(text)]) + text


def sized(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content


def text(content: bytes) -> bytes:
    """A header value: a long string."""
    return b"S" + sized(content)


def array(*values: bytes) -> bytes:
    """A header value: an array of values."""
    return b"A" + sized(b"".join(values))


def table(*entries: tuple[bytes, bytes]) -> bytes:
    """A header value: a table of names and values."""
    return b"F" + headers(*entries)


def headers(*entries: tuple[bytes, bytes]) -> bytes:
    """The headers property."""
    return sized(b"".join(short(name) + value for name, value in entries))


def nested(depth: int, *, as_array: bool = False) -> bytes:
    """A header value that is ``depth`` tables, or arrays, in each other."""
    value = b"V"
    for _ in range(depth):
        value = array(value) if as_array else table((b"k", value))
    return value


def properties(**values: bytes) -> bytes:
    """Flags and values, each value as it is on the wire."""
    flags = sum(Basic.Properties.flags[name] for name in values)
    return struct.pack(">H", flags) + b"".join(
        values[name] for name in Basic.Properties.__slots__ if name in values
    )


def _stamp(value: int) -> bytes:
    return struct.pack(">Q", value)


# ---- What is odd

TEXT_PROPERTIES: Final = tuple(
    n for n in Basic.Properties.__slots__ if Basic.Properties.amqp_type(n) == "shortstr"
)

ODD_TEXTS: Final[Mapping[str, bytes]] = {
    "empty": b"",
    "not UTF-8": b"\xff\xfe",
    "cut in a character": "täsk".encode()[:2],
    "a surrogate": b"\xed\xa0\x80",
    "Latin-1": "Größe".encode("latin-1"),
    "a zero byte": b"a\0b",
    "line breaks": b"a\r\nX: b\x1b[2J",
    "longest": b"m" * 255,
    "longest, not UTF-8": b"\xff" * 255,
    "emoji": "🙈🙉🙊".encode(),
}

TIMESTAMPS: Final[Mapping[str, int]] = {
    "1970": 0,
    "above 32 bits": 2**32,
    "last second of 9999": 253_402_300_799,
    "first second of 10000": 253_402_300_800,
    "last millisecond of 9999": 253_402_300_799_999,
    "first millisecond of 10000": 253_402_300_800_000,
    "microseconds": 1_800_000_000_000_000,
    "largest signed": 2**63 - 1,
    "negative": 2**63,
    "largest": 2**64 - 1,
}

ODD_VALUES: Final[Mapping[str, bytes]] = {
    "true": b"t\x01",
    "a boolean of 255": b"t\xff",
    "void": b"V",
    "byte": b"b\x80",
    "unsigned byte": b"B\xff",
    "short": b"s\x80\0",
    "unsigned short": b"u\xff\xff",
    "int": b"I\x80\0\0\0",
    "unsigned int": b"i\xff\xff\xff\xff",
    "long": b"l\x80" + bytes(7),
    "long as L": b"L\x7f" + b"\xff" * 7,
    "float": struct.pack(">cf", b"f", 1.5),
    "largest double": struct.pack(">cd", b"d", 1.7e308),
    "smallest double": struct.pack(">cd", b"d", 5e-324),
    "not a number": struct.pack(">cd", b"d", float("nan")),
    "infinity": struct.pack(">cd", b"d", float("-inf")),
    "not a number, float": struct.pack(">cf", b"f", float("nan")),
    "decimal": b"D\x02\0\0\0\x7b",
    "decimal of 255 places": b"D\xff\xff\xff\xff\xff",
    "text": text(b"plain"),
    "text that is not UTF-8": text(b"\xff\xfe"),
    "long text": text(b"t" * 60_000),
    "bytes": b"x" + sized(b"\0\xff"),
    "empty table": table(),
    "empty array": array(),
    "table": table((b"a", text(b"b")), (b"c", array(b"t\x01", b"V"))),
    "table with a name that is not UTF-8": table((b"\xff", b"V")),
    "array with a late timestamp": array(text(b"a"), b"T" + _stamp(2**63)),
    "16 tables deep": nested(16),
    "100 tables deep": nested(100),
    "5,000 tables deep": nested(5_000),
    "5,000 arrays deep": nested(5_000, as_array=True),
    "2,000 voids": array(*[b"V"] * 2_000),
    "120,000 voids": array(*[b"V"] * 120_000),
    "3,000 entries": table(*[(b"k%d" % n, b"b\x01") for n in range(3_000)]),
    "unknown type z": b"z\0",
    "unknown type 0": b"\0",
    "unknown type 255": b"\xff\0\0\0\0",
    "text longer than its table": b"S\0\0\xff\xffx",
    "array longer than its table": b"A\x7f\xff\xff\xffV",
    "table cut short": b"F\0\0\0\x02\x05a",
    **{f"timestamp: {name}": b"T" + _stamp(value) for name, value in TIMESTAMPS.items()},
}

ODD_HEADERS: Final[Mapping[str, bytes]] = {
    **{f"header value: {name}": headers((b"k", value)) for name, value in ODD_VALUES.items()},
    **{f"header name: {name}": headers((value, b"V")) for name, value in ODD_TEXTS.items()},
    "headers: none": headers(),
    "headers: one name twice": headers((b"k", text(b"a")), (b"k", b"I\0\0\0\x01")),
    "headers: overlong": struct.pack(">I", 0xFFFF_FFFF),
    "headers: a name without a value": sized(b"\x01k"),
    "headers: CC is a text": headers((b"CC", text(b"nowhere"))),
    "headers: CC of numbers": headers((b"CC", array(b"I\0\0\0\x01"))),
    "headers: CC not UTF-8": headers((b"CC", array(text(b"\xff")))),
    "headers: BCC": headers((b"BCC", array(text(b"nowhere")))),
    "headers: x-death is a text": headers((b"x-death", text(b"often"))),
    "headers: x-death of odd tables": headers(
        (b"x-death", array(table((b"count", text(b"many")), (b"queue", b"V"))))
    ),
    "headers: x-delivery-count is a text": headers((b"x-delivery-count", text(b"many"))),
    "headers: claims to be undecodable": headers((b"x-reach-undecodable", text(b"believe me"))),
    "headers: claims to be ours": headers(
        (b"x-reach-task", table()), (b"x-reach-attempts", text(b"[")), (b"x-reach-deadline", text(b"soon"))
    ),
}

ODD_PROPERTIES: Final[Mapping[str, bytes]] = {
    **{
        f"{name}: {kind}": properties(**{name: short(value)})
        for name in TEXT_PROPERTIES
        for kind, value in ODD_TEXTS.items()
    },
    **{f"timestamp: {kind}": properties(timestamp=_stamp(value)) for kind, value in TIMESTAMPS.items()},
    **{f"delivery mode: {value}": properties(delivery_mode=bytes([value])) for value in (0, 3, 255)},
    **{f"priority: {value}": properties(priority=bytes([value])) for value in (0, 10, 255)},
    **{
        f"expiration: {value!r}": properties(expiration=short(value))
        for value in (b"-1", b"1e3", b"9" * 30, b" 5000")
    },
    "user id: somebody else": properties(user_id=short(b"somebody")),
    **{kind: properties(headers=value) for kind, value in ODD_HEADERS.items()},
    "flags: more to follow": struct.pack(">H", 1) + properties(message_id=short(b"m")),
    "flags: more, claimed": struct.pack(">H", 0x80 | 1) + short(b"message"),
    "flags: reserved": struct.pack(">H", 0x80 | 2) + short(b"message"),
    "flags: all, nothing there": b"\xff\xfc",
    "flags: cut short": b"\x80",
    "flags: none": b"",
    "properties: bytes left over": properties(message_id=short(b"m")) + b"more",
    "properties: a text cut short": properties(message_id=b"\x20m"),
}

ODD_BODIES: Final[Mapping[str, tuple[bytes, ...]]] = {
    "nothing": (),
    "good": (GOOD_BODY,),
    "in single bytes": tuple(bytes([byte]) for byte in GOOD_BODY),
    "with empty frames": (b"", GOOD_BODY[:9], b"", b"", GOOD_BODY[9:]),
    "one large frame": (b"x" * 131_064,),
    "several frames": (b"x" * 100_000, b"y" * 100_000, b"z" * 100_000),
    "not UTF-8": (b'{"capability": "\xff"}',),
    "UTF-16": (GOOD_BODY.decode().encode("utf-16"),),
    "byte order mark": (b"\xef\xbb\xbf" + GOOD_BODY,),
    "half": (GOOD_BODY[: len(GOOD_BODY) // 2],),
    "zero bytes": (bytes(1000),),
    "a list": (b"[]",),
    "null": (b"null",),
    "a number": (b"1e999",),
    "NaN": (b'{"capability": "any.thing", "payload": {"n": NaN}}',),
    "huge integer": (b'{"capability": "any.thing", "payload": {"n": ' + b"9" * 5000 + b"}}",),
    "a name twice": (b'{"capability": "any.thing", "capability": "any.thing"}',),
    "lone surrogate": (rb'{"capability": "\ud800", "payload": {}}',),
    "zero in text": (rb'{"capability": "a\u0000b", "payload": {}}',),
    "100,000 deep": (b'{"payload": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",),
    "500 deep": (b'{"capability": "any.thing", "payload": {"n": ' + b"[" * 500 + b"]" * 500 + b"}}",),
    "wrong types": (
        json.dumps({"capability": 1, "payload": [], "requires": {}, "deadline_ms": "soon"}).encode(),
    ),
}

ODD_ROUTING_KEYS: Final[Mapping[str, bytes]] = {
    f"routing key: {name}": value for name, value in ODD_TEXTS.items()
}


def catalogue() -> list[OddMessage]:
    """One message of each kind, odd in one way only."""
    return [
        *(OddMessage(kind, properties=value) for kind, value in ODD_PROPERTIES.items()),
        *(OddMessage(f"body: {kind}", pieces=pieces) for kind, pieces in ODD_BODIES.items()),
        *(OddMessage(kind, routing_key=value) for kind, value in ODD_ROUTING_KEYS.items()),
        OddMessage("fixed: weight", fixed=struct.pack(">HH", Basic.frame_id, 7)),
        OddMessage("fixed: class", fixed=struct.pack(">HH", 10, 0)),
    ]


def odd_messages(seed: int, bodies: Sequence[bytes] = (GOOD_BODY,)) -> Iterator[OddMessage]:
    """Messages without end: random properties, half of the bodies from ``bodies`` and half odd ones.

    About two in three are odd in something a broker does not look at. ``kind`` names the seed and the number.
    """
    rng = random.Random(seed)
    number = 0
    while True:
        number += 1
        pieces = (rng.choice(bodies),) if rng.random() < 0.5 else rng.choice(list(ODD_BODIES.values()))
        message = OddMessage(
            f"seed {seed}, message {number}", properties=_random_properties(rng), pieces=pieces
        )
        if rng.random() < 0.1:
            message = replace(message, routing_key=rng.choice(list(ODD_TEXTS.values())))
        yield message


def _random_properties(rng: random.Random) -> bytes:
    """Some properties, good and odd. What the broker checks itself (user, expiration) is mostly left out."""
    if rng.random() < 0.1:
        return rng.choice(list(ODD_PROPERTIES.values()))
    makers: dict[str, Callable[[random.Random], bytes]] = dict.fromkeys(TEXT_PROPERTIES, _random_text)
    makers |= {
        "headers": _random_headers,
        "delivery_mode": lambda rng: bytes([rng.choice((1, 2, 2, rng.randrange(256)))]),
        "priority": lambda rng: bytes([rng.randrange(256)]),
        "timestamp": lambda rng: _stamp(rng.choice((1_800_000_000, rng.choice(list(TIMESTAMPS.values()))))),
    }
    rare = {"user_id": 0.01, "expiration": 0.03, "cluster_id": 0.05}
    return properties(
        **{name: make(rng) for name, make in makers.items() if rng.random() < rare.get(name, 0.3)}
    )


def _random_text(rng: random.Random) -> bytes:
    return short(
        rng.choice((b"plain", b"%032x" % rng.getrandbits(128), rng.choice(list(ODD_TEXTS.values()))))
    )


def _random_headers(rng: random.Random) -> bytes:
    return headers(*((rng.choice(_NAMES), _random_value(rng, depth=3)) for _ in range(rng.randrange(8))))


def _random_value(rng: random.Random, depth: int) -> bytes:
    match rng.randrange(8) if depth else 0:
        case 6:
            return array(*(_random_value(rng, depth - 1) for _ in range(rng.randrange(4))))
        case 7:
            return table(
                *((rng.choice(_NAMES), _random_value(rng, depth - 1)) for _ in range(rng.randrange(4)))
            )
        case _:
            return rng.choice(_SMALL_VALUES)


_NAMES: Final = (
    b"k",
    b"traceparent",
    b"x-death",
    b"x-reach-task",
    b"x-reach-undecodable",
    *ODD_TEXTS.values(),
)
_SMALL_VALUES: Final = tuple(value for value in ODD_VALUES.values() if len(value) < 1000)


# ---- The socket


@dataclass(frozen=True, slots=True)
class Answer:
    """What the broker did with a message: took it, or closed something and said why."""

    taken: bool
    reason: str = ""


class RawPublisher:
    """Publishes bytes as they are, and waits for the confirm of each."""

    def __init__(self, url: str, timeout_s: float = 10.0) -> None:
        self._url = URL(url)
        self._timeout_s = timeout_s
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def publish(self, message: OddMessage, *, exchange: str = "", routing_key: str = "") -> Answer:
        """Send one message. Its body and properties may be anything."""
        key = routing_key.encode() if message.routing_key is None else message.routing_key
        method = struct.pack(">IH", Basic.Publish.index, 0) + short(exchange.encode()) + short(key) + b"\0"
        wire = _frame(1, method) + _frame(FRAME_HEADER, message.header_payload())
        wire += b"".join(_frame(FRAME_BODY, piece) for piece in message.pieces)
        async with asyncio.timeout(self._timeout_s):
            try:
                answer, arguments = await self._ask(wire)
            except (ConnectionError, asyncio.IncompleteReadError) as error:
                await self._close()
                return Answer(taken=False, reason=f"connection lost: {error!r}")
            if answer == Basic.Ack.index:
                return Answer(taken=True)
            if answer == Basic.Nack.index:
                return Answer(taken=False, reason="nack")
            await self._close()  # what else can come is that the broker closes the channel or the connection
            code, size = struct.unpack_from(">HB", arguments)
            return Answer(taken=False, reason=f"{code} {arguments[3 : 3 + size].decode(errors='replace')}")

    async def __aenter__(self) -> Self:
        async with asyncio.timeout(self._timeout_s):
            await self._open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        async with asyncio.timeout(self._timeout_s):
            await self._close()

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        assert self._url.host is not None
        self._streams = await asyncio.open_connection(self._url.host, self._url.port or 5672)
        user, password = self._url.user or "guest", self._url.password or "guest"
        vhost = self._url.path[1:].replace("%2F", "/") or "/"
        await self._ask(b"AMQP\0\0\x09\x01")
        response = f"\0{user}\0{password}"
        await self._call(commands.Connection.StartOk({}, "PLAIN", response, "en_US"), channel=0)
        await self._call(
            commands.Connection.TuneOk(1, 131_072, 0), commands.Connection.Open(vhost), channel=0
        )
        await self._call(commands.Channel.Open(), channel=1)
        await self._call(commands.Confirm.Select(), channel=1)
        return self._streams

    async def _close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _call(self, *methods: base.Frame, channel: int) -> None:
        await self._ask(b"".join(frame.marshal(method, channel) for method in methods))

    async def _ask(self, wire: bytes) -> tuple[int, bytes]:
        """Send, and wait for the next method: its number and its arguments, which may be no UTF-8 either."""
        reader, writer = self._streams or await self._open()
        writer.write(wire)
        await writer.drain()
        head = await reader.readexactly(7)
        payload = (await reader.readexactly(int.from_bytes(head[3:]) + 1))[:-1]
        return int.from_bytes(payload[:4]), payload[4:]


def _frame(kind: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, 1, len(payload)) + payload + FRAME_END_CHAR
