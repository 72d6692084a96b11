"""A connection to the broker that survives what other people put into their messages.

aiormq decodes every frame with pamqp, in the task that reads the connection. RabbitMQ hands on properties
that pamqp cannot decode (a message id that is not UTF-8, a timestamp beyond the year 9999, tables nested a
thousand deep), and the connection dies of them; the broker delivers the message again, and the next one dies
too. So frames are looked at before aiormq sees them:

- A content header that would not decode, or would take long to, becomes one that says so: the same class and
  body size, and nothing but the header ``x-reach-undecodable`` with the reason. Its own properties are gone.
- A routing key, exchange or close reason that is not UTF-8 gets ``?`` for each bad byte. RabbitMQ makes such
  texts itself: it cuts a close reason at 252 bytes, in the middle of a character if need be.
- Everything else passes byte for byte.

No header is decoded for that, only walked over: the walk knows every type and length, and where pamqp fails.
Where lengths do not add up pamqp may guess on; the walk does not, and RabbitMQ takes no such message anyway.
"""

import asyncio
import struct
from functools import lru_cache
from typing import Any, Final, cast

from aiormq.connection import TCPTransportFactory, TLSTransportFactory, TransportFactory
from pamqp import commands, constants, encode
from yarl import URL

UNDECODABLE: Final = "x-reach-undecodable"
"""Stands in for properties that could not be decoded. Its value is the reason: short, ASCII, for people."""

MAX_DEPTH: Final = 32
"""Tables and arrays in each other. pamqp recurses and gives up at about 480, later encoders sooner."""

MAX_VALUES: Final = 1024
"""Header values, nested ones too. pamqp copies the rest of the frame for each: 120,000 take it a second."""

_READ_SIZE: Final = 256 * 1024
_FRAME: Final = struct.Struct(">BHI")  # type, channel, size; then come the payload and one byte that ends it
_FRAME_TYPES: Final = frozenset(
    (constants.FRAME_METHOD, constants.FRAME_HEADER, constants.FRAME_BODY, constants.FRAME_HEARTBEAT)
)


def transport_for(url: URL | str) -> TransportFactory:
    """What ``aiormq.connect(url, transport_factory=...)`` takes, for TCP or TLS as the URL says."""
    return MendingTransport(TLSTransportFactory() if URL(url).scheme == "amqps" else TCPTransportFactory())


class MendingTransport(TransportFactory):
    """Connects as the given factory does, and mends what is read."""

    def __init__(self, factory: TransportFactory) -> None:
        self._factory = factory

    async def create(self, url: URL, **kwargs: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await self._factory.create(url, **kwargs)
        # aiormq's signature wants the class; of its methods it calls those that MendingReader has.
        return cast("asyncio.StreamReader", MendingReader(reader)), writer


class MendingReader:
    """Reads like the reader below it: the same waits, ends and errors, half a frame at the end included."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._mender = FrameMender()
        self._ready = b""
        self._at = 0

    def at_eof(self) -> bool:
        return self._at == len(self._ready) and not self._mender.holds and self._reader.at_eof()

    async def readexactly(self, n: int) -> bytes:
        while self._at + n > len(self._ready):
            if not await self._fill() and self._at + n > len(self._ready):
                raise asyncio.IncompleteReadError(self._take(len(self._ready)), n)
        return self._take(self._at + n)

    async def read(self) -> bytes:
        """Everything until the end."""
        while await self._fill():
            pass
        return self._take(len(self._ready))

    def _take(self, end: int) -> bytes:
        start, self._at = self._at, end
        return self._ready[start:end]

    async def _fill(self) -> bool:
        data = await self._reader.read(_READ_SIZE)
        more = self._mender.feed(data) if data else self._mender.rest()
        self._ready, self._at = self._ready[self._at :] + more, 0
        return bool(data)


class FrameMender:
    """Takes the broker's bytes in any pieces; gives whole frames, mended.

    From the first frame on that is not AMQP it passes all on as it comes: aiormq ends the connection there.
    """

    def __init__(self) -> None:
        self._held = bytearray()
        self._wanted = 0
        self._foreign = False

    @property
    def holds(self) -> bool:
        """The beginning of a frame is waiting for its rest."""
        return bool(self._held)

    def rest(self) -> bytes:
        """What is left when no more will come: the beginning of a frame, as it came."""
        rest = bytes(self._held)
        self._held.clear()
        return rest

    def feed(self, data: bytes) -> bytes:
        """The frames that are whole now."""
        if self._held:
            self._held += data
            if len(self._held) < self._wanted:
                return b""
            data = self.rest()
        done: list[bytes] = []
        copied = at = 0
        while not self._foreign and (end := self._end_of_frame(data, at)) <= len(data):
            kind = data[at]
            if kind in _MENDERS and data[end - 1] == constants.FRAME_END:
                payload = data[at + constants.FRAME_HEADER_SIZE : end - 1]
                if (mended := _MENDERS[kind](payload)) is not payload:
                    done += (data[copied : at + 3], len(mended).to_bytes(4), mended, constants.FRAME_END_CHAR)
                    copied = end
            at = end
        if self._foreign:
            at = len(data)
        self._held += data[at:]
        done.append(data[copied:at])
        return b"".join(done)

    def _end_of_frame(self, data: bytes, at: int) -> int:
        """Where the frame ends that begins there; beyond the data if it is not whole yet."""
        self._wanted = constants.FRAME_HEADER_SIZE
        if at + self._wanted <= len(data):
            kind, _, size = _FRAME.unpack_from(data, at)
            self._foreign = kind not in _FRAME_TYPES
            self._wanted += size + 1
        return at + self._wanted


# ---- Methods with texts that are not ours. A number is that many bytes to skip, a None is a short string.

_TEXTS: Final[dict[bytes, tuple[int | None, ...]]] = {
    method.index.to_bytes(4): layout
    for method, layout in (
        (commands.Basic.Deliver, (None, 9, None, None)),
        (commands.Basic.GetOk, (9, None, None)),
        (commands.Basic.Return, (2, None, None, None)),
        (commands.Channel.Close, (2, None)),
        (commands.Connection.Close, (2, None)),
    )
}


def mend_method(payload: bytes) -> bytes:
    """A method with its texts in UTF-8 and as long as before; the same object if nothing had to be done."""
    layout = _TEXTS.get(payload[:4])
    if layout is None or payload.isascii():
        return payload
    at = 4
    for skip in layout:
        if skip is not None:
            at += skip
            continue
        start = at + 1
        at = start + int.from_bytes(payload[at:start])
        text = payload[start:at]
        if not text.isascii() and (clean := _utf8(text)) != text:
            payload = payload[:start] + clean + payload[start + len(text) :]
    return payload


def _utf8(text: bytes) -> bytes:
    return text.decode("utf-8", "surrogateescape").encode("utf-8", "replace")


# ---- Content headers: class (2 bytes), weight (2), body size (8), flags (2), and the properties flagged.

_FIXED: Final = 12
_FLAGS: Final = struct.Struct(">H")
_MORE_FLAGS: Final = 1  # RabbitMQ ignores it; to pamqp it says that the next two bytes are flags as well
_SIZE: Final = struct.Struct(">I")
_SIZES: Final = {
    ord(kind): size
    for kinds, size in (("V\0", 0), ("tbB", 1), ("su", 2), ("Iif", 4), ("D", 5), ("lLd", 8))
    for kind in kinds
}
_SIZED: Final = frozenset(b"Sx")
_NESTED: Final = {ord("F"): True, ord("A"): False}  # whether its values have names
_TIMESTAMP: Final = struct.Struct(">Q")
_YEAR_10000: Final = 253_402_300_800  # in seconds; what takes more than 32 bits is milliseconds to pamqp


class _Fault(Exception):  # noqa: N818 - no error: it brings the reason from deep in the walk
    """Why a content header is not passed on."""


def mend_header(payload: bytes) -> bytes:
    """A content header that decodes; the same object if it did. One without a body size is beyond mending."""
    fault = fault_of(payload)
    if fault is None or len(payload) < _FIXED:
        return payload
    flags = _FLAGS.pack(commands.Basic.Properties.flags["headers"])
    return payload[:_FIXED] + flags + encode.field_table({UNDECODABLE: fault})


def fault_of(payload: bytes) -> str | None:
    """Why a content header is not passed on; ``None`` if it is."""
    try:
        end = _walk_properties(payload)
    except _Fault as fault:
        return str(fault)
    except (IndexError, struct.error):
        return "the properties are cut short"
    return None if end == len(payload) else "the properties do not end where the frame does"


def _walk_properties(payload: bytes) -> int:
    (flags,) = _FLAGS.unpack_from(payload, _FIXED)
    if flags & _MORE_FLAGS:
        raise _Fault("the properties announce more flags")
    at = _FIXED + _FLAGS.size
    for name, kind in _flagged(flags):
        if kind == "shortstr":
            start, at = at + 1, at + 1 + payload[at]
            _check_text(payload[start:at], name)
        elif kind == "table":
            at = _walk_table(payload, at)
        elif kind == "timestamp":
            at = _check_timestamp(payload, at)
        else:
            at += 1
    return at


@lru_cache(maxsize=256)
def _flagged(flags: int) -> tuple[tuple[str, str], ...]:
    known = commands.Basic.Properties
    return tuple((name, known.amqp_type(name)) for name in known.__slots__ if flags & known.flags[name])


def _walk_table(payload: bytes, at: int) -> int:
    """Walk over a table; returns where it ends. All in one loop: a call per value would double the cost."""
    named, (size,) = True, _SIZE.unpack_from(payload, at)
    at += _SIZE.size
    end = at + size
    outer: list[tuple[bool, int]] = []
    for _ in range(MAX_VALUES + 1):
        while at >= end:
            if at > end:
                raise _Fault("a header value does not end where its table does")
            if not outer:
                return at
            named, end = outer.pop()
        if named:
            start, at = at + 1, at + 1 + payload[at]
            if not (name := payload[start:at]).isascii():
                _check_text(name, "a header's name")
        kind = payload[at]
        at += 1
        if (size := _SIZES.get(kind, -1)) >= 0:
            at += size
        elif kind in _SIZED:
            at += _SIZE.size + _SIZE.unpack_from(payload, at)[0]
        elif kind == ord("T"):
            at = _check_timestamp(payload, at)
        else:
            outer.append((named, end))
            named, end = _open_table(payload, at, kind, depth=len(outer))
            at += _SIZE.size
    raise _Fault(f"there are more than {MAX_VALUES} header values")


def _open_table(payload: bytes, at: int, kind: int, *, depth: int) -> tuple[bool, int]:
    if kind not in _NESTED:
        raise _Fault(f"a header value is of the unknown type {kind:#04x}")
    if depth > MAX_DEPTH:
        raise _Fault(f"the headers are nested more than {MAX_DEPTH} deep")
    return _NESTED[kind], at + _SIZE.size + _SIZE.unpack_from(payload, at)[0]


def _check_text(text: bytes, name: str) -> None:
    if not text.isascii() and _utf8(text) != text:
        raise _Fault(f"{name} is not UTF-8")


def _check_timestamp(payload: bytes, at: int) -> int:
    if _TIMESTAMP.unpack_from(payload, at)[0] >= _YEAR_10000 * 1000:
        raise _Fault("a timestamp is beyond the year 9999")
    return at + _TIMESTAMP.size


_MENDERS: Final = {constants.FRAME_METHOD: mend_method, constants.FRAME_HEADER: mend_header}
