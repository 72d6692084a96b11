"""The client for programs that have no event loop, or one that is busy: scripts and notebooks.

It runs in a thread of its own, with its own event loop. Every method may be called from any thread but that one.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from types import TracebackType
from typing import Any, Final, Self, TypeVar, Unpack

from reach_worker.calling.client import CANCEL_S, Cancellation, ReachClient, Usual
from reach_worker.calling.closing import Closing
from reach_worker.calling.order import Options
from reach_worker.core.lookup import Found
from reach_worker.core.stream_reading import Event
from reach_worker.core.task_errors import ConnectionLost
from reach_worker.errors import OurBug, ReachError

T = TypeVar("T")

GIVE_UP_S: Final = 3.0
"""After Ctrl-C: so long it is waited for that the task is cancelled."""


@dataclass(eq=False, slots=True)
class Doing:
    """Something that the thread does. ``over`` is set when it has really ended, cancelled or not."""

    future: Future[Any] = field(default_factory=Future)
    over: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True)
class PlainHandle:
    """As :class:`Handle`."""

    task_id: str
    flow_id: str
    _client: "PlainClient"

    def result(self, timeout: float | Usual | None = Usual.TIMEOUT) -> Any:
        """As :meth:`PlainClient.fetch`."""
        return self._client.fetch(self.task_id, timeout)

    def cancel(self) -> Cancellation:
        """As :meth:`PlainClient.cancel`."""
        return self._client.cancel(self.task_id)


class PlainClient:
    """As :class:`ReachClient`, without ``await``. To be used with ``with``, or :meth:`open` and :meth:`close`.

    Made by ``ReachClient.sync(url)``. Ctrl-C in the middle of a call cancels its task. Closing waits for the thread.
    """

    def __init__(self, reach: ReachClient) -> None:
        self._reach = reach
        self._ready: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._ended: Future[BaseException | None] = Future()
        self._thread = threading.Thread(target=self._live, name="reach client", daemon=True)

    # -- life

    def open(self) -> Self:
        """Connect. Raises as entering :class:`ReachClient` does."""
        self._thread.start()
        first: list[Future[Any]] = [self._ready, self._ended]
        wait(first, return_when=FIRST_COMPLETED)
        if not self._ready.done():
            self._raise_end()
        return self

    def close(self) -> None:
        """Disconnect, and wait until the thread has ended. What is still waited for raises ``ConnectionLost``."""
        if self._ready.done() and not self._ended.done():
            loop, stop = self._ready.result()
            loop.call_soon_threadsafe(stop.set)
        self._thread.join()
        self._raise_end()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- what it is for

    def call(
        self,
        capability: str | None,
        payload: Mapping[str, Any],
        *,
        timeout: float | Usual | None = Usual.TIMEOUT,
        cancel_on_timeout: bool = True,
        **options: Unpack[Options],
    ) -> Any:
        """As :meth:`ReachClient.call`."""
        return self._do(
            self._reach.call(
                capability, payload, timeout=timeout, cancel_on_timeout=cancel_on_timeout, **options
            )
        )

    def submit(
        self, capability: str | None, payload: Mapping[str, Any], **options: Unpack[Options]
    ) -> PlainHandle:
        """As :meth:`ReachClient.submit`."""
        handle = self._do(self._reach.submit(capability, payload, **options))
        return PlainHandle(handle.task_id, handle.flow_id, self)

    def fetch(self, task_id: str, timeout: float | Usual | None = Usual.TIMEOUT) -> Any:
        """As :meth:`ReachClient.fetch`."""
        return self._do(self._reach.fetch(task_id, timeout))

    def answer(self, task_id: str, timeout: float | Usual | None = Usual.TIMEOUT) -> Mapping[str, Any]:
        """As :meth:`ReachClient.answer`."""
        return self._do(self._reach.answer(task_id, timeout))

    def find(self, task_id: str, within: float = 1.0) -> Found | None:
        """As :meth:`ReachClient.find`."""
        return self._do(self._reach.find(task_id, within))

    def cancel(self, task_id: str, timeout: float = CANCEL_S) -> Cancellation:
        """As :meth:`ReachClient.cancel`."""
        return self._do(self._reach.cancel(task_id, timeout))

    def stream(
        self,
        capability: str | None,
        payload: Mapping[str, Any],
        *,
        timeout: float | Usual | None = Usual.TIMEOUT,
        **options: Unpack[Options],
    ) -> Iterator[Event]:
        """As :meth:`ReachClient.stream`. Leaving the loop early cancels the task."""
        events = self._reach.stream(capability, payload, timeout=timeout, **options)
        try:
            while (event := self._do(_next(events))) is not None:
                yield event
        finally:
            if not self._ended.done():
                with suppress(ConnectionLost):  # closed meanwhile, which ends it too
                    self._do(events.aclose())

    def map(
        self,
        capability: str | None,
        payloads: Iterable[Mapping[str, Any]],
        *,
        concurrency: int = 20,
        return_exceptions: bool = False,
        timeout: float | Usual | None = Usual.TIMEOUT,
        **options: Unpack[Options],
    ) -> Iterator[Any]:
        """As :meth:`ReachClient.map`. The input is taken in the caller's own thread."""
        source, doing = iter(payloads), deque[Doing]()
        try:
            while True:
                while len(doing) < concurrency and not (doing and doing[0].future.done()):
                    taken = list(islice(source, 1))
                    if not taken:
                        break
                    work = self._reach.call(capability, taken[0], timeout=timeout, **options)
                    doing.append(self._begin(work))
                if not doing:
                    return
                yield self._outcome(doing.popleft(), return_exceptions=return_exceptions)
        finally:
            for each in doing:
                each.future.cancel()
            for each in doing:
                each.over.wait(GIVE_UP_S)

    # -- inside

    def _live(self) -> None:
        """The thread."""
        self._ended.set_result(asyncio.run(self._kept_alive()))

    async def _kept_alive(self) -> BaseException | None:
        (outcome,) = await asyncio.gather(self._until_stopped(), return_exceptions=True)
        return outcome

    async def _until_stopped(self) -> None:
        stop = asyncio.Event()
        async with self._reach:
            self._ready.set_result((asyncio.get_running_loop(), stop))
            await stop.wait()

    def _raise_end(self) -> None:
        error = self._ended.result()
        if error is not None:
            raise error

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        doing = self._begin(work)
        result: T = self._outcome(doing)
        return result

    def _begin(self, work: Coroutine[Any, Any, Any]) -> Doing:
        if not self._ready.done() or self._ended.done():
            work.close()
            raise OurBug("a client is used after open() and before close()")
        if threading.current_thread() is self._thread:
            work.close()
            raise OurBug("the client's own thread cannot wait for itself")
        doing = Doing()
        doing.future = asyncio.run_coroutine_threadsafe(_noting(work, doing.over), self._ready.result()[0])
        return doing

    def _outcome(self, doing: Doing, *, return_exceptions: bool = False) -> Any:
        """Wait for it. Who is interrupted meanwhile (Ctrl-C) has it cancelled."""
        try:
            wait([doing.future, self._ended], return_when=FIRST_COMPLETED)
        finally:
            if not doing.future.done() and not self._ended.done():
                doing.future.cancel()
                doing.over.wait(GIVE_UP_S)
        if not doing.future.done() or doing.future.cancelled():
            raise ConnectionLost("", why="the client was closed")
        error = doing.future.exception()
        if error is None:
            return doing.future.result()
        if return_exceptions and isinstance(error, ReachError):
            return error
        raise error


async def _next(events: Closing[Event]) -> Event | None:
    """The next event, ``None`` after the last."""
    return await anext(aiter(events), None)


async def _noting(work: Coroutine[Any, Any, T], over: threading.Event) -> T:
    try:
        return await work
    finally:
        over.set()
