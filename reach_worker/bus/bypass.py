"""What goes between us and the broker beside aiormq, on aiormq's connection.

aiormq makes a task and several futures of every message, and encodes and decodes each with pamqp: a third of a
router's time. It keeps all that is rare (opening, declaring, consuming, closing, heartbeats); the four things that come
with every message pass it by:

- **Deliveries** and **confirms** are taken from what is read, before aiormq sees them. A channel says which methods of
  its are to be taken (:class:`Channel`); content frames belong to the method before them on the same channel.
- **Publishes** and **acknowledgements** are written straight to the socket. aiormq writes whole frames in one piece, and
  so do we, so they never mix; what we write is before whatever aiormq is asked for afterwards.

Nothing of aiormq's is touched for that: its ``transport_factory`` hands us reader and writer. What it must keep doing is
in ``tests/bus/test_bypass.py``: write whole frames, and count no publishes but its own.
"""

import asyncio
import struct
from collections.abc import Callable, Mapping
from typing import Final

from pamqp import commands, constants

Method = Callable[[bytes], None]
"""Takes a method's payload."""

Content = Callable[[bytes, bytes, bytes], None]
"""Takes the payloads of a method and of its content header, and the body."""

_INDEX_SIZE: Final = 4
_SIZED: Final = 12
_BODY_SIZE: Final = struct.Struct(">4xQ")
_BLOCKED: Final = commands.Connection.Blocked.index.to_bytes(4)
_UNBLOCKED: Final = commands.Connection.Unblocked.index.to_bytes(4)


class Channel:
    """Which methods of one channel are ours: by index, alone or with the content that follows them."""

    def __init__(self, methods: Mapping[bytes, Method], contents: Mapping[bytes, Content]) -> None:
        self._methods = methods
        self._contents = contents
        self._content: Content | None = None
        self._method = self._header = b""
        self._body: list[bytes] = []
        self._missing = 0

    def takes(self, kind: int, payload: bytes) -> bool:
        """Take a frame, if it is ours."""
        if kind == constants.FRAME_METHOD:
            index = payload[:_INDEX_SIZE]
            if (content := self._contents.get(index)) is not None:
                self._content, self._method, self._missing = content, payload, 1
            elif (method := self._methods.get(index)) is not None:
                method(payload)
            else:
                return False
            return True
        if self._content is None:
            return False
        if kind == constants.FRAME_BODY:
            self._body.append(payload)
            self._missing -= len(payload)
        elif kind == constants.FRAME_HEADER and len(payload) >= _SIZED:
            self._header = payload
            (self._missing,) = _BODY_SIZE.unpack_from(payload)
        else:  # no broker sends that: aiormq ends the connection over it
            self._content = None
            return False
        if self._missing <= 0:
            content, self._content = self._content, None
            body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
            self._body.clear()
            content(self._method, self._header, body)
        return True


class Alarms:
    """Whether the broker takes publishes. aiormq notes it too, but lets nobody ask without a task."""

    def __init__(self, unblocked: asyncio.Event) -> None:
        self._unblocked = unblocked

    def takes(self, _kind: int, payload: bytes) -> bool:
        """Note an alarm, or its end. None of it is ours alone."""
        if payload.startswith(_BLOCKED):
            self._unblocked.clear()
        elif payload.startswith(_UNBLOCKED):
            self._unblocked.set()
        return False


class Bypass:
    """Of one connection: what is taken from its reader, and a way to its writer."""

    def __init__(self) -> None:
        self.taken = 0
        """Frames that aiormq did not get to see."""
        self.unblocked = asyncio.Event()
        """Cleared while the broker takes no publishes (memory or disk alarm); set for good when the connection ends."""
        self.unblocked.set()
        self.channels: dict[int, Channel | Alarms] = {0: Alarms(self.unblocked)}
        self._writer: asyncio.StreamWriter | None = None

    def writes_to(self, writer: asyncio.StreamWriter) -> None:
        """The connection has been made."""
        self._writer = writer

    def watch(self, number: int, methods: Mapping[bytes, Method], contents: Mapping[bytes, Content]) -> None:
        """Take these from a channel. To be called before the broker can send any: what came earlier is aiormq's."""
        self.channels[number] = Channel(methods, contents)

    def leave(self, number: int) -> None:
        """The channel is about to close; another one may get its number then."""
        self.channels.pop(number, None)

    @property
    def closed(self) -> bool:
        """Nothing can be written, yet or any more."""
        return self._writer is None or self._writer.is_closing()

    def write(self, frames: bytes) -> None:
        """Write whole frames. Raises :class:`ConnectionError` if the connection is gone: nothing was sent then."""
        if self._writer is None or self._writer.is_closing():
            raise ConnectionResetError("the connection is closed")
        self._writer.write(frames)

    async def drain(self) -> None:
        """Wait until the socket has taken most of what was written. Raises :class:`ConnectionError`."""
        if self._writer is not None:
            await self._writer.drain()
