"""Publishing with the broker's word on every message."""

import asyncio
import logging
import struct
from collections.abc import Sequence
from typing import Final

from aiormq import Channel
from aiormq import exceptions as amqp
from aiormq.abc import AbstractConnection

from reach_worker.bus.codec import HEADER_LIMIT, header_size, properties_of
from reach_worker.core.message import Message
from reach_worker.ports import Clock, Sent

log = logging.getLogger(__name__)

SLICES: Final = 10
"""The time-out is counted in so many parts, and only those at whose end the broker did not block us."""


class Publisher:
    """One channel in confirm mode, on a connection of its own: a memory alarm blocks publishing connections whole."""

    def __init__(
        self, connection: AbstractConnection, channel: Channel, clock: Clock, timeout_s: float
    ) -> None:
        self._connection = connection
        self._channel = channel
        self._clock = clock
        self._timeout_s = timeout_s

    async def publish(self, messages: Sequence[Message]) -> list[Sent]:
        """Send all at once, then wait for the confirms, at most the time-out after the last one.

        While the broker blocks publishers (memory or disk alarm) no time passes, and nothing more is sent:
        what met the block lies in the broker's socket, and is confirmed after it.
        """
        if not await self._unblocked():
            return [Sent.REFUSED] * len(messages)
        sending = [asyncio.ensure_future(self._send(message)) for message in messages]  # noqa: TID251 - gathered below
        try:
            await self._answers(set(sending))
        finally:
            for late in sending:
                late.cancel()
            results = await asyncio.gather(*sending, return_exceptions=True)
        return [_sent(result) for result in results]

    async def _answers(self, awaited: set[asyncio.Future[None]]) -> None:
        """Wait until all have been answered, or none for too long."""
        left = SLICES
        while awaited and left:
            done, awaited = await asyncio.wait(awaited, timeout=self._timeout_s / SLICES)
            left = SLICES if done or await self._was_blocked() else left - 1

    async def _was_blocked(self) -> bool:
        """The broker blocked publishers until now."""
        ready = asyncio.ensure_future(self._connection.ready())  # noqa: TID251 - ends with this function
        await asyncio.wait({ready}, timeout=0)
        blocked = not ready.done()
        ready.cancel()
        return blocked and await self._unblocked()

    async def _unblocked(self) -> bool:
        """Wait until the broker lets us publish; ``False`` if the connection ended first."""
        ready = asyncio.ensure_future(self._connection.ready())  # noqa: TID251 - ends with this function
        try:
            await asyncio.wait({ready, self._connection.closing}, return_when=asyncio.FIRST_COMPLETED)
            return ready.done() and not self._connection.is_closed
        finally:
            ready.cancel()

    async def _send(self, message: Message) -> None:
        if header_size(message.headers) > HEADER_LIMIT:
            raise ValueError(f"headers of more than {HEADER_LIMIT} bytes would end the connection")
        await self._channel.basic_publish(
            message.body,
            exchange=message.exchange,
            routing_key=message.routing_key,
            properties=properties_of(message, message.message_id or self._clock.new_id()),
            mandatory=message.mandatory,
            wait=False,
        )


def _sent(result: object) -> Sent:
    match result:
        case None:
            return Sent.CONFIRMED
        case amqp.PublishError():
            return Sent.UNROUTABLE
        case amqp.DeliveryError():
            return Sent.REFUSED
        case ValueError() | TypeError() | struct.error():
            log.error("a message of ours cannot be sent: %r", result)
            return Sent.REFUSED
        case _:
            return Sent.UNCERTAIN
