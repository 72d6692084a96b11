"""What only the broker in memory can do: a clock that is moved, and faults at the push of a button."""

import asyncio

import pytest

from reach_worker.core.message import Message
from reach_worker.ports import Sent
from reach_worker.testing import Fate, MemoryBroker, MemoryBus, Moment, SteppedClock


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker(SteppedClock())


def test_what_falls_due_on_the_way_happens_in_order_and_at_its_own_time() -> None:
    clock = SteppedClock(now=0.0, wall_us=0)
    seen: list[tuple[str, float, int]] = []

    def note(name: str) -> None:
        seen.append((name, clock.monotonic(), clock.utc_us()))

    def first() -> None:
        note("first")
        clock.call_at(2.0, lambda: note("second"))

    clock.call_at(3.0, lambda: note("third"))
    clock.call_at(1.0, first)
    clock.call_at(9.0, lambda: note("never"))
    clock.advance(5.0)
    assert seen == [("first", 1.0, 1_000_000), ("second", 2.0, 2_000_000), ("third", 3.0, 3_000_000)]
    assert (clock.monotonic(), clock.utc_us()) == (5.0, 5_000_000)


async def test_a_sleeper_wakes_when_the_clock_was_moved_so_far() -> None:
    clock = SteppedClock()
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        sleeper = group.create_task(clock.sleep(10))
        await asyncio.wait([sleeper], timeout=0.01)
        clock.advance(9.9)
        await asyncio.wait([sleeper], timeout=0.01)
        assert not sleeper.done()
        clock.advance(0.2)


def test_draws_and_ids_follow_from_the_seed() -> None:
    one, two, other = SteppedClock(seed=1), SteppedClock(seed=1), SteppedClock(seed=2)
    assert [one.draw() for _ in range(3)] == [two.draw() for _ in range(3)]
    assert other.draw() != SteppedClock(seed=1).draw()
    assert [one.new_id(), one.new_id()] == [two.new_id(), two.new_id()]


async def test_a_message_hops_from_rung_to_rung_in_one_move(broker: MemoryBroker) -> None:
    names = broker.names
    broker.put_message(names.retry(1000), b"x")
    bus = MemoryBus(broker)
    bus.subscribe("returns", names.returns, 5, at_once=True)
    async with bus.running():
        broker.clock.advance(0.999)
        assert bus.inbox.take("returns") == []
        broker.clock.advance(0.002)
        (delivery,) = bus.inbox.take("returns")
        assert delivery.body == b"x"


@pytest.mark.parametrize(
    ("fate", "result", "arrives", "sessions"),
    [
        (Fate.CONFIRMED, Sent.CONFIRMED, True, 1),
        (Fate.REFUSED, Sent.REFUSED, False, 1),
        (Fate.UNROUTABLE, Sent.UNROUTABLE, False, 1),
        (Fate.LOST, Sent.UNCERTAIN, False, 2),
        (Fate.STORED, Sent.UNCERTAIN, True, 2),
    ],
)
async def test_every_fate(
    broker: MemoryBroker, fate: Fate, result: Sent, arrives: bool, sessions: int
) -> None:
    dlq = broker.names.dlq
    async with MemoryBus(broker).running() as bus:
        bus.fail_next(fate, to="dlq")
        others = Message(broker.names.unmatched, b"")
        assert await bus.publish([others, Message(dlq, b"1"), Message(dlq, b"2")]) == [
            Sent.CONFIRMED,
            result,
            Sent.CONFIRMED,
        ]
        assert [d.body for d in broker.messages(dlq)] == ([b"1", b"2"] if arrives else [b"2"])
        assert bus.sessions == sessions


async def test_an_acknowledgement_that_is_lost_comes_back_as_a_delivery(broker: MemoryBroker) -> None:
    bus = MemoryBus(broker)
    bus.subscribe("work", broker.names.intake, 5, at_once=True)
    async with bus.running():
        broker.send_task({"capability": "x"}, message_id="t1")
        (delivery,) = bus.inbox.take("work")
        bus.once(Moment.BEFORE_ACK, bus.end_session)
        await bus.ack([delivery])
        (again,) = bus.inbox.take("work")
        assert (again.message_id, again.redelivered) == ("t1", True)
        await bus.ack([again])
        assert bus.unacked == 0


@pytest.mark.parametrize(
    ("moment", "result", "arrived"),
    [(Moment.BEFORE_PUBLISH, Sent.REFUSED, 0), (Moment.AFTER_PUBLISH, Sent.CONFIRMED, 1)],
)
async def test_a_session_that_ends_around_a_publish(
    broker: MemoryBroker, moment: Moment, result: Sent, arrived: int
) -> None:
    async with MemoryBus(broker).running() as bus:
        bus.once(moment, bus.end_session)
        assert await bus.publish([Message(broker.names.dlq, b"")]) == [result]
        assert len(broker.messages(broker.names.dlq)) == arrived
        assert await bus.publish([Message(broker.names.dlq, b"")]) == [Sent.CONFIRMED]


async def test_a_broker_that_is_away_and_comes_back(broker: MemoryBroker) -> None:
    bus = MemoryBus(broker)
    bus.subscribe("work", broker.names.intake, 5)
    async with bus.running():
        bus.disconnect()
        broker.send_task(b"{}")
        assert await bus.publish([Message(broker.names.dlq, b"")]) == [Sent.REFUSED]
        assert bus.inbox.take("work") == []
        bus.connect()
        assert len(bus.inbox.take("work")) == 1


async def test_a_task_as_any_client_sends_it(broker: MemoryBroker) -> None:
    broker.send_task(
        {"capability": "x"},
        message_id="t1",
        reply_to="answers",
        user_id="me",
        headers={"a": 1},
        expiration_ms=5,
    )
    (delivery,) = broker.messages(broker.names.intake)
    assert (delivery.message_id, delivery.reply_to, delivery.user_id) == ("t1", "answers", "me")
    assert (delivery.headers, delivery.expiration_ms, delivery.body) == ({"a": 1}, 5, b'{"capability":"x"}')
    broker.clock.advance(1)
    assert broker.messages(broker.names.dlq)[0].headers["x-death"][0]["reason"] == "expired"


async def test_a_quick_start_takes_the_full_number_at_once(broker: MemoryBroker) -> None:
    bus = MemoryBus(broker, slow_start=False)
    bus.subscribe("work", broker.names.intake, 3)
    for _ in range(5):
        broker.send_task(b"{}")
    async with bus.running():
        assert len(bus.inbox.take("work")) == 3
