import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from yarl import URL

from reach_worker.bus.rabbit import RabbitBus
from reach_worker.core.message import Message
from reach_worker.ports import Sent
from reach_worker.testing.tcp_proxy import TcpProxy
from tests.bus.bench import arrivals, to, until_session
from tests.bus.conftest import MakeBus
from tests.bus.until import LIMIT_S
from tests.bus.wire import Wire

pytestmark = pytest.mark.broker

FULL = {"x-max-length": 1, "x-overflow": "reject-publish"}


@pytest.fixture
async def bus(make_bus: MakeBus) -> AsyncIterator[RabbitBus]:
    async with make_bus().running() as bus:
        yield bus


@pytest.fixture
async def queue(wire: Wire, prefix: str) -> str:
    return await wire.queue(f"{prefix}.work")


@asynccontextmanager
async def proxied(broker_url: str) -> AsyncIterator[tuple[TcpProxy, str]]:
    """A proxy before the broker, and the URL by way of it."""
    url = URL(broker_url)
    async with TcpProxy(url.host or "", url.port or 5672) as proxy:
        yield proxy, str(url.with_port(proxy.url_port))


async def test_what_is_confirmed_lies_in_the_queue_as_it_was_sent(
    bus: RabbitBus, wire: Wire, queue: str
) -> None:
    message = Message(
        queue,
        "täsk".encode(),
        {"x-reach-task": "t1", "x-reach-first-seen": 2**53, "traceparent": "00-ü"},
        correlation_id="c1",
        reply_to="answers",
        expiration_ms=60_000,
    )
    assert await bus.publish([message]) == [Sent.CONFIRMED]
    found = await wire.get(queue)
    assert found is not None
    properties = found.header.properties
    assert (found.body, properties.headers) == (message.body, message.headers)
    assert (properties.correlation_id, properties.reply_to) == ("c1", "answers")
    assert (properties.delivery_mode, properties.content_type) == (2, "application/json")
    assert properties.expiration == "60000"


async def test_every_publish_has_a_message_id_of_its_own(bus: RabbitBus, wire: Wire, queue: str) -> None:
    message = Message(queue, b"the same")
    assert await bus.publish([message] * 3) == [Sent.CONFIRMED] * 3
    assert await bus.publish([message]) == [Sent.CONFIRMED]
    ids = [found.header.properties.message_id for found in await wire.get_all(queue)]
    assert len(set(ids)) == 4


async def test_nothing_to_send_is_nothing(bus: RabbitBus) -> None:
    assert await bus.publish([]) == []


async def test_one_burst_gets_an_answer_for_each(bus: RabbitBus, wire: Wire, queue: str, prefix: str) -> None:
    full = await wire.queue(f"{prefix}.full", FULL)
    await wire.publish(full, b"first")
    burst = [*to(queue, b"1"), *to(full, b"2"), *to(f"{prefix}.nowhere", b"3"), *to(queue, b"4")]
    assert await bus.publish(burst) == [Sent.CONFIRMED, Sent.REFUSED, Sent.UNROUTABLE, Sent.CONFIRMED]
    assert [found.body for found in await wire.get_all(queue)] == [b"1", b"4"]
    assert [found.body for found in await wire.get_all(full)] == [b"first"]
    assert (bus.ready, bus.sessions) == (True, 1)


async def test_what_need_not_arrive_is_confirmed_without_a_queue(bus: RabbitBus, prefix: str) -> None:
    message = Message(f"{prefix}.nowhere", b"", mandatory=False)
    assert await bus.publish([message]) == [Sent.CONFIRMED]


@pytest.mark.parametrize(
    "message",
    [
        Message("", b"", {"x-reach-message": "m" * 128 * 1024}),
        Message("", b"", {f"x-reach-{number}": "ü" * 200 for number in range(400)}),
        Message("", b"", {"x-reach-message": "\ud800"}),
        Message("", b"", {"x-reach-first-seen": 2**64}),
        Message("", b"", correlation_id="c" * 256),
        Message("r" * 256, b""),
    ],
    ids=["one large", "many", "surrogate", "large number", "correlation id", "routing key"],
)
async def test_a_message_that_would_end_the_connection_is_refused_alone(
    bus: RabbitBus, wire: Wire, queue: str, message: Message
) -> None:
    burst = [*to(queue, b"before"), message, *to(queue, b"after")]
    assert await bus.publish(burst) == [Sent.CONFIRMED, Sent.REFUSED, Sent.CONFIRMED]
    assert [found.body for found in await wire.get_all(queue)] == [b"before", b"after"]
    assert (bus.ready, bus.sessions) == (True, 1)


async def test_headers_just_below_the_limit_arrive(bus: RabbitBus, wire: Wire, queue: str) -> None:
    headers = {"x-reach-message": "m" * (64 * 1024 - 100)}
    assert await bus.publish([Message(queue, b"", headers)]) == [Sent.CONFIRMED]
    found = await wire.get(queue)
    assert found is not None
    assert found.header.properties.headers == headers


async def test_two_hundred_are_under_way_at_once_and_stay_in_order(
    wire: Wire, queue: str, broker_url: str, make_bus: MakeBus
) -> None:
    """While no confirm comes back all of them reach the broker: nobody waits for the one before."""
    sent = [b"%d" % number for number in range(200)]
    async with proxied(broker_url) as (proxy, url), make_bus(url).running() as bus:
        proxy.stall(proxy_direction := next(iter(proxy.forwarded)))
        publishing = asyncio.ensure_future(bus.publish(to(queue, *sent)))  # noqa: TID251 - awaited below
        await wire.until_there(queue, 200)
        assert not publishing.done()
        proxy.resume()
        assert await asyncio.wait_for(publishing, LIMIT_S) == [Sent.CONFIRMED] * 200
        assert proxy_direction.value == "to client"
    assert [found.body for found in await wire.get_all(queue)] == sent


async def test_a_large_body_arrives_whole(bus: RabbitBus, wire: Wire, queue: str) -> None:
    body = bytes(range(256)) * 16 * 1024
    assert await bus.publish(to(queue, body)) == [Sent.CONFIRMED]
    found = await wire.get(queue)
    assert found is not None
    assert found.body == body


async def test_an_exchange_that_is_gone_leaves_it_open_and_a_new_session_comes(
    bus: RabbitBus, wire: Wire, queue: str, prefix: str
) -> None:
    """The broker closes the channel over it; what was under way there is answered by nobody."""
    results = await bus.publish([Message("", b"", exchange=f"{prefix}.gone")])
    assert results == [Sent.UNCERTAIN]
    await until_session(bus, 2)
    assert await bus.publish(to(queue, b"again")) == [Sent.CONFIRMED]
    assert len(await wire.get_all(queue)) == 1


async def test_a_black_hole_ends_the_publish_in_time_and_the_session(
    wire: Wire, queue: str, broker_url: str, make_bus: MakeBus
) -> None:
    async with proxied(broker_url) as (proxy, url):
        bus = make_bus(url, call_timeout_s=0.5, connect_timeout_s=0.5)
        async with bus.running():
            proxy.blackhole()
            async with asyncio.timeout(3):
                assert await bus.publish(to(queue, b"lost", b"perhaps")) == [Sent.UNCERTAIN] * 2
            assert await bus.publish(to(queue, b"not sent")) == [Sent.REFUSED]
            proxy.resume()
            await until_session(bus, 2)
            assert await bus.publish(to(queue, b"after")) == [Sent.CONFIRMED]
    assert {b"not sent"}.isdisjoint({found.body for found in await wire.get_all(queue)})


async def test_what_was_not_sent_because_the_connection_is_gone_ends_the_session_with_it(
    wire: Wire, queue: str, make_bus: MakeBus
) -> None:
    """Else what is refused while deliveries are still current would look like the broker's own word."""
    bus = make_bus()
    bus.subscribe("work", queue, 10)
    async with bus.running():
        await wire.publish(queue, b"work")
        (delivery,) = await arrivals(bus, "work", 1)
        bus._session._publisher._bypass._writer.transport.abort()  # type: ignore[union-attr] # noqa: SLF001 - from outside it is a matter of luck
        assert bus.current(delivery)
        assert await bus.publish(to(queue, b"not sent")) == [Sent.REFUSED]
        assert not bus.current(delivery)
        await until_session(bus, 2)


async def test_without_a_session_nothing_is_sent(make_bus: MakeBus, queue: str, wire: Wire) -> None:
    bus = make_bus()
    assert await bus.publish(to(queue, b"early")) == [Sent.REFUSED]
    async with bus.running():
        pass
    assert await bus.publish(to(queue, b"late")) == [Sent.REFUSED]
    assert await wire.get_all(queue) == []
