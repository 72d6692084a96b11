"""Looking at queues and exchanges on the broker without changing one.

What exists is declared once more with our arguments: where they are the same that does nothing, where they are not
the broker says which one. What does not exist is never declared.
"""

import asyncio
from dataclasses import replace
from typing import Final

from aiormq import exceptions as amqp
from aiormq.abc import AbstractChannel, AbstractConnection

from reach_worker.bus.calls import broker_call
from reach_worker.bus.link import connect_to_any
from reach_worker.bus.rabbit import BusSettings
from reach_worker.bus.topology import Exchange, Queue, Topology, mismatch
from reach_worker.core.diagnosis import Found, Seen

_REFUSED: Final = (amqp.ChannelAccessRefused,)
_OTHER: Final = (amqp.ChannelPreconditionFailed, amqp.ChannelLockedResource)


async def examine(settings: BusSettings, wanted: Topology) -> list[Seen]:
    """What the broker has of a topology. Raises ``BrokerUnavailable`` or ``WrongCredentials``."""
    connection = await connect_to_any(settings.urls, settings.name, settings.connect_timeout_s)
    try:
        with broker_call("looking at queues"):
            async with asyncio.timeout(10 * settings.call_timeout_s):
                looker = _Looker(connection, settings.call_timeout_s)
                exchanges = [await looker.exchange(exchange) for exchange in wanted.exchanges]
                return [*exchanges, *[await looker.queue(queue) for queue in wanted.queues]]
    finally:
        await connection.close()


class _Looker:
    """A channel, and a new one after each refusal, which closes it."""

    def __init__(self, connection: AbstractConnection, timeout_s: float) -> None:
        self._connection = connection
        self._timeout_s = timeout_s
        self._channel: AbstractChannel | None = None

    async def exchange(self, exchange: Exchange) -> Seen:
        seen = Seen(exchange.name, Found.AS_WANTED)
        try:
            channel = await self._open()
            await channel.exchange_declare(exchange.name, passive=True, timeout=self._timeout_s)
            await channel.exchange_declare(
                exchange.name,
                exchange_type=exchange.kind,
                durable=True,
                arguments=dict(exchange.arguments),
                timeout=self._timeout_s,
            )
        except amqp.AMQPChannelError as error:
            return _as_refused(seen, error)
        return seen

    async def queue(self, queue: Queue) -> Seen:
        seen = Seen(queue.name, Found.AS_WANTED)
        try:
            channel = await self._open()
            there = await channel.queue_declare(queue.name, passive=True, timeout=self._timeout_s)
            seen = replace(seen, messages=there.message_count or 0, consumers=there.consumer_count or 0)
            await channel.queue_declare(
                queue.name, durable=queue.durable, arguments=dict(queue.arguments), timeout=self._timeout_s
            )
        except amqp.AMQPChannelError as error:
            return _as_refused(seen, error)
        return seen

    async def _open(self) -> AbstractChannel:
        if self._channel is None or self._channel.is_closed:
            self._channel = await self._connection.channel(publisher_confirms=False, timeout=self._timeout_s)
        return self._channel


def _as_refused(seen: Seen, error: amqp.AMQPChannelError) -> Seen:
    if isinstance(error, amqp.ChannelNotFoundEntity):
        return replace(seen, found=Found.MISSING)
    if isinstance(error, _REFUSED):
        return replace(seen, found=Found.REFUSED, detail=str(error))
    if isinstance(error, _OTHER):
        other = mismatch(seen.name, str(error))
        known = other.expected is not None or other.found is not None
        detail = f"{other.argument} is {other.found}, {other.expected} is wanted" if known else str(error)
        return replace(seen, found=Found.OTHER, detail=detail)
    raise error
