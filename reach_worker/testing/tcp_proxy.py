"""A TCP proxy that fails on demand, to put between a client and its broker.

::

    async with TcpProxy("127.0.0.1", 5672) as proxy:
        client = await connect(port=proxy.url_port)
        proxy.stall()      # nothing is forwarded, the sockets stay open
        proxy.resume()     # what was held up arrives
        await proxy.cut()  # every connection is reset; new ones are welcome

Whatever is sent arrives, late perhaps, unless a connection is cut.
"""

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from types import TracebackType
from typing import Final, Self

_HOST: Final = "127.0.0.1"
_CHUNK: Final = 65536
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
_ORDERLY_CLOSE: Final = struct.pack("ii", 0, 0)


class Direction(Enum):
    """Which way bytes go."""

    TO_CLIENT = "to client"
    TO_TARGET = "to target"


class TcpProxy:
    """Listens on loopback, on a free port that it keeps (``url_port``), and forwards to the target.

    ``accepted`` counts the connections taken so far, ``forwarded`` the bytes handed on in each direction.
    """

    def __init__(self, target_host: str, target_port: int) -> None:
        self.target: Final = (target_host, target_port)
        self.url_port = 0
        self.accepted = 0
        self.forwarded = dict.fromkeys(Direction, 0)
        self._flowing = {direction: asyncio.Event() for direction in Direction}
        self._dialling = asyncio.Event()
        self._changed = asyncio.Event()
        self._tasks = asyncio.TaskGroup()
        self._links: set[asyncio.Task[None]] = set()
        self._listener: socket.socket | None = None
        self.resume()

    @property
    def open(self) -> int:
        """Connections there are now."""
        return len(self._links)

    async def until(self, condition: Callable[[Self], bool]) -> None:
        """Wait until the counts are so that the condition holds. The caller sets the time limit."""
        while not condition(self):
            await self._changed.wait()

    def stall(self, *directions: Direction) -> None:
        """Stop forwarding, both ways unless told which. Who connects is connected, and hears nothing."""
        for direction in directions or Direction:
            self._flowing[direction].clear()

    def resume(self) -> None:
        """End ``stall`` and ``blackhole``: what was held up goes on."""
        self._dialling.set()
        for flowing in self._flowing.values():
            flowing.set()

    def blackhole(self) -> None:
        """Forward nothing; take those who come now, and do not even connect to the target for them."""
        self._dialling.clear()
        self.stall()

    async def cut(self) -> None:
        """Reset all connections, on both sides, and wait until they are gone. New ones are taken."""
        links = tuple(self._links)
        for link in links:
            link.cancel()
        await asyncio.gather(*links, return_exceptions=True)

    def refuse(self) -> None:
        """Stop listening: the kernel refuses who comes now. Open connections stay."""
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    def accept(self) -> None:
        """Listen again, on the same port."""
        if self._listener is None:
            self._listener = socket.create_server((_HOST, self.url_port), backlog=128)
            self._listener.setblocking(False)  # noqa: FBT003 - the library's signature
            self.url_port = self._listener.getsockname()[1]
            asyncio.get_running_loop().add_reader(self._listener, self._take, self._listener)

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self.accept()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.refuse()
        await self.cut()
        await self._tasks.__aexit__(kind, error, trace)

    def _take(self, listener: socket.socket) -> None:
        try:
            client, _ = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):  # gone again before we came to it
            return
        link = self._tasks.create_task(self._serve(client))
        self._links.add(link)
        link.add_done_callback(self._forget)
        self.accepted += 1
        self._tell()

    def _forget(self, link: asyncio.Task[None]) -> None:
        self._links.discard(link)
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _serve(self, client: socket.socket) -> None:
        """One connection. If both sides end it in order, so do we; in any other case both see a reset."""
        with client, socket.socket() as target:
            for side in (client, target):
                side.setblocking(False)  # noqa: FBT003 - the library's signature
                side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            try:
                await self._dialling.wait()
                await asyncio.get_running_loop().sock_connect(target, self.target)
                async with asyncio.TaskGroup() as both_ways:
                    both_ways.create_task(self._pump(client, target, Direction.TO_TARGET))
                    both_ways.create_task(self._pump(target, client, Direction.TO_CLIENT))
            except* OSError:
                pass
            else:
                for side in (client, target):
                    side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ORDERLY_CLOSE)

    async def _pump(self, source: socket.socket, sink: socket.socket, direction: Direction) -> None:
        loop = asyncio.get_running_loop()
        flowing = self._flowing[direction]
        data = b"-"
        while data:
            await flowing.wait()
            data = await loop.sock_recv(source, _CHUNK)
            await flowing.wait()
            await loop.sock_sendall(sink, data)
            self.forwarded[direction] += len(data)
            self._tell()
        sink.shutdown(socket.SHUT_WR)


@contextmanager
def proxy_beside(host: str, port: int) -> Iterator[tuple[TcpProxy, Callable[[Callable[[], None]], None]]]:
    """A proxy in a thread of its own, for a test that has no event loop, and how to have it do something."""
    loop = asyncio.new_event_loop()
    proxy = TcpProxy(host, port)
    thread = threading.Thread(target=loop.run_forever, name="proxy")
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(proxy.__aenter__(), loop).result()
        try:
            yield proxy, lambda action: _there(loop, action)
        finally:
            asyncio.run_coroutine_threadsafe(proxy.__aexit__(None, None, None), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def _there(loop: asyncio.AbstractEventLoop, action: Callable[[], None]) -> None:
    async def act() -> None:
        action()

    asyncio.run_coroutine_threadsafe(act(), loop).result()
