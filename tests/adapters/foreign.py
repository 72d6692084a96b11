"""A worker that knows nothing of us: it consumes a queue and replies, in plain aiormq."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiormq
import orjson
from aiormq.abc import AbstractChannel, DeliveredMessage
from pamqp.commands import Basic

Reply = Callable[["ForeignWorker", DeliveredMessage], Awaitable[None]]


@dataclass(slots=True)
class ForeignWorker:
    """``seen``: the messages that it got."""

    channel: AbstractChannel
    seen: list[DeliveredMessage] = field(default_factory=list)

    async def reply(self, message: DeliveredMessage, body: bytes, mark: str | None = None) -> None:
        """Answer a message, under its correlation id or another one."""
        given = message.header.properties
        properties = Basic.Properties(correlation_id=mark or given.correlation_id)
        await self.channel.basic_publish(body, routing_key=given.reply_to or "", properties=properties)


def saying(answer: Any) -> Reply:
    """It replies the same each time: JSON, or raw bytes."""
    body = answer if isinstance(answer, bytes) else orjson.dumps(answer)

    async def reply(worker: ForeignWorker, message: DeliveredMessage) -> None:
        await worker.reply(message, body)

    return reply


@asynccontextmanager
async def foreign_worker(url: str, queue: str, reply: Reply) -> AsyncIterator[ForeignWorker]:
    """It consumes the queue within the block."""
    async with aiormq.connect(url) as connection:
        channel = await connection.channel()
        worker = ForeignWorker(channel)

        async def on_message(message: DeliveredMessage) -> None:
            worker.seen.append(message)
            await reply(worker, message)

        await channel.basic_consume(queue, on_message, no_ack=True)
        yield worker
