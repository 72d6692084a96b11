import asyncio
import gc
import logging
import resource
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Final

import aiormq
import pytest
from aiormq.exceptions import ChannelLockedResource
from yarl import URL

from reach_worker.bus.consumer import Consumer, Taken
from reach_worker.bus.publisher import Publisher
from reach_worker.bus.rabbit import RabbitBus
from reach_worker.bus.session import Session
from reach_worker.bus.topology import Topology, resting
from reach_worker.core.names import Names
from reach_worker.errors import BrokerUnavailable, WrongCredentials
from reach_worker.ports import Sent
from reach_worker.testing.tcp_proxy import Direction, TcpProxy
from tests.bus.bench import arrivals, bodies, to, until_session
from tests.bus.conftest import MakeBus
from tests.bus.private_node import Node
from tests.bus.until import LIMIT_S, until
from tests.bus.wire import Wire

pytestmark = pytest.mark.broker

STUCK_S: Final = 15.0
"""With a heartbeat of one second aiormq gives a silent connection up after six."""


@pytest.fixture
async def proxy(broker_url: str) -> AsyncIterator[TcpProxy]:
    url = URL(broker_url)
    async with TcpProxy(url.host or "", url.port or 5672) as proxy:
        yield proxy


@pytest.fixture
def proxied_url(broker_url: str, proxy: TcpProxy) -> str:
    return str(URL(broker_url).with_port(proxy.url_port))


@pytest.fixture
def closed_port() -> int:
    """A port that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port where connections are taken and nothing is ever said."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def working(bus: RabbitBus, queue: str) -> RabbitBus:
    bus.subscribe("work", queue, 10)
    return bus


def durable(queue: str) -> Topology:
    """One quorum queue, declared in every session."""
    return Topology((), (resting(queue),), ())


async def works(bus: RabbitBus, queue: str, body: bytes) -> None:
    """What is published comes back by the consumer; it may take a session more."""
    async with asyncio.timeout(LIMIT_S):
        while await bus.publish(to(queue, body)) != [Sent.CONFIRMED]:
            await bus.wait_up()
        while True:
            found = await arrivals(bus, "work", 1)
            await bus.ack(found)
            if body in bodies(found):
                return


# ---- Losing the connection


async def test_a_reset_connection_is_made_anew(
    wire: Wire,
    prefix: str,
    proxy: TcpProxy,
    proxied_url: str,
    make_bus: MakeBus,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="reach_worker.bus.rabbit")
    queue = await wire.queue(f"{prefix}.work")
    async with working(make_bus(proxied_url), queue).running() as bus:
        for number in range(1, 6):
            await works(bus, queue, b"%d" % number)
            await proxy.cut()
            await until_session(bus, number + 1)
            await wire.until_there(queue, 0, consumers=1)
        await works(bus, queue, b"last")
    assert caplog.text.count("the broker is back, after ") == 5


async def test_a_consumer_in_a_black_hole_notices_by_the_heartbeat(
    wire: Wire, prefix: str, proxy: TcpProxy, proxied_url: str, make_bus: MakeBus
) -> None:
    """Nothing is published, so nothing else could tell."""
    queue = await wire.queue(f"{prefix}.work")
    async with working(make_bus(proxied_url, heartbeat_s=1), queue).running() as bus:
        proxy.blackhole()
        await until(lambda: not bus.ready, STUCK_S)
        proxy.resume()
        await until_session(bus, 2, STUCK_S)
        await works(bus, queue, b"after")


class OneSided(TcpProxy):
    """``deafen`` lets nothing through on the first connection it took: on that of a bus that consumes."""

    def __init__(self, target_host: str, target_port: int) -> None:
        super().__init__(target_host, target_port)
        self._first = asyncio.Event()
        self._first.set()

    def deafen(self) -> None:
        self._first.clear()

    async def _serve(self, client: socket.socket) -> None:
        _FIRST.set(self.accepted == 1)
        await super()._serve(client)

    async def _pump(self, source: socket.socket, sink: socket.socket, direction: Direction) -> None:
        loop = asyncio.get_running_loop()
        while data := await loop.sock_recv(source, 65536):
            if _FIRST.get():
                await self._first.wait()
            await loop.sock_sendall(sink, data)
            self.forwarded[direction] += len(data)


_FIRST: Final = ContextVar("first", default=False)


async def test_a_consuming_connection_that_alone_goes_silent_is_noticed(
    wire: Wire, prefix: str, broker_url: str, make_bus: MakeBus
) -> None:
    """Publishing goes on, so only asking tells; the heartbeats alone would take half a minute."""
    queue = await wire.queue(f"{prefix}.work")
    url = URL(broker_url)
    async with OneSided(url.host or "", url.port or 5672) as proxy:
        through = str(url.with_port(proxy.url_port))
        async with working(make_bus(through, heartbeat_s=4, call_timeout_s=1), queue).running() as bus:
            await works(bus, queue, b"before")
            proxy.deafen()
            async with asyncio.timeout(11):
                await until(lambda: bus.sessions == 2 and bus.ready)
            await works(bus, queue, b"after")


async def test_a_mailbox_that_the_broker_still_holds_locks_nobody_out(
    wire: Wire, proxy: TcpProxy, proxied_url: str, broker_url: str, make_bus: MakeBus
) -> None:
    """After a network cut the broker believes in the old connection when the new one comes."""
    bus = make_bus(proxied_url, broker_url, call_timeout_s=0.3, connect_timeout_s=0.3)
    bus.subscribe_mailbox("instance")
    async with bus.running():
        first = bus.mailbox
        proxy.blackhole()
        assert await bus.publish(to(first, b"")) == [Sent.UNCERTAIN]
        await until_session(bus, 2)
        await wire.publish(bus.mailbox, b"here")
        assert bodies(await arrivals(bus, "instance", 1)) == [b"here"]
        assert first != bus.mailbox
        with pytest.raises(ChannelLockedResource):
            await wire.channel.queue_declare(first, passive=True)


async def test_a_session_that_ended_leaves_nothing_behind(
    wire: Wire,
    prefix: str,
    proxy: TcpProxy,
    proxied_url: str,
    make_bus: MakeBus,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Sixty sessions later there are as many connections, channels and consumers as after twenty, and as much memory."""
    caplog.set_level(
        logging.CRITICAL, "aiormq"
    )  # as the program has it: a kept log record keeps what it tells of
    queue = await wire.queue(f"{prefix}.work")
    bus = working(make_bus(proxied_url), queue)
    bus.subscribe_mailbox("instance")
    held: list[Counter[str]] = []
    resident: list[int] = []
    async with bus.running():
        for number in range(1, 61):
            await works(bus, queue, b"%d" % number)
            await proxy.cut()
            await until_session(bus, number + 1)
            if number in (20, 60):
                held.append(living())
                resident.append(resident_kb())
    assert held[0] == held[1]
    assert held[1]["Session"] <= 2
    assert resident[1] - resident[0] < 4096


def living() -> Counter[str]:
    """What there is of each thing that a session is made of."""
    gc.collect()
    kinds = (Session, Consumer, Taken, Publisher, aiormq.Connection, aiormq.Channel)
    return Counter(type(one).__name__ for one in gc.get_objects() if isinstance(one, kinds))


def resident_kb() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() // 1024


# ---- Beginning


async def test_a_wrong_password_is_told_at_once(broker_url: str, make_bus: MakeBus) -> None:
    wrong = str(URL(broker_url).with_user("guest").with_password("s3cret"))
    with pytest.raises(WrongCredentials) as caught:
        async with make_bus(wrong).running():
            pass
    assert "refuses user 'guest'" in str(caught.value)
    assert "s3cret" not in str(caught.value)


async def test_a_virtual_host_that_is_not_there_is_told_at_once(broker_url: str, make_bus: MakeBus) -> None:
    with pytest.raises(WrongCredentials, match="refuses virtual host 'nowhere': there is none"):
        async with make_bus(str(URL(broker_url).with_path("/nowhere"))).running():
            pass


async def test_an_absent_broker_is_waited_for(
    wire: Wire,
    prefix: str,
    proxy: TcpProxy,
    proxied_url: str,
    make_bus: MakeBus,
    caplog: pytest.LogCaptureFixture,
) -> None:
    queue = await wire.queue(f"{prefix}.work")
    bus = working(make_bus(proxied_url), queue)

    async def run() -> None:
        async with bus.running():
            await works(bus, queue, b"at last")

    proxy.refuse()
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
        group.create_task(run())
        await until(lambda: "attempt 4, trying again" in caplog.text)
        assert not bus.ready
        proxy.accept()
    assert f"no broker at 127.0.0.1:{proxy.url_port}" in caplog.text
    assert "attempt 2" in caplog.text
    assert "attempt 3" not in caplog.text


async def test_who_waits_for_an_absent_broker_can_be_ended(closed_port: int, make_bus: MakeBus) -> None:
    bus = make_bus(f"amqp://127.0.0.1:{closed_port}/")

    async def run() -> None:
        async with bus.running():
            raise AssertionError("there is no broker")

    running = asyncio.ensure_future(run())  # noqa: TID251 - cancelled below
    done, _ = await asyncio.wait([running], timeout=0.2)
    assert not done
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_visitor_does_not_wait(closed_port: int, make_bus: MakeBus) -> None:
    with pytest.raises(BrokerUnavailable, match=f"no broker at 127.0.0.1:{closed_port}"):
        async with make_bus(f"amqp://127.0.0.1:{closed_port}/", waits=False).running():
            pass


async def test_somebody_else_at_the_port_is_no_broker(make_bus: MakeBus) -> None:
    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(BrokerUnavailable, match=f"no broker at 127.0.0.1:{port}"):
            async with make_bus(f"amqp://127.0.0.1:{port}/", waits=False).running():
                pass


async def test_silence_at_the_port_is_given_up_in_time(silent_port: int, make_bus: MakeBus) -> None:
    bus = make_bus(f"amqp://127.0.0.1:{silent_port}/", waits=False, connect_timeout_s=0.3)
    async with asyncio.timeout(3):
        with pytest.raises(BrokerUnavailable, match=r"does not answer within 0\.3 s"):
            async with bus.running():
                pass


@pytest.mark.parametrize("kind", ["closed", "silent"])
async def test_the_second_host_is_used_when_the_first_is_dead(
    wire: Wire,
    prefix: str,
    broker_url: str,
    closed_port: int,
    silent_port: int,
    make_bus: MakeBus,
    kind: str,
) -> None:
    queue = await wire.queue(f"{prefix}.work")
    first = f"amqp://127.0.0.1:{closed_port if kind == 'closed' else silent_port}/"
    bus = working(make_bus(first, broker_url, waits=False, connect_timeout_s=0.5), queue)
    async with bus.running():
        await works(bus, queue, b"by the second")


async def test_the_connections_are_closed_however_the_block_ends(
    wire: Wire, prefix: str, proxy: TcpProxy, proxied_url: str, make_bus: MakeBus
) -> None:
    """And its error comes out as it is."""
    queue = await wire.queue(f"{prefix}.work")
    async with working(make_bus(proxied_url), queue).running():
        pass
    assert proxy.accepted == 2
    bus = working(make_bus(proxied_url), queue)

    async def fails() -> None:
        async with bus.running():
            await works(bus, queue, b"")
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await fails()
    async with asyncio.timeout(LIMIT_S):
        await proxy.until(lambda proxy: proxy.open == 0)


# ---- A broker that comes and goes, on a node of its own


@pytest.mark.system
async def test_a_memory_alarm_holds_publishers_up_and_loses_nothing(
    node: Node, prefix: str, make_bus: MakeBus
) -> None:
    """All else goes on meanwhile, on another connection. No session ends, and nothing doubles."""
    names = Names(prefix)
    queue = f"{prefix}.work"
    bus = working(make_bus(node.url, wanted=durable(queue), call_timeout_s=0.5), queue)
    async with bus.running():
        await works(bus, queue, b"before")
        assert await bus.publish(to(queue, *[b"%d" % n for n in range(20)])) == [Sent.CONFIRMED] * 20
        async with asyncio.TaskGroup() as group:
            with node.memory_alarm():
                first = group.create_task(bus.publish(to(queue, b"into the alarm")))
                for _ in range(2):
                    await bus.ack(await arrivals(bus, "work", 10))
                second = group.create_task(bus.publish(to(queue, b"held up")))
                done, _ = await asyncio.wait({first, second}, timeout=1.5)
                assert not done
                await bus.declare_queue(names.lane("c"))
                assert await bus.depth(names.lane("c")) == (0, 0)
                assert bus.ready
        assert (first.result(), second.result()) == ([Sent.CONFIRMED], [Sent.CONFIRMED])
        assert sorted(bodies(await arrivals(bus, "work", 2))) == [b"held up", b"into the alarm"]
        assert bus.sessions == 1
        await works(bus, queue, b"after")


@pytest.mark.system
async def test_twenty_of_twenty_times_it_consumes_again(node: Node, prefix: str, make_bus: MakeBus) -> None:
    queue = f"{prefix}.work"
    async with working(make_bus(node.url, wanted=durable(queue)), queue).running() as bus:
        for number in range(1, 21):
            await asyncio.to_thread(node.close_connections)
            await until_session(bus, number + 1)
            await works(bus, queue, b"%d" % number)


@pytest.mark.system
@pytest.mark.parametrize("way", ["stop", "kill"])
async def test_a_broker_that_was_started_again_is_found_with_what_it_held(
    node: Node, prefix: str, make_bus: MakeBus, way: str
) -> None:
    queue = f"{prefix}.work"
    bus = working(make_bus(node.url, wanted=durable(queue)), queue)
    async with bus.running():
        await works(bus, queue, b"before")
        await bus.want("work", wanted=False)
        assert await bus.publish(to(queue, *[b"%d" % n for n in range(50)])) == [Sent.CONFIRMED] * 50
        await asyncio.to_thread(getattr(node, way))
        await until(lambda: not bus.ready)
        assert await bus.publish(to(queue, b"not sent")) == [Sent.REFUSED]
        assert await bus.get(queue, 1) == ([], 0)
        with pytest.raises(BrokerUnavailable):
            await bus.depth(queue)
        await bus.want("work", wanted=True)
        await asyncio.to_thread(node.start)
        await until_session(bus, 2)
        found: list[bytes] = []
        while len(found) < 50:
            batch = await arrivals(bus, "work", 1)
            found += bodies(batch)
            await bus.ack(batch)
        assert found == [b"%d" % n for n in range(50)]
