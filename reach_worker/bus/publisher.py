"""Publishing with the broker's word on every message."""

import asyncio
import logging
import struct
from collections.abc import Sequence
from typing import Final

from aiormq.abc import AbstractChannel
from pamqp.commands import Basic

from reach_worker.bus.confirms import Batch, Confirms
from reach_worker.bus.frames import publish_frames
from reach_worker.bus.link import Link
from reach_worker.core.message import Message
from reach_worker.ports import Clock, Sent

log = logging.getLogger(__name__)

SLICES: Final = 10
"""The time-out is counted in so many parts, and only those at whose end the broker did not block us."""

PIECE: Final = 256 * 1024
"""So many bytes at least are written before the socket has to take them."""

FRAME_MAX: Final = 128 * 1024
"""Where the broker sets no limit."""


class Publisher:
    """One channel in confirm mode, on a connection of its own: a memory alarm blocks publishing connections whole."""

    def __init__(self, link: Link, channel: AbstractChannel, clock: Clock, timeout_s: float) -> None:
        self._bypass = link.bypass
        self._channel = channel
        self._frame_max = link.connection.connection_tune.frame_max or FRAME_MAX
        self._clock = clock
        self._timeout_s = timeout_s
        self._confirms = Confirms()
        self._bypass.watch(
            channel.number,
            {
                Basic.Ack.index.to_bytes(4): self._confirms.acked,
                Basic.Nack.index.to_bytes(4): self._confirms.nacked,
            },
            {Basic.Return.index.to_bytes(4): self._confirms.returned},
        )
        for closing in (channel.closing, link.connection.closing):
            closing.add_done_callback(self._end)

    @property
    def ended(self) -> bool:
        """Nothing can be sent any more."""
        return self._confirms.ended or self._channel.is_closed or self._bypass.closed

    async def publish(self, messages: Sequence[Message]) -> list[Sent]:
        """Send all at once, then wait for the confirms, at most the time-out after the last one.

        While the broker blocks publishers (memory or disk alarm) no time passes, and nothing more is sent:
        what met the block lies in the broker's socket, and is confirmed after it.
        """
        batch = Batch(len(messages))
        if await self._unblocked():
            await self._send(batch, messages)
            await self._answers(batch)
        return batch.results

    async def _send(self, batch: Batch, messages: Sequence[Message]) -> None:
        """Write what can be sent, in pieces that the socket takes one after the other."""
        size, frames, meant = 0, [], []
        for at, message in enumerate(messages):
            message_id = message.message_id or self._clock.new_id()
            try:
                frames += publish_frames(message, message_id, self._channel.number, self._frame_max)
            except (ValueError, TypeError, struct.error) as error:
                log.error("a message of ours cannot be sent: %r", error)  # noqa: TRY400 - says all there is
                continue
            meant.append((at, message_id))
            size += len(message.body)
            if size >= PIECE:
                if not self._write(batch, frames, meant) or not await self._drained():
                    return
                size, frames, meant = 0, [], []
        self._write(batch, frames, meant)

    def _write(self, batch: Batch, frames: Sequence[bytes], meant: Sequence[tuple[int, str]]) -> bool:
        """Write, and note who waits for which answer. Nothing may come between the two."""
        if self.ended:
            return False
        try:
            self._bypass.write(b"".join(frames))
        except ConnectionError:
            return False
        for at, message_id in meant:
            self._confirms.sent(batch, at, message_id)
        return True

    async def _drained(self) -> bool:
        """The socket has taken what was written; ``False`` if it did not for too long."""
        draining = asyncio.ensure_future(self._bypass.drain())  # noqa: TID251 - ends with this function
        left = SLICES
        try:
            while not draining.done() and left:
                await asyncio.wait({draining}, timeout=self._timeout_s / SLICES)
                left = SLICES if await self._was_blocked() else left - 1
            return draining.done() and draining.exception() is None
        finally:
            draining.cancel()

    async def _answers(self, batch: Batch) -> None:
        """Wait until all have been answered, or none for too long."""
        left = SLICES
        while batch.awaited and left:
            awaited = batch.awaited
            await batch.wait(self._timeout_s / SLICES)
            left = SLICES if batch.awaited < awaited or await self._was_blocked() else left - 1

    async def _was_blocked(self) -> bool:
        """The broker blocked publishers until now."""
        return not self._bypass.unblocked.is_set() and await self._unblocked()

    async def _unblocked(self) -> bool:
        """Wait until the broker lets us publish; ``False`` if the connection ended first."""
        await self._bypass.unblocked.wait()
        return not self._confirms.ended

    def _end(self, closing: asyncio.Future[object]) -> None:
        if not closing.cancelled():
            closing.exception()
        self._confirms.end()
        self._bypass.unblocked.set()
