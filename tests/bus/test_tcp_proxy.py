import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress

import pytest

from reach_worker.testing.tcp_proxy import Direction, TcpProxy

LIMIT_S = 10.0


class Echo:
    """A server that sends back what it gets."""

    def __init__(self) -> None:
        self.port = 0
        self.connections = self.ended = self.resets = 0
        self.received = bytearray()
        self.changed = asyncio.Condition()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._note(connections=1)
        with suppress(ConnectionError):
            try:
                while data := await reader.read(65536):
                    await self._note(data)
                    writer.write(data)
                    await writer.drain()
            except ConnectionResetError:
                await self._note(resets=1)
            writer.close()
            await writer.wait_closed()
        await self._note(ended=1)

    async def _note(
        self, data: bytes = b"", *, connections: int = 0, resets: int = 0, ended: int = 0
    ) -> None:
        async with self.changed:
            self.received += data
            self.connections += connections
            self.resets += resets
            self.ended += ended
            self.changed.notify_all()

    async def until(self, condition: Callable[["Echo"], bool]) -> None:
        async with asyncio.timeout(LIMIT_S), self.changed:
            await self.changed.wait_for(lambda: condition(self))


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def receive(self, count: int) -> bytes:
        async with asyncio.timeout(LIMIT_S):
            return await self.reader.readexactly(count)

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()


Dial = Callable[[int], Awaitable[Client]]


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    echo = Echo()
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    echo.port = server.sockets[0].getsockname()[1]
    async with server:
        yield echo
        await echo.until(lambda echo: echo.ended == echo.connections)


@pytest.fixture
async def proxy(echo: Echo) -> AsyncIterator[TcpProxy]:
    async with TcpProxy("127.0.0.1", echo.port) as proxy:
        yield proxy


@pytest.fixture
async def dial(proxy: TcpProxy) -> AsyncIterator[Dial]:  # noqa: ARG001 - clients close before the proxy does
    async with AsyncExitStack() as stack:

        async def dial(port: int) -> Client:
            client = Client(*await asyncio.open_connection("127.0.0.1", port))
            stack.push_async_callback(client.close)
            return client

        yield dial


async def test_it_forwards_both_ways_and_counts(proxy: TcpProxy, dial: Dial) -> None:
    clients = [await dial(proxy.url_port), await dial(proxy.url_port)]
    for client in clients:
        await client.send(b"hello")
        assert await client.receive(5) == b"hello"
    assert (proxy.accepted, proxy.open) == (2, 2)
    assert proxy.forwarded == {Direction.TO_TARGET: 10, Direction.TO_CLIENT: 10}
    clients[0].writer.close()
    await proxy.until(lambda proxy: proxy.open == 1)
    assert proxy.accepted == 2


async def test_an_orderly_end_loses_nothing_of_what_is_on_its_way(proxy: TcpProxy) -> None:
    loop = asyncio.get_running_loop()
    data = bytes(range(256)) * 4000
    with socket.socket() as client:  # reads nothing before it is told to, unlike a stream
        client.setblocking(False)
        await loop.sock_connect(client, ("127.0.0.1", proxy.url_port))
        await loop.sock_sendall(client, data)
        client.shutdown(socket.SHUT_WR)
        await proxy.until(lambda proxy: proxy.open == 0)
        received = b""
        while more := await loop.sock_recv(client, 65536):
            received += more
    assert received == data


async def test_cut_resets_both_sides_and_takes_new_ones(proxy: TcpProxy, echo: Echo, dial: Dial) -> None:
    client = await dial(proxy.url_port)
    await client.send(b"a")
    await client.receive(1)
    await proxy.cut()
    assert proxy.open == 0
    with pytest.raises(ConnectionResetError):
        await client.receive(1)
    await echo.until(lambda echo: echo.resets == 1)
    client = await dial(proxy.url_port)
    await client.send(b"b")
    assert await client.receive(1) == b"b"
    assert proxy.accepted == 2


async def time_passes(echo: Echo, dial: Dial) -> None:
    """Long enough for bytes to cross a proxy that lets them: others go to and fro on their own connection."""
    direct = await dial(echo.port)
    for _ in range(20):
        await direct.send(b".")
        await direct.receive(1)
    await direct.close()
    del echo.received[-20:]


async def test_stall_holds_both_ways(proxy: TcpProxy, echo: Echo, dial: Dial) -> None:
    client = await dial(proxy.url_port)
    await client.send(b"a")
    await client.receive(1)
    proxy.stall()
    await client.send(b"b")
    late = await dial(proxy.url_port)
    await late.send(b"c")
    await proxy.until(lambda proxy: proxy.open == 2)
    await time_passes(echo, dial)
    assert bytes(echo.received) == b"a"
    proxy.resume()
    assert await client.receive(1) == b"b"
    assert await late.receive(1) == b"c"


async def test_stall_can_hold_one_way_only(proxy: TcpProxy, echo: Echo, dial: Dial) -> None:
    proxy.stall(Direction.TO_CLIENT)
    client = await dial(proxy.url_port)
    await client.send(b"a")
    await echo.until(lambda echo: bytes(echo.received) == b"a")
    await time_passes(echo, dial)
    assert proxy.forwarded == {Direction.TO_TARGET: 1, Direction.TO_CLIENT: 0}
    proxy.resume()
    assert await client.receive(1) == b"a"


async def test_stalled_connections_can_be_cut(proxy: TcpProxy, dial: Dial) -> None:
    proxy.stall()
    client = await dial(proxy.url_port)
    await client.send(b"a")
    await proxy.until(lambda proxy: proxy.open == 1)
    await proxy.cut()
    with pytest.raises(ConnectionResetError):
        await client.receive(1)


async def test_a_black_hole_takes_all_and_tells_the_target_nothing(
    proxy: TcpProxy, echo: Echo, dial: Dial
) -> None:
    before = await dial(proxy.url_port)
    await before.send(b"a")
    await before.receive(1)
    proxy.blackhole()
    after = await dial(proxy.url_port)
    await before.send(b"b")
    await after.send(b"c")
    await proxy.until(lambda proxy: proxy.open == 2)
    await time_passes(echo, dial)
    assert (echo.connections, bytes(echo.received)) == (2, b"a")  # before, and that of time_passes
    proxy.resume()
    assert await before.receive(1) == b"b"
    assert await after.receive(1) == b"c"


async def test_refuse_keeps_open_connections_and_accept_takes_the_same_port(
    proxy: TcpProxy, dial: Dial
) -> None:
    client = await dial(proxy.url_port)
    await client.send(b"a")
    await client.receive(1)
    port = proxy.url_port
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        await dial(proxy.url_port)
    await client.send(b"b")
    assert await client.receive(1) == b"b"
    proxy.accept()
    assert proxy.url_port == port
    again = await dial(proxy.url_port)
    await again.send(b"c")
    assert await again.receive(1) == b"c"


async def test_a_target_that_is_not_there_resets_the_client(proxy: TcpProxy, dial: Dial) -> None:
    async with TcpProxy("127.0.0.1", proxy.url_port) as outer:
        proxy.refuse()
        client = await dial(outer.url_port)
        with pytest.raises(ConnectionResetError):
            await client.receive(1)
        await outer.until(lambda outer: (outer.accepted, outer.open) == (1, 0))
