"""What a test does with a bus again and again: take deliveries, and wait for sessions."""

import asyncio

from reach_worker.bus.rabbit import RabbitBus
from reach_worker.core.message import Delivery, Message
from tests.bus.until import LIMIT_S, until


async def arrivals(bus: RabbitBus, name: str, count: int) -> list[Delivery]:
    """The next deliveries of a subscription; at least so many."""
    found: list[Delivery] = []
    async with asyncio.timeout(LIMIT_S):
        while True:
            found += bus.inbox.take(name)
            if len(found) >= count:
                return found
            await bus.inbox.arrived.wait()
            bus.inbox.arrived.clear()


async def until_session(bus: RabbitBus, number: int, limit_s: float = LIMIT_S) -> None:
    """Wait until this session, counted from 1, or a later one is there and consumes."""
    await until(lambda: bus.sessions >= number and bus.ready, limit_s)


def to(queue: str, *bodies: bytes) -> list[Message]:
    """Messages for a queue."""
    return [Message(queue, body) for body in bodies]


def bodies(deliveries: list[Delivery]) -> list[bytes]:
    """What they hold."""
    return [delivery.body for delivery in deliveries]
