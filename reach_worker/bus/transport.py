"""A connection to the broker that survives what other people put into their messages.

aiormq decodes every frame with pamqp, in the task that reads the connection. RabbitMQ hands on properties
that pamqp cannot decode, and the connection dies of them; the broker delivers the message again, and the next one
dies too. So frames are looked at before aiormq sees them:

- What the bypass takes is not for aiormq at all: deliveries, and the broker's answers to what was published.
- A content header that would not decode, or would take long to, becomes one that says so: the same class and
  body size, and nothing but the header ``x-reach-undecodable`` with the reason. Its own properties are gone.
- A routing key, exchange or close reason that is not UTF-8 gets ``?`` for each bad byte. RabbitMQ makes such
  texts itself: it cuts a close reason at 252 bytes, in the middle of a character if need be.
- Everything else passes byte for byte.
"""

import asyncio
import struct
from typing import Any, Final, cast

from aiormq.connection import TCPTransportFactory, TLSTransportFactory, TransportFactory
from pamqp import commands, constants, encode
from pamqp.heartbeat import Heartbeat
from yarl import URL

from reach_worker.bus.bypass import Bypass
from reach_worker.bus.properties import FIXED, FLAGS, Fault, read_properties

UNDECODABLE: Final = "x-reach-undecodable"
"""Stands in for properties that could not be decoded. Its value is the reason: short, ASCII, for people."""

_READ_SIZE: Final = 256 * 1024
_HEAD: Final = constants.FRAME_HEADER_SIZE
_END: Final = constants.FRAME_END
_FRAME: Final = struct.Struct(">BHI")  # type, channel, size; then come the payload and one byte that ends it
_FRAME_TYPES: Final = frozenset(
    (constants.FRAME_METHOD, constants.FRAME_HEADER, constants.FRAME_BODY, constants.FRAME_HEARTBEAT)
)


_SIGN_OF_LIFE: Final = Heartbeat().marshal()
_SIGN_EVERY_S: Final = 1.0


def transport_for(url: URL | str, bypass: Bypass | None = None) -> TransportFactory:
    """What ``aiormq.connect(url, transport_factory=...)`` takes, for TCP or TLS as the URL says."""
    factory = TLSTransportFactory() if URL(url).scheme == "amqps" else TCPTransportFactory()
    return MendingTransport(factory, bypass or Bypass())


class MendingTransport(TransportFactory):
    """Connects as the given factory does, mends what is read, and lets the bypass read and write beside aiormq."""

    def __init__(self, factory: TransportFactory, bypass: Bypass) -> None:
        self._factory = factory
        self._bypass = bypass

    async def create(self, url: URL, **kwargs: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await self._factory.create(url, **kwargs)
        self._bypass.writes_to(writer)
        # aiormq's signature wants the class; of its methods it calls those that MendingReader has.
        return cast("asyncio.StreamReader", MendingReader(reader, self._bypass)), writer


class MendingReader:
    """Reads like the reader below it: the same waits, ends and errors, half a frame at the end included.

    aiormq gives up a connection on which it hears nothing, and does not hear what the bypass takes. So it gets a
    heartbeat in its place, once a second.
    """

    def __init__(self, reader: asyncio.StreamReader, bypass: Bypass | None = None) -> None:
        self._reader = reader
        self._bypass = bypass or Bypass()
        self._mender = FrameMender(self._bypass)
        self._clock = asyncio.get_running_loop().time
        self._signed_at = 0.0
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
        taken = self._bypass.taken
        more = self._mender.feed(data) if data else self._mender.rest()
        if self._bypass.taken != taken and (now := self._clock()) - self._signed_at >= _SIGN_EVERY_S:
            self._signed_at = now
            more += _SIGN_OF_LIFE
        self._ready, self._at = self._ready[self._at :] + more, 0
        return bool(data)


class FrameMender:
    """Takes the broker's bytes in any pieces; gives whole frames, mended, without those that the bypass takes.

    From the first frame on that is not AMQP it passes all on as it comes: aiormq ends the connection there.
    """

    def __init__(self, bypass: Bypass | None = None) -> None:
        self._bypass = bypass or Bypass()
        self._watched = self._bypass.channels
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
        if self._foreign:
            return data
        if self._held:
            self._held += data
            if len(self._held) < self._wanted:
                return b""
            data = self.rest()
        passed: list[bytes] = []
        copied = at = 0
        while (end := at + _HEAD) <= len(data):
            kind, channel, size = _FRAME.unpack_from(data, at)
            if kind not in _FRAME_TYPES:
                self._foreign = True
                at = len(data)
                break
            end += size + 1
            if end > len(data):
                break
            if (other := self._in_place_of(kind, channel, data, at, end)) is not None:
                if copied < at:
                    passed.append(data[copied:at])
                passed.append(other)
                copied = end
            at = end
        self._wanted = end - at
        self._held += data[at:]
        passed.append(data[copied:at])
        return b"".join(passed)

    def _in_place_of(self, kind: int, channel: int, data: bytes, at: int, end: int) -> bytes | None:
        """What is passed on instead of a frame; ``None`` if it passes as it is."""
        watched = self._watched.get(channel)
        if data[end - 1] != _END or (watched is None and kind not in _MENDERS):
            return None
        payload = data[at + _HEAD : end - 1]
        if watched is not None and watched.takes(kind, payload):
            self._bypass.taken += 1
            return b""
        if kind not in _MENDERS or (mended := _MENDERS[kind](payload)) is payload:
            return None
        return data[at : at + 3] + len(mended).to_bytes(4) + mended + constants.FRAME_END_CHAR


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
        if not text.isascii() and (clean := in_utf8(text)) != text:
            payload = payload[:start] + clean + payload[start + len(text) :]
    return payload


def in_utf8(text: bytes) -> bytes:
    """As long as before, with ``?`` for each byte that is not UTF-8."""
    return text.decode("utf-8", "surrogateescape").encode("utf-8", "replace")


# ---- Content headers


def mend_header(payload: bytes) -> bytes:
    """A content header that decodes; the same object if it did. One without a body size is beyond mending."""
    fault = fault_of(payload)
    if fault is None or len(payload) < FIXED:
        return payload
    flags = FLAGS.pack(commands.Basic.Properties.flags["headers"])
    return payload[:FIXED] + flags + encode.field_table({UNDECODABLE: fault})


def fault_of(payload: bytes) -> str | None:
    """Why a content header is not passed on; ``None`` if it is."""
    try:
        read_properties(payload)
    except Fault as fault:
        return str(fault)
    return None


_MENDERS: Final = {constants.FRAME_METHOD: mend_method, constants.FRAME_HEADER: mend_header}
