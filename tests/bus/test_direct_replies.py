"""Answers to "direct reply-to": a made-up address costs nobody else anything."""

from collections.abc import AsyncIterator

import aiormq
import pytest
from aiormq.abc import DeliveredMessage
from pamqp.commands import Basic

from reach_worker.bus.rabbit import RabbitBus
from reach_worker.core.message import Message
from reach_worker.core.reply_address import DIRECT
from reach_worker.ports import Sent
from tests.bus.conftest import MakeBus
from tests.bus.until import until
from tests.bus.wire import Wire

pytestmark = pytest.mark.broker

MADE_UP = f"{DIRECT}.g1h2AA5yZXBseUAyNzMzMzQ3NgAAeoYAAAABaw1dDA==.key"
GONE = f"{DIRECT}.g1h3BXJlcGx5AAAAAQAAAAEAAAAB.key"


@pytest.fixture
async def bus(make_bus: MakeBus) -> AsyncIterator[RabbitBus]:
    async with make_bus().running() as bus:
        yield bus


async def address_of(wire: Wire, prefix: str, found: list[DeliveredMessage]) -> str:
    """The address of a caller who waits: the broker writes it into what he publishes."""

    async def take(message: DeliveredMessage) -> None:
        found.append(message)

    queue = await wire.queue(f"{prefix}.asked")
    await wire.channel.basic_consume(DIRECT, take, no_ack=True)
    await wire.channel.basic_publish(b"?", routing_key=queue, properties=Basic.Properties(reply_to=DIRECT))
    asked = await wire.get(queue)
    assert asked is not None
    return str(asked.header.properties.reply_to)


async def test_a_caller_gets_his_answer_beside_made_up_addresses(
    bus: RabbitBus, wire: Wire, prefix: str
) -> None:
    found: list[DeliveredMessage] = []
    caller = await address_of(wire, prefix, found)
    queue = await wire.queue(f"{prefix}.work")

    results = await bus.publish([Message(key, b"a") for key in (MADE_UP, caller, queue, GONE, caller, queue)])

    assert (results[1], results[2], results[4], results[5]) == (Sent.CONFIRMED,) * 4
    assert [message.body for message in await wire.get_all(queue)] == [b"a", b"a"]
    await until(lambda: len(found) >= 2)
    assert bus.sessions == 1
    assert await bus.publish([Message(queue, b"b")]) == [Sent.CONFIRMED]


async def test_a_flood_of_made_up_addresses_slows_nobody_down(
    bus: RabbitBus, wire: Wire, prefix: str
) -> None:
    queue = await wire.queue(f"{prefix}.work")

    for _ in range(20):
        results = await bus.publish([*(Message(MADE_UP, b"a") for _ in range(20)), Message(queue, b"a")])
        assert results[-1] is Sent.CONFIRMED

    assert bus.sessions == 1


async def test_a_caller_who_has_gone_is_nobodys_fault(bus: RabbitBus, prefix: str, broker_url: str) -> None:
    async with aiormq.connect(broker_url) as connection:
        other = Wire(connection, await connection.channel())
        address = await address_of(other, prefix, [])

    assert await bus.publish([Message(address, b"late")]) == [Sent.CONFIRMED]
    assert bus.sessions == 1
