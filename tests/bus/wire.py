"""The broker as a test sees it beside the code under test: its own connection, plain aiormq."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Self

import aiormq
import pytest
from aiormq import exceptions as amqp
from aiormq.abc import AbstractChannel, AbstractConnection, DeliveredMessage
from pamqp.commands import Basic

from reach_worker.bus.topology import Topology
from tests.bus.until import LIMIT_S, until


def shared_broker() -> str:
    """The URL of the broker that all tests share. None is a failure in CI."""
    url = os.environ.get("REACH_AMQP_URL")
    if not url:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("REACH_AMQP_URL names no broker")
    return url


class Wire:
    """One connection and one channel in confirm mode."""

    def __init__(self, connection: AbstractConnection, channel: AbstractChannel) -> None:
        self.connection = connection
        self.channel = channel
        self._declared: list[str] = []

    @classmethod
    @asynccontextmanager
    async def to(cls, url: str) -> AsyncIterator[Self]:
        """Connected within the block; the queues that it declared go with it."""
        async with aiormq.connect(url) as connection:
            wire = cls(connection, await connection.channel())
            yield wire
            await wire.delete(*wire._declared)

    async def queue(self, name: str, arguments: Mapping[str, Any] | None = None) -> str:
        """Declare a durable queue."""
        await self.channel.queue_declare(name, durable=True, arguments=dict(arguments or {}))
        self._declared.append(name)
        return name

    async def publish(self, queue: str, body: bytes = b"", *, exchange: str = "", **properties: Any) -> None:
        """Publish, confirmed."""
        made = Basic.Properties(delivery_mode=2, **properties)
        await self.channel.basic_publish(
            body, exchange=exchange, routing_key=queue, properties=made, timeout=LIMIT_S
        )

    async def get(self, queue: str) -> DeliveredMessage | None:
        """Take one message for good."""
        message = await self.channel.basic_get(queue, no_ack=True, timeout=LIMIT_S)
        return None if isinstance(message.delivery, Basic.GetEmpty) else message

    async def get_all(self, queue: str) -> list[DeliveredMessage]:
        """Take what there is."""
        found = []
        while (message := await self.get(queue)) is not None:
            found.append(message)
        return found

    async def look(self, queue: str) -> tuple[int, int] | None:
        """Messages that are ready and consumers, a little late; ``None`` if there is no such queue."""
        channel = await self.connection.channel(publisher_confirms=False)
        with suppress(amqp.ChannelNotFoundEntity):
            found = await channel.queue_declare(queue, passive=True, timeout=LIMIT_S)
            await channel.close()
            return found.message_count or 0, found.consumer_count or 0
        return None

    async def until_there(self, queue: str, ready: int, consumers: int | None = None) -> None:
        """Wait until so many messages are ready there, and so many consume. The broker counts a little late."""

        async def as_said() -> bool:
            found = await self.look(queue)
            assert found is not None, f"there is no queue {queue}"
            return found[0] == ready and consumers in (None, found[1])

        await until(as_said)

    async def delete(self, *queues: str) -> None:
        """Delete queues; those that do not exist are fine."""
        for queue in queues:
            await self.channel.queue_delete(queue, timeout=LIMIT_S)

    async def delete_all(self, declared: Topology) -> None:
        """Delete the queues and exchanges of a topology."""
        await self.delete(*(queue.name for queue in declared.queues))
        for exchange in declared.exchanges:
            await self.channel.exchange_delete(exchange.name, timeout=LIMIT_S)
