"""What each fault of the broker in memory does to messages and to who consumes them."""

import asyncio

import pytest

from reach_worker.core.message import Message
from reach_worker.errors import BadInput
from reach_worker.ports import Sent
from reach_worker.testing import MemoryBroker, MemoryBus, SteppedClock


def consumer(broker: MemoryBroker, name: str = "one") -> MemoryBus:
    bus = MemoryBus(broker, slow_start=False, name=name)
    bus.subscribe("work", broker.names.intake, 10)
    bus.connect()
    return bus


def send(broker: MemoryBroker, *bodies: bytes) -> None:
    for body in bodies:
        broker.send_task(body)


def got(bus: MemoryBus) -> list[bytes]:
    return [delivery.body for delivery in bus.inbox.take("work")]


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker(SteppedClock())


def test_duplicates(broker: MemoryBroker) -> None:
    bus = consumer(broker)
    broker.faults.duplicate("intake", times=2)
    send(broker, b"1", b"2", b"3")
    assert got(bus) == [b"1", b"1", b"2", b"2", b"3"]


def test_the_opposite_order(broker: MemoryBroker) -> None:
    bus = consumer(broker)
    broker.faults.reorder("intake", count=3)
    send(broker, b"1", b"2")
    assert got(bus) == []
    send(broker, b"3", b"4")
    assert got(bus) == [b"3", b"2", b"1", b"4"]


def test_what_is_held_back_for_another_order_does_not_wait_for_ever(broker: MemoryBroker) -> None:
    bus = consumer(broker)
    broker.faults.reorder("intake", count=3)
    send(broker, b"1", b"2")
    broker.clock.advance(1)
    assert got(bus) == [b"2", b"1"]
    send(broker, b"3")
    assert got(bus) == [b"3"]


async def test_one_fault_by_its_full_name_and_one_for_all_of_a_kind(broker: MemoryBroker) -> None:
    for agent in ("a", "ab"):
        broker.declare(broker.names.agent(agent))
    broker.faults.duplicate(broker.names.agent("a"))
    broker.put_message(broker.names.agent("ab"), b"")
    assert broker.faults.waiting == [f"duplicate at {broker.names.agent('a')}, 1 times"]
    broker.faults.duplicate("agent")
    broker.put_message(broker.names.agent("ab"), b"")
    assert len(broker.messages(broker.names.agent("ab"))) == 3


def test_only_those_who_consume_are_cancelled(broker: MemoryBroker) -> None:
    bus, other = consumer(broker), MemoryBus(broker)
    other.connect()
    assert broker.faults.cancel_consumers("intake") == 1
    assert (bus.sessions, other.sessions) == (2, 1)
    assert bus.ready


def test_a_queue_that_there_is_not(broker: MemoryBroker) -> None:
    with pytest.raises(BadInput, match=r"no queue is called 'inteke' \(did you mean 'intake'\?\)"):
        broker.faults.reorder("inteke")


@pytest.mark.parametrize(
    ("fault", "result", "arrives", "sessions"),
    [
        ("unroutable", Sent.UNROUTABLE, 0, 1),
        ("refuse", Sent.REFUSED, 0, 1),
        ("uncertain", Sent.UNCERTAIN, 1, 2),
    ],
)
async def test_what_becomes_of_a_publish(
    broker: MemoryBroker, fault: str, result: Sent, arrives: int, sessions: int
) -> None:
    getattr(broker.faults, fault)("dlq")
    async with MemoryBus(broker).running() as bus:
        assert await bus.publish([Message(broker.names.dlq, b"")]) == [result]
        assert (len(broker.messages(broker.names.dlq)), bus.sessions) == (arrives, sessions)
        assert await bus.publish([Message(broker.names.dlq, b"")]) == [Sent.CONFIRMED]


@pytest.mark.parametrize(
    ("seconds", "result", "sessions"), [(4.0, Sent.CONFIRMED, 1), (60.0, Sent.UNCERTAIN, 2)]
)
async def test_a_confirm_that_takes_its_time(
    broker: MemoryBroker, seconds: float, result: Sent, sessions: int
) -> None:
    """After ten seconds nobody waits for it any more."""
    broker.faults.slow_confirm("dlq", seconds)
    async with MemoryBus(broker).running() as bus, asyncio.TaskGroup() as group:
        sending = group.create_task(bus.publish([Message(broker.names.dlq, b"")]))
        await asyncio.wait([sending], timeout=0.01)
        assert (sending.done(), len(broker.messages(broker.names.dlq))) == (False, 1)
        broker.clock.advance(min(seconds, 10.0))
        assert await sending == [result]
        assert bus.sessions == sessions


async def test_an_acknowledgement_that_does_not_get_through(broker: MemoryBroker) -> None:
    bus = consumer(broker)
    broker.faults.drop_before_ack("intake")
    send(broker, b"1")
    await bus.ack(bus.inbox.take("work"))
    (again,) = bus.inbox.take("work")
    assert (again.redelivered, bus.sessions) == (True, 2)
    await bus.ack([again])
    assert bus.unacked == 0


def test_only_some_connections_are_cut(broker: MemoryBroker) -> None:
    one, two = consumer(broker, "one"), consumer(broker, "two")
    assert broker.faults.end_sessions("two") == 1
    assert (one.sessions, two.sessions) == (1, 2)
    assert broker.faults.end_sessions() == 2
