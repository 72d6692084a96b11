"""A small HTTP server of the tests' own, that can be as bad as a test wants it to be."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from reach_worker.clock import SystemClock


@dataclass(frozen=True, slots=True)
class Request:
    """What came. Header names in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return orjson.loads(self.body)


NONE: Final[Mapping[str, str]] = {}
Answer = Callable[[Request, asyncio.StreamWriter], Coroutine[Any, Any, None]]


@dataclass(slots=True)
class Web:
    """Answers each request as ``answer`` does. ``gone`` counts connections that the other side has left."""

    answer: Answer
    requests: list[Request] = field(default_factory=list)
    port: int = 0
    connections: int = 0
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.connections += 1
        try:
            while not writer.is_closing() and (request := await read_request(reader)) is not None:
                self.requests.append(request)
                await self._answer(request, reader, writer)
        finally:
            self.gone.set()
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _answer(
        self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Answer one request, or stop when the other side has left."""
        async with asyncio.TaskGroup() as group:
            answering = group.create_task(self._write(request, writer))
            leaving = group.create_task(_left(reader))
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
            answering.cancel()
            leaving.cancel()

    async def _write(self, request: Request, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            await self.answer(request, writer)


async def _left(reader: asyncio.StreamReader) -> None:
    with suppress(OSError):
        await reader.read(1)


async def read_request(reader: asyncio.StreamReader) -> Request | None:
    """The next request of a connection, ``None`` at its end."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except (asyncio.IncompleteReadError, OSError):
        return None
    first, *lines = head.strip().split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Request(method, target, headers, await reader.readexactly(int(headers.get("content-length", "0"))))


@asynccontextmanager
async def web(answer: Answer) -> AsyncIterator[Web]:
    """A server on a free port of loopback."""
    site = Web(answer)
    async with asyncio.TaskGroup() as group:
        served: set[asyncio.Task[None]] = set()

        def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            served.add(group.create_task(site.serve(reader, writer)))

        server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=2**22)
        site.port = server.sockets[0].getsockname()[1]
        try:
            yield site
        finally:
            server.close()
            for one in served:
                one.cancel()


def reply(
    body: Any = None, status: int = 200, *, raw: bytes | None = None, headers: Mapping[str, str] = NONE
) -> Answer:
    """An answer that is always the same: JSON, or the raw bytes."""

    async def answer(_: Request, writer: asyncio.StreamWriter) -> None:
        data = orjson.dumps(body) if raw is None else raw
        given = {"content-length": str(len(data)), "content-type": "application/json"}
        given |= headers
        await send_head(writer, status, given)
        writer.write(data)
        await writer.drain()

    return answer


async def send_head(writer: asyncio.StreamWriter, status: int, headers: Mapping[str, str]) -> None:
    """The beginning of an answer."""
    lines = [f"HTTP/1.1 {status} Whatever", *(f"{name}: {value}" for name, value in headers.items())]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    await writer.drain()


async def send_chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    """One chunk of an answer whose transfer-encoding is chunked; an empty one ends it."""
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))
    await writer.drain()


async def a_moment(seconds: float = 0.01) -> None:
    """Let so much time pass: a server is slow."""
    await SystemClock().sleep(seconds)
