"""The ConsumingBus port: one suite for the bus on RabbitMQ and the one in memory, of everything the two share."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Protocol

import pytest
from aiormq import exceptions as amqp
from yarl import URL

from reach_worker.bus import topology
from reach_worker.bus.rabbit import BusSettings, RabbitBus
from reach_worker.clock import SystemClock
from reach_worker.core.message import Delivery, Message
from reach_worker.core.names import Names
from reach_worker.errors import BrokerUnavailable
from reach_worker.ports import ConsumingBus, Sent, SubscribingBus
from reach_worker.testing import MemoryBroker, MemoryBus, SteppedClock
from reach_worker.testing.tcp_proxy import TcpProxy
from tests.bus.until import LIMIT_S, until
from tests.bus.wire import Wire, shared_broker

AGENT, ROUTER, LANE = "a", "r", "c"
EXPIRED_S = 0.2
COUNT = "x-delivery-count"  # on what comes for the first time some versions write a 0, some nothing


class Bus(SubscribingBus, Protocol):
    """The port, and how both adapters are set up."""

    sessions: int

    def running(self) -> AbstractAsyncContextManager["Bus"]: ...

    @property
    def ready(self) -> bool: ...


class Side(Protocol):
    """One of the two worlds, and what a test does to it from outside."""

    names: Names
    user: str

    def bus(self) -> Bus:
        """A bus that is not running yet. Agent ``a``, router ``r`` and capability ``c`` have their queues."""
        ...

    async def end_session(self, bus: Bus) -> None:
        """End a session from outside, and wait until the next one is there."""
        ...

    async def pass_time(self, seconds: float) -> None:
        """Let time pass on the broker."""
        ...

    async def put(self, queue: str, body: bytes, headers: Mapping[str, Any]) -> None:
        """Somebody else's message, straight into a queue."""
        ...

    async def return_once(self, queue: str) -> None:
        """Somebody takes the oldest message and gives it back unacknowledged."""
        ...

    async def delete(self, queue: str) -> None:
        """Somebody deletes a queue with all that is in it."""
        ...

    async def ready(self, queue: str) -> int:
        """Messages that wait in a queue."""
        ...


class InMemory:
    """The broker in memory."""

    user = "guest"

    def __init__(self) -> None:
        self.clock = SteppedClock()
        self.broker = MemoryBroker(self.clock)
        self.names = self.broker.names
        for queue in (self.names.agent(AGENT), self.names.outcomes(ROUTER), self.names.lane(LANE)):
            self.broker.declare(queue)

    def bus(self) -> Bus:
        return MemoryBus(self.broker)

    async def end_session(self, bus: Bus) -> None:
        assert isinstance(bus, MemoryBus)
        bus.end_session()

    async def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    async def put(self, queue: str, body: bytes, headers: Mapping[str, Any]) -> None:
        self.broker.put_message(queue, body, headers)

    async def return_once(self, queue: str) -> None:
        taken = self.broker.queues[queue].take()
        assert taken is not None
        self.broker.put_back(queue, taken)

    async def delete(self, queue: str) -> None:
        self.broker.delete_queue(queue)

    async def ready(self, queue: str) -> int:
        return len(self.broker.messages(queue))


class OnRabbit:
    """A real broker, with names of our own on it, behind a proxy that can be cut."""

    def __init__(self, wire: Wire, proxy: TcpProxy, url: str) -> None:
        self.names = Names(f"test-{os.urandom(6).hex()}")
        self.topology = topology.complete(
            self.names, router_ids=[ROUTER], agent_ids=[AGENT], capabilities=[LANE]
        )
        self.user = URL(url).user or "guest"
        self._wire = wire
        self._proxy = proxy
        self._url = str(URL(url).with_host(proxy.target[0]).with_port(proxy.url_port))

    def bus(self) -> Bus:
        settings = BusSettings((self._url,), "contract", self.names.prefix)
        return RabbitBus(settings, SystemClock(), self.topology)

    async def end_session(self, bus: Bus) -> None:
        before = bus.sessions
        await self._proxy.cut()
        await until(lambda: bus.sessions > before and bus.ready)

    async def pass_time(self, seconds: float) -> None:
        """It passes by itself; who waits for what follows from it waits for that."""

    async def put(self, queue: str, body: bytes, headers: Mapping[str, Any]) -> None:
        await self._wire.publish(queue, body, headers=dict(headers))

    async def return_once(self, queue: str) -> None:
        channel = await self._wire.connection.channel(publisher_confirms=False)
        await until(lambda: self._has(queue))
        message = await channel.basic_get(queue, timeout=LIMIT_S)
        assert message.delivery_tag
        await channel.basic_nack(message.delivery_tag, requeue=True, wait=True)
        await channel.close()

    async def delete(self, queue: str) -> None:
        channel = await self._wire.connection.channel(publisher_confirms=False)
        await channel.queue_delete(queue, timeout=LIMIT_S)
        await channel.close()

    async def _has(self, queue: str) -> bool:
        return await self.ready(queue) > 0

    async def ready(self, queue: str) -> int:
        channel = await self._wire.connection.channel(publisher_confirms=False)
        found = await channel.queue_declare(queue, passive=True, timeout=LIMIT_S)
        await channel.close()
        return found.message_count or 0

    async def remove(self) -> None:
        """Delete everything of ours."""
        channel = await self._wire.connection.channel(publisher_confirms=False)
        for queue in self.topology.queues:
            await channel.queue_delete(queue.name, timeout=LIMIT_S)
        for exchange in self.topology.exchanges:
            with suppress(amqp.ChannelNotFoundEntity):
                await channel.exchange_delete(exchange.name, timeout=LIMIT_S)


@asynccontextmanager
async def in_memory() -> AsyncIterator[Side]:
    yield InMemory()


@asynccontextmanager
async def on_rabbit() -> AsyncIterator[Side]:
    url = shared_broker()
    target = URL(url)
    async with AsyncExitStack() as stack:
        wire = await stack.enter_async_context(Wire.to(url))
        proxy = await stack.enter_async_context(TcpProxy(target.host or "127.0.0.1", target.port or 5672))
        side = OnRabbit(wire, proxy, url)
        stack.push_async_callback(side.remove)
        yield side


@pytest.fixture(
    params=[
        pytest.param(in_memory, id="memory"),
        pytest.param(on_rabbit, id="rabbit", marks=pytest.mark.broker),
    ]
)
async def side(request: pytest.FixtureRequest) -> AsyncIterator[Side]:
    make: Callable[[], AbstractAsyncContextManager[Side]] = request.param
    async with make() as made:
        yield made


async def arrivals(bus: ConsumingBus, name: str, count: int) -> list[Delivery]:
    """The next deliveries of a subscription; exactly so many are taken."""
    found: list[Delivery] = []
    async with asyncio.timeout(LIMIT_S):
        while len(found) < count:
            found += bus.inbox.take(name, count - len(found))
            if len(found) < count:
                bus.inbox.arrived.clear()
                await bus.inbox.arrived.wait()
    return found


async def got(bus: ConsumingBus, queue: str) -> Delivery:
    """The next message in a queue, as soon as there is one."""
    found: list[Delivery] = []

    async def there() -> bool:
        found.extend((await bus.get(queue, 1))[0])
        return bool(found)

    await until(there)
    return found[0]


async def until_ready(side: Side, queue: str, count: int) -> None:
    """Wait until so many messages wait in a queue."""

    async def so_many() -> bool:
        return await side.ready(queue) == count

    await until(so_many)


async def until_depth(bus: Bus, queue: str, depth: tuple[int, int]) -> None:
    """Wait until a queue has so many messages and consumers: the broker counts consumers a little later."""

    async def it_is() -> bool:
        return await bus.depth(queue) == depth

    await until(it_is)


def numbers(queue: str, count: int) -> list[Message]:
    return [Message(queue, b"%d" % number) for number in range(count)]


def bodies(deliveries: Iterable[Delivery]) -> list[bytes]:
    return [delivery.body for delivery in deliveries]


# ---- Publishing


async def test_what_is_confirmed_arrives_as_it_was_sent(side: Side) -> None:
    queue = side.names.agent(AGENT)
    headers = {"text": "é", "number": 2**40, "yes": True, "list": [1, "a"], "table": {"x": 1}}
    sent = Message(
        queue,
        b"\x00body\xff",
        headers,
        correlation_id="c1",
        reply_to="somewhere",
        content_type="text/plain",
        expiration_ms=60_000,
    )
    async with side.bus().running() as bus:
        assert await bus.publish([sent, sent]) == [Sent.CONFIRMED] * 2
        first, second = await got(bus, queue), await got(bus, queue)
    assert (first.queue, first.body) == (queue, sent.body)
    assert {name: value for name, value in first.headers.items() if name != COUNT} == headers
    assert (first.correlation_id, first.reply_to, first.content_type) == ("c1", "somewhere", "text/plain")
    assert (first.expiration_ms, first.routing_key) == (60_000, queue)
    assert (first.redelivered, first.user_id, first.fault) == (False, None, None)
    assert first.message_id
    assert first.message_id != second.message_id


async def test_a_caller_may_name_his_message_and_himself(side: Side) -> None:
    """The broker takes no other user's name than that of the connection."""
    queue = side.names.agent(AGENT)
    async with side.bus().running() as bus:
        sent = [Message(queue, b"", message_id="mine", user_id=side.user), Message(queue, b"")]
        assert await bus.publish(sent) == [Sent.CONFIRMED] * 2
        first, second = await got(bus, queue), await got(bus, queue)
    assert (first.message_id, first.user_id) == ("mine", side.user)
    assert (second.message_id == "mine", second.user_id) == (False, None)


async def test_nobody_to_take_it_is_said_where_that_matters(side: Side) -> None:
    async with side.bus().running() as bus:
        results = await bus.publish(
            [
                Message(side.names.agent("nobody"), b""),
                Message(side.names.dlq, b"1"),
                Message(side.names.agent("nobody"), b"", mandatory=False),
                Message(side.names.dlq, b"2"),
                Message("presence.x", b"", {}, side.names.events),
                Message("presence.x", b"", {}, side.names.events, mandatory=False),
            ]
        )
        assert results == [
            Sent.UNROUTABLE,
            Sent.CONFIRMED,
            Sent.CONFIRMED,
            Sent.CONFIRMED,
            Sent.UNROUTABLE,
            Sent.CONFIRMED,
        ]
        assert bodies((await bus.get(side.names.dlq, 5))[0]) == [b"1", b"2"]


async def test_nothing_to_publish_is_nothing(side: Side) -> None:
    async with side.bus().running() as bus:
        assert await bus.publish([]) == []


async def test_headers_that_would_kill_the_connection_are_refused_and_the_others_go(side: Side) -> None:
    queue = side.names.dlq
    async with side.bus().running() as bus:
        results = await bus.publish(
            [
                Message(queue, b"1"),
                Message(queue, b"big", {"x": "y" * 70_000}),
                Message(queue, b"strange", {"x": object()}),
                Message(queue, b"long", {"x": 2**70}),
                Message(queue, b"2"),
            ]
        )
        assert results == [Sent.CONFIRMED, Sent.REFUSED, Sent.REFUSED, Sent.REFUSED, Sent.CONFIRMED]
        assert bodies((await bus.get(queue, 5))[0]) == [b"1", b"2"]
        assert bus.sessions == 1


async def test_an_exchange_that_does_not_exist_ends_the_session(side: Side) -> None:
    async with side.bus().running() as bus:
        assert await bus.publish([Message("", b"", exchange="gone")]) == [Sent.UNCERTAIN]
        await until(lambda: bus.sessions == 2 and bus.ready)
        assert await bus.publish([Message(side.names.dlq, b"")]) == [Sent.CONFIRMED]


async def test_the_public_door_leads_to_intake_by_any_routing_key(side: Side) -> None:
    keys = ["", "a", "a.b.c", "#"]
    async with side.bus().running() as bus:
        results = await bus.publish([Message(key, key.encode(), {}, side.names.tasks) for key in keys])
        assert results == [Sent.CONFIRMED] * 4
        taken = [await got(bus, side.names.intake) for _ in keys]
    assert [delivery.routing_key for delivery in taken] == keys


async def test_without_a_session_nothing_is_sent_and_nothing_raises_but_the_question_of_depth(
    side: Side,
) -> None:
    bus = side.bus()
    assert await bus.publish([Message(side.names.dlq, b"")]) == [Sent.REFUSED]
    assert await bus.get(side.names.dlq, 1) == ([], 0)
    assert bus.mailbox == ""
    assert not bus.ready
    with pytest.raises(BrokerUnavailable):
        await bus.depth(side.names.dlq)
    async with bus.running():
        await bus.publish([Message(side.names.dlq, b"")])
        (delivery,), _ = await bus.get(side.names.dlq, 1)
        assert bus.current(delivery)
    assert not bus.current(delivery)
    await bus.ack([delivery])
    await until_ready(side, side.names.dlq, 1)


# ---- Getting, looking, declaring


async def test_get_takes_in_order_and_tells_what_is_left(side: Side) -> None:
    queue = side.names.lane(LANE)
    async with side.bus().running() as bus:
        await bus.publish(numbers(queue, 5))
        first, left = await bus.get(queue, 2)
        assert (bodies(first), left) == ([b"0", b"1"], 3)
        rest, left = await bus.get(queue, 10)
        assert (bodies(rest), left) == ([b"2", b"3", b"4"], 0)
        assert await bus.get(queue, 1) == ([], 0)
        await bus.ack([*first, *rest])


async def test_many_are_taken_at_once_in_order(side: Side) -> None:
    queue = side.names.lane(LANE)
    async with side.bus().running() as bus:
        await bus.publish(numbers(queue, 9))
        first = await bus.get_many(queue, 4)
        await bus.ack(first[:2])
        rest = await bus.get_many(queue, 5)
        assert bodies([*first, *rest]) == [b"%d" % number for number in range(9)]
        assert await bus.get(queue, 1) == ([], 0)
        await bus.ack([*first[2:], *rest])


async def test_fewer_are_taken_where_fewer_wait(side: Side) -> None:
    queue = side.names.lane(LANE)
    async with side.bus().running() as bus:
        await bus.publish(numbers(queue, 3))
        found = await bus.get_many(queue, 5)
        assert bodies(found) == [b"0", b"1", b"2"]
        assert await bus.get_many(queue, 5) == []
        await bus.publish(numbers(queue, 1))
        assert bodies((await bus.get(queue, 1))[0]) == [b"0"], "nobody goes on taking"


async def test_many_from_a_queue_that_does_not_exist_are_none(side: Side) -> None:
    async with side.bus().running() as bus:
        assert await bus.get_many(side.names.lane("none"), 3) == []


async def test_get_from_a_queue_that_does_not_exist_finds_nothing(side: Side) -> None:
    async with side.bus().running() as bus:
        assert await bus.get(side.names.lane("none"), 1) == ([], 0)
        await until(lambda: bus.sessions == 2 and bus.ready)


async def test_depth_is_messages_and_consumers(side: Side) -> None:
    queue = side.names.agent(AGENT)
    bus = side.bus()
    bus.subscribe("work", queue, 1)
    async with bus.running():
        await bus.publish(numbers(queue, 3))
        (delivery,) = await arrivals(bus, "work", 1)
        await until_ready(side, queue, 2)
        await until_depth(bus, queue, (2, 1))
        assert await bus.depth(side.names.dlq) == (0, 0)
        assert await bus.depth(side.names.agent("none")) is None
        await bus.ack([delivery])


async def test_queues_that_are_declared_on_demand(side: Side) -> None:
    names = side.names
    async with side.bus().running() as bus:
        for name in (names.agent(AGENT), names.lane(LANE), names.outcomes(ROUTER)):
            await bus.declare_queue(name)
            await bus.declare_queue(name)
            assert await bus.depth(name) == (0, 0)
        for name in (names.intake, names.retry(250), "other", f"{names.prefix}.agent."):
            with pytest.raises(ValueError, match="is no queue that is declared on demand"):
                await bus.declare_queue(name)
        assert bus.sessions == 1


# ---- Consuming


async def test_deliveries_land_in_the_inbox_in_order(side: Side) -> None:
    queue = side.names.agent(AGENT)
    bus = side.bus()
    bus.subscribe("work", queue, 10, at_once=True)
    async with bus.running():
        await bus.publish(numbers(queue, 5))
        first = await arrivals(bus, "work", 2)
        rest = await arrivals(bus, "work", 3)
        assert bodies([*first, *rest]) == [b"0", b"1", b"2", b"3", b"4"]
        assert bus.inbox.take("work") == []
        assert bus.inbox.take("unheard-of") == []
        await bus.ack([*first, *rest])


async def test_a_session_begins_slowly_until_something_is_acknowledged(side: Side) -> None:
    queue = side.names.agent(AGENT)
    bus = side.bus()
    bus.subscribe("work", queue, 4)
    async with bus.running():
        await bus.publish(numbers(queue, 10))
        first = await arrivals(bus, "work", 1)
        await until_ready(side, queue, 9)
        await bus.ack(first)
        assert bodies(await arrivals(bus, "work", 4)) == [b"1", b"2", b"3", b"4"]
        await until_ready(side, queue, 5)


async def test_what_was_delivered_before_is_taken_one_at_a_time(side: Side) -> None:
    """Whatever ended the session may be among it: no neighbour is to be worn out by that."""
    queue = side.names.agent(AGENT)
    bus = side.bus()
    bus.subscribe("work", queue, 4)
    async with bus.running():
        await bus.publish(numbers(queue, 8))
        await bus.ack(await arrivals(bus, "work", 1))
        assert bodies(await arrivals(bus, "work", 4)) == [b"1", b"2", b"3", b"4"]
    async with bus.running():
        again = []
        for left in (6, 5, 4, 3):
            (met,) = await arrivals(bus, "work", 1)
            assert met.redelivered
            again.append(met.body)
            await until_ready(side, queue, left)
            await bus.ack([met])
        assert sorted(again) == [b"1", b"2", b"3", b"4"]
        (fresh,) = await arrivals(bus, "work", 1)
        assert not fresh.redelivered
        await until_ready(side, queue, 2)
        await bus.ack([fresh])
        assert bodies(await arrivals(bus, "work", 2)) == [b"6", b"7"]


async def test_or_until_what_came_is_called_harmless(side: Side) -> None:
    queue = side.names.agent(AGENT)
    bus = side.bus()
    bus.subscribe("work", queue, 4)
    async with bus.running():
        await bus.publish(numbers(queue, 10))
        held = await arrivals(bus, "work", 1)
        await until_ready(side, queue, 9)
        await bus.trust("work")
        more = await arrivals(bus, "work", 3)
        assert [delivery.redelivered for delivery in more] == [False] * 3
        await until_ready(side, queue, 6)
        await bus.trust("work")
        await bus.ack([*held, *more])
        assert sorted(bodies(await arrivals(bus, "work", 4))) == [b"4", b"5", b"6", b"7"]


async def test_no_more_than_the_prefetch_is_held(side: Side) -> None:
    queue = side.names.agent(AGENT)
    bus = side.bus()
    bus.subscribe("work", queue, 3, at_once=True)
    async with bus.running():
        await bus.publish(numbers(queue, 10))
        taken = await arrivals(bus, "work", 3)
        await until_ready(side, queue, 7)
        await bus.ack(taken[:1])
        assert bodies(await arrivals(bus, "work", 1)) == [b"3"]
        await until_ready(side, queue, 6)


async def test_another_prefetch_counts_from_the_next_acknowledgement(side: Side) -> None:
    queue = side.names.agent(AGENT)
    bus = side.bus()
    bus.subscribe("work", queue, 2, at_once=True)
    async with bus.running():
        await bus.publish(numbers(queue, 10))
        taken = await arrivals(bus, "work", 2)
        await bus.set_prefetch("work", 5)
        await until_ready(side, queue, 8)
        await bus.ack(taken)
        assert bodies(await arrivals(bus, "work", 5)) == [b"2", b"3", b"4", b"5", b"6"]
        await until_ready(side, queue, 3)


async def test_what_is_not_wanted_is_not_consumed(side: Side) -> None:
    queue = side.names.agent(AGENT)
    bus = side.bus()
    bus.subscribe("work", queue, 5, wanted=False, at_once=True)
    async with bus.running():
        await bus.publish(numbers(queue, 3))
        await until_depth(bus, queue, (3, 0))
        await bus.want("work", wanted=True)
        taken = await arrivals(bus, "work", 3)
        await bus.want("work", wanted=False)
        await bus.want("work", wanted=False)
        await bus.publish(numbers(queue, 2))
        await until_ready(side, queue, 2)
        assert all(bus.current(delivery) for delivery in taken)
        await bus.ack(taken)
        await bus.want("work", wanted=True)
        assert bodies(await arrivals(bus, "work", 2)) == [b"0", b"1"]


async def test_it_says_whether_it_consumes(side: Side) -> None:
    bus = side.bus()
    bus.subscribe("work", side.names.agent(AGENT), 5, wanted=False)
    assert not bus.consumes("work")
    async with bus.running():
        assert (bus.consumes("work"), bus.consumes("other")) == (False, False)
        await bus.want("work", wanted=True)
        assert bus.consumes("work")
        await bus.want("work", wanted=False)
        assert not bus.consumes("work")
    assert not bus.consumes("work")


async def test_a_queue_that_is_deleted_under_its_consumer_ends_the_session_and_is_there_again(
    side: Side,
) -> None:
    queue = side.names.agent(AGENT)
    bus = side.bus()
    bus.subscribe("work", queue, 5, at_once=True)
    async with bus.running():
        before = bus.sessions
        await side.delete(queue)
        await until(lambda: bus.sessions > before and bus.ready)
        assert await bus.publish(numbers(queue, 1)) == [Sent.CONFIRMED]
        await arrivals(bus, "work", 1)


async def test_one_more_queue_now_and_in_the_next_session(side: Side) -> None:
    queue = side.names.agent(AGENT)
    async with side.bus().running() as bus:
        await bus.add_subscription("more", queue, 10)
        await bus.add_subscription("more", queue, 10)
        await bus.publish(numbers(queue, 2))
        await bus.ack(await arrivals(bus, "more", 2))
        await until_depth(bus, queue, (0, 1))
        await side.end_session(bus)
        await bus.publish(numbers(queue, 1))
        assert bodies(await arrivals(bus, "more", 1)) == [b"0"]


async def test_two_consumers_share_the_work(side: Side) -> None:
    queue = side.names.agent(AGENT)
    first, second = side.bus(), side.bus()
    for bus in (first, second):
        bus.subscribe("work", queue, 1)
    async with first.running(), second.running():
        await first.publish(numbers(queue, 4))
        one, two = await arrivals(first, "work", 1), await arrivals(second, "work", 1)
        assert set(bodies([*one, *two])) == {b"0", b"1"}
        await until_ready(side, queue, 2)


async def test_outcomes_go_to_one_consumer_and_to_the_next_when_that_stops(side: Side) -> None:
    queue = side.names.outcomes(ROUTER)
    owner, other = side.bus(), side.bus()
    owner.subscribe("outcomes", queue, 10, at_once=True)
    async with owner.running(), other.running():
        await other.add_subscription("outcomes", queue, 10)
        await owner.publish(numbers(queue, 3))
        taken = await arrivals(owner, "outcomes", 3)
        assert other.inbox.take("outcomes") == []
        await owner.ack(taken)
        await owner.want("outcomes", wanted=False)
        await owner.publish(numbers(queue, 2))
        assert bodies(await arrivals(other, "outcomes", 2)) == [b"0", b"1"]
        await owner.want("outcomes", wanted=True)
        await other.want("outcomes", wanted=False)
        await owner.publish(numbers(queue, 1))
        assert bodies(await arrivals(owner, "outcomes", 1)) == [b"0"]


# ---- Sessions


async def test_what_was_not_acknowledged_comes_again_in_order_and_says_so(side: Side) -> None:
    queue = side.names.agent(AGENT)
    bus = side.bus()
    bus.subscribe("work", queue, 10, at_once=True)
    async with bus.running():
        await bus.publish(numbers(queue, 4))
        taken = await arrivals(bus, "work", 4)
        await bus.ack(taken[:1])
        await until_acknowledged(bus, queue)
        await side.end_session(bus)
        again = await arrivals(bus, "work", 3)
        assert bodies(again) == [b"1", b"2", b"3"]
        assert [(d.redelivered, d.headers[COUNT]) for d in again] == [(True, 1)] * 3
        assert [d.redelivered for d in taken] == [False] * 4
        await bus.ack(again)
    await until_ready(side, queue, 0)


async def until_acknowledged(bus: Bus, queue: str) -> None:
    """An answer by the broker on the same channel comes after what was acknowledged there before."""
    name = "work"
    await bus.want(name, wanted=False)
    await bus.want(name, wanted=True)
    assert await bus.depth(queue) is not None


async def test_receipts_of_an_earlier_session_are_worth_nothing(side: Side) -> None:
    queue = side.names.agent(AGENT)
    bus = side.bus()
    bus.subscribe("work", queue, 10, at_once=True)
    async with bus.running():
        await bus.publish(numbers(queue, 2))
        taken = await arrivals(bus, "work", 2)
        await side.end_session(bus)
        again = await arrivals(bus, "work", 2)
        assert [bus.current(d) for d in taken] == [False, False]
        assert [bus.current(d) for d in again] == [True, True]
        await bus.ack(taken)
        await bus.ack([taken[0], again[0]])
        await until_acknowledged(bus, queue)
        await side.end_session(bus)
        assert bodies(await arrivals(bus, "work", 1)) == [b"1"]
        assert bus.sessions == 3


async def test_what_was_got_comes_again_too(side: Side) -> None:
    queue = side.names.lane(LANE)
    async with side.bus().running() as bus:
        await bus.publish(numbers(queue, 3))
        assert len((await bus.get(queue, 2))[0]) == 2
        await side.end_session(bus)
        await until_ready(side, queue, 3)
        again, _ = await bus.get(queue, 3)
        assert bodies(again) == [b"0", b"1", b"2"]
        assert [d.redelivered for d in again] == [True, True, False]


async def test_what_arrived_and_was_not_taken_is_forgotten_with_its_session(side: Side) -> None:
    queue = side.names.agent(AGENT)
    bus = side.bus()
    bus.subscribe("work", queue, 10, at_once=True)
    async with bus.running():
        await bus.publish(numbers(queue, 3))
        await until_ready(side, queue, 0)
        await arrivals(bus, "work", 1)
        await side.end_session(bus)
        again = await arrivals(bus, "work", 3)
        assert bodies(again) == [b"0", b"1", b"2"]
        assert bus.inbox.take("work") == []


async def test_the_next_session_knows_every_wish(side: Side) -> None:
    queue, lane = side.names.agent(AGENT), side.names.lane(LANE)
    began: list[int] = []
    bus = side.bus()
    bus.subscribe("work", queue, 3, wanted=False)
    bus.subscribe("lane", lane, 1)
    bus.on_session = lambda: began.append(bus.sessions)
    async with bus.running():
        await bus.want("work", wanted=True)
        await bus.want("lane", wanted=False)
        await side.end_session(bus)
        await until_depth(bus, queue, (0, 1))
        await until_depth(bus, lane, (0, 0))
    assert began == [1, 2]


async def test_a_mailbox_hears_what_it_is_bound_to_and_has_a_new_name_in_each_session(side: Side) -> None:
    events = side.names.events
    bus = side.bus()
    bus.subscribe_mailbox("mail", [(events, "presence.#"), (events, "*.a"), (events, "who")])
    async with bus.running():
        keys = ["presence", "presence.a", "presence.a.b", "x.a", "x.a.b", "who", "who.else", "other"]
        await bus.publish([Message(key, b"", {}, events, mandatory=False) for key in keys])
        await bus.publish([Message(bus.mailbox, b"direct")])
        first = await arrivals(bus, "mail", 1)
        await bus.ack(first)
        heard = [*first, *await arrivals(bus, "mail", 5)]
        assert [d.routing_key for d in heard[:5]] == ["presence", "presence.a", "presence.a.b", "x.a", "who"]
        assert heard[5].body == b"direct"
        old = bus.mailbox
        assert old.startswith(f"{side.names.prefix}.mail.")
        await side.end_session(bus)
        assert bus.mailbox != old
        await until_gone(bus, old)
        await bus.publish([Message("presence.a", b"", {}, events, mandatory=False)])
        assert len(await arrivals(bus, "mail", 1)) == 1


async def until_gone(bus: Bus, mailbox: str) -> None:
    """Wait until nobody has this mailbox any more."""

    async def unroutable() -> bool:
        return await bus.publish([Message(mailbox, b"")]) == [Sent.UNROUTABLE]

    await until(unroutable)


async def test_one_more_mailbox_now_and_in_the_next_session_with_its_own_prefetch(side: Side) -> None:
    bus = side.bus()
    bus.subscribe_mailbox("mail", prefix="answers")
    async with bus.running():
        first = bus.mailbox
        assert bus.mailbox_of("more") == ""
        await bus.add_mailbox("more", 2, "answers")
        more = bus.mailbox_of("more")
        assert more.startswith("answers.more.")
        assert (bus.mailbox, bus.mailbox_of("mail")) == (first, first)
        await bus.publish([Message(more, body) for body in (b"1", b"2", b"3")])
        held = await arrivals(bus, "more", 2)
        assert bodies(held) == [b"1", b"2"]
        await bus.ack(held[:1])
        assert bodies(await arrivals(bus, "more", 1)) == [b"3"]
        await side.end_session(bus)
        assert bus.mailbox_of("more") not in ("", more)
        await bus.publish([Message(bus.mailbox_of("more"), b"4"), Message(bus.mailbox, b"5")])
        assert bodies(await arrivals(bus, "more", 1)) == [b"4"]
        assert bodies(await arrivals(bus, "mail", 1)) == [b"5"]


async def test_a_mailbox_that_is_dropped_is_gone_and_the_session_goes_on(side: Side) -> None:
    bus = side.bus()
    bus.subscribe_mailbox("mail", prefix="answers")
    async with bus.running():
        await bus.add_mailbox("more", 1, "answers")
        more, sessions = bus.mailbox_of("more"), bus.sessions
        await bus.publish([Message(more, b"1"), Message(more, b"2")])
        held = await arrivals(bus, "more", 1)
        await bus.drop_mailbox("more")
        await bus.drop_mailbox("more")
        assert bus.mailbox_of("more") == ""
        assert await bus.publish([Message(more, b"3")]) == [Sent.UNROUTABLE]
        await bus.ack(held)
        assert bus.inbox.take("more") == []
        await bus.publish([Message(bus.mailbox, b"4")])
        assert bodies(await arrivals(bus, "mail", 1)) == [b"4"]
        assert bus.sessions == sessions
        await side.end_session(bus)
        assert bus.mailbox_of("more") == ""


async def test_a_mailbox_under_another_prefix(side: Side) -> None:
    bus = side.bus()
    bus.subscribe_mailbox("mail", prefix="answers")
    async with bus.running():
        assert bus.mailbox.startswith("answers.mail.")
        await bus.publish([Message(bus.mailbox, b"hello", correlation_id="t1")])
        (answer,) = await arrivals(bus, "mail", 1)
        assert (answer.body, answer.correlation_id) == (b"hello", "t1")


# ---- What the broker moves by itself


@pytest.mark.parametrize("kind", ["agent", "lane"])
async def test_what_expires_goes_to_returns_and_says_why(side: Side, kind: str) -> None:
    queue = side.names.agent(AGENT) if kind == "agent" else side.names.lane(LANE)
    async with side.bus().running() as bus:
        await bus.publish(
            [Message(queue, b"late", {"x-reach-task": "t1"}, expiration_ms=int(EXPIRED_S * 1000))]
        )
        await side.pass_time(EXPIRED_S)
        delivery = await got(bus, side.names.returns)
    death = delivery.headers["x-death"][0]
    assert (death["reason"], death["queue"], death["count"]) == ("expired", queue, 1)
    assert delivery.headers["x-first-death-reason"] == "expired"
    assert delivery.headers["x-first-death-queue"] == queue
    assert (delivery.body, delivery.headers["x-reach-task"]) == (b"late", "t1")
    assert (delivery.expiration_ms, delivery.redelivered, delivery.routing_key) == (
        None,
        False,
        side.names.returns,
    )


async def test_a_rung_gives_back_after_its_time_and_a_second_time_counts_on(side: Side) -> None:
    rung = side.names.retry(250)
    async with side.bus().running() as bus:
        await bus.publish([Message(rung, b"again")])
        assert await side.ready(side.names.returns) == 0
        await side.pass_time(0.25)
        first = await got(bus, side.names.returns)
        assert first.headers["x-death"][0]["count"] == 1
        await side.put(rung, first.body, first.headers)
        await bus.ack([first])
        await side.pass_time(0.25)
        second = await got(bus, side.names.returns)
    (death,) = second.headers["x-death"]
    assert (death["reason"], death["queue"], death["count"]) == ("expired", rung, 2)


async def test_a_longer_rung_does_not_hold_up_a_shorter_one(side: Side) -> None:
    async with side.bus().running() as bus:
        await bus.publish([Message(side.names.retry(1000), b"1000"), Message(side.names.retry(250), b"250")])
        await side.pass_time(0.25)
        assert (await got(bus, side.names.returns)).body == b"250"
        await side.pass_time(0.75)
        assert (await got(bus, side.names.returns)).body == b"1000"


async def test_what_is_held_does_not_expire_until_it_is_given_back(side: Side) -> None:
    queue = side.names.agent(AGENT)
    async with side.bus().running() as bus:
        await bus.publish(
            [Message(queue, b"held", expiration_ms=100), Message(queue, b"waits", expiration_ms=100)]
        )
        (held,), _ = await bus.get(queue, 1)
        await side.pass_time(0.2)
        assert (await got(bus, side.names.returns)).body == b"waits"
        assert await side.ready(side.names.returns) == 0
        await bus.ack([held])


@pytest.mark.parametrize(("kind", "limit"), [("agent", 20), ("intake", 20)])
async def test_what_is_given_back_too_often_is_given_up(side: Side, kind: str, limit: int) -> None:
    names = side.names
    queue, target = (names.agent(AGENT), names.returns) if kind == "agent" else (names.intake, names.dlq)
    async with side.bus().running() as bus:
        await bus.publish([Message(queue, b"poison")])
        for _ in range(limit):
            await side.return_once(queue)
        await until_ready(side, queue, 1)
        assert await side.ready(target) == 0
        await side.return_once(queue)
        delivery = await got(bus, target)
    death = delivery.headers["x-death"][0]
    assert (death["reason"], death["queue"]) == ("delivery_limit", queue)


async def test_looking_never_wears_out_what_rests(side: Side) -> None:
    async with side.bus().running() as bus:
        for queue in (side.names.dlq, side.names.unmatched, side.names.lane(LANE)):
            await bus.publish([Message(queue, b"kept")])
            for _ in range(25):
                await side.return_once(queue)
            assert (await got(bus, queue)).body == b"kept"
