"""The client: calls, streams, and tasks that are fetched later."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

from reach_worker import wiring
from reach_worker.calling.closing import Closing
from reach_worker.calling.environment import environment
from reach_worker.calling.line import Line
from reach_worker.calling.mailroom import Mailroom
from reach_worker.calling.mapping import Payloads, mapped
from reach_worker.calling.order import Options, Order, Wish, order_from
from reach_worker.calling.streaming import stream
from reach_worker.calling.trace import trace_headers
from reach_worker.calling.waiting import call, cancel, fetch, find
from reach_worker.client import Client
from reach_worker.core.lookup import Found
from reach_worker.core.stream_reading import Event
from reach_worker.core.task_errors import CallTimeout, result_of
from reach_worker.errors import BadInput, OurBug
from reach_worker.settings import Settings, load_settings

if TYPE_CHECKING:
    from reach_worker.calling.plain import PlainClient

TIMEOUT_S: Final = 60.0
CANCEL_S: Final = 5.0
"""How long a router's word on a cancel is waited for."""


class Usual(Enum):
    """What stands for a time-out that was not given."""

    TIMEOUT = "the client's own"


@dataclass(frozen=True, slots=True)
class Cancellation:
    """What became of the wish to cancel a task; true if a router has taken that on.

    ``state``: where it was found (``waiting``, ``running``, ``under_way``), how it had ended, ``forbidden`` where it is
    somebody else's. ``unknown``: no router knows it; if one answered, it is cancelled should it turn up in a minute.
    """

    cancelled: bool
    state: str

    def __bool__(self) -> bool:
        return self.cancelled


class ReachClient:
    """Calls agents. To be entered with ``async with``; any number of tasks of one event loop may use it at once.

    ``url``: the broker, one address or several hosts. What is not given here comes from the ``REACH_*`` variables, as
    in ``reach``. ``timeout``: seconds that calls wait unless they say otherwise, ``None``: for ever.

    While the connection is lost calls wait, and go on when it is back. Entering raises ``BrokerUnavailable`` or
    ``WrongCredentials`` where there is none at the start.
    """

    def __init__(
        self,
        url: str | Sequence[str] | None = None,
        *,
        prefix: str | None = None,
        timeout: float | None = TIMEOUT_S,
        settings: Settings | None = None,
    ) -> None:
        self.timeout = timeout
        self._settings = settings or load_settings(None, environment(url, prefix))
        self._open = AsyncExitStack()
        self._line: Line | None = None

    @staticmethod
    def sync(
        url: str | Sequence[str] | None = None,
        *,
        prefix: str | None = None,
        timeout: float | None = TIMEOUT_S,
    ) -> "PlainClient":
        """The same for programs without an event loop, and for notebooks: see :class:`PlainClient`."""
        from reach_worker.calling.plain import PlainClient  # noqa: PLC0415 - it is made of this module

        return PlainClient(ReachClient(url, prefix=prefix, timeout=timeout))

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as opening:
            client = await opening.enter_async_context(wiring.client(self._settings))
            self._line = await opening.enter_async_context(line_of(client))
            self._open = opening.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Not handing the error on: the task groups would wrap it, and it is none of theirs.
        await self._open.aclose()

    async def call(
        self,
        capability: str | None,
        payload: Mapping[str, Any],
        *,
        timeout: float | Usual | None = Usual.TIMEOUT,
        cancel_on_timeout: bool = True,
        **options: Unpack[Options],
    ) -> Any:
        """What an agent makes of the payload: the result, plain JSON.

        After ``timeout`` seconds the task is worthless (that is its deadline, unless ``deadline`` says otherwise) and
        cancelled, unless ``cancel_on_timeout`` is false. Raises :class:`BadInput` before anything is sent, else a
        :class:`TaskError`: ``DeadLettered``, ``Unmatched``, ``TaskCancelled``, ``CallTimeout``, ``ConnectionLost``.
        """
        seconds = self._seconds(timeout)
        waits = seconds if cancel_on_timeout else None
        order = self._order(Wish(capability, payload, options, waits))
        return await call(self._there, order, seconds, cancel_on_timeout=cancel_on_timeout)

    async def submit(
        self, capability: str | None, payload: Mapping[str, Any], **options: Unpack[Options]
    ) -> "Handle":
        """Publish a task, confirmed by the broker, and do not wait for its end.

        Raises :class:`CallTimeout` if the broker does not take it within the client's time-out.
        """
        order = self._order(Wish(capability, payload, options))
        limit = asyncio.timeout(self.timeout)
        try:
            async with limit:
                await self._there.send(order)
        except TimeoutError:
            if not limit.expired():
                raise
            why = f"the broker did not confirm it within {self.timeout or 0:g} s; it may have it all the same"
            raise CallTimeout(order.task_id, order.flow_id, why=why) from None
        return Handle(order.task_id, order.flow_id, self)

    async def fetch(self, task_id: str, timeout: float | Usual | None = Usual.TIMEOUT) -> Any:
        """The result of a task that was published by anybody under our user, or by nobody in particular.

        The routers are asked, with growing pauses, until it is over or the time is; 0 seconds: once. Raises as
        :meth:`call` does, and ``UnknownTask``.
        """
        return result_of(await self.answer(task_id, timeout), task_id)

    async def answer(self, task_id: str, timeout: float | Usual | None = Usual.TIMEOUT) -> Mapping[str, Any]:
        """As :meth:`fetch`, but all of the answer, whatever the end was; see the README for its fields."""
        return await fetch(self._there, task_id, self._seconds(timeout))

    async def find(self, task_id: str, within: float = 1.0) -> Found | None:
        """Where a task is now; ``None`` if no router answers within so many seconds."""
        return await find(self._there, task_id, within)

    def stream(
        self,
        capability: str | None,
        payload: Mapping[str, Any],
        *,
        timeout: float | Usual | None = Usual.TIMEOUT,
        **options: Unpack[Options],
    ) -> Closing[Event]:
        """What an agent says while it works, as events, and at the end a :class:`Result`. Raises as :meth:`call` does.

        Stopping early cancels the task; put ``async with`` around the loop where that shall be at once.
        """
        seconds = self._seconds(timeout)
        order = self._order(Wish(capability, payload, options, seconds, stream=True))
        return Closing(stream(self._there, order, seconds))

    def map(
        self,
        capability: str | None,
        payloads: Payloads,
        *,
        concurrency: int = 20,
        return_exceptions: bool = False,
        timeout: float | Usual | None = Usual.TIMEOUT,
        **options: Unpack[Options],
    ) -> Closing[Any]:
        """:meth:`call` for each payload, ``concurrency`` at once; the results in their order.

        The input, plain or async, is taken no faster than it is worked off. The first error is raised in its place and
        the rest is cancelled; with ``return_exceptions`` errors stand among the results.
        """
        if "task_id" in options:
            raise BadInput("every payload makes a task of its own: one task_id cannot stand for all of them")

        async def call_one(payload: Mapping[str, Any]) -> Any:
            return await self.call(capability, payload, timeout=timeout, **options)

        there = self._there
        return Closing(mapped(there, call_one, payloads, concurrency, return_exceptions=return_exceptions))

    async def cancel(self, task_id: str, timeout: float = CANCEL_S) -> Cancellation:
        """Cancel a task of ours, or of nobody in particular; true if a router has taken that on."""
        said = await cancel(self._there, task_id, timeout)
        if said is None:
            return Cancellation(cancelled=False, state="unknown")
        return Cancellation(said.cancelled, said.state)

    @property
    def _there(self) -> Line:
        if self._line is None:
            raise OurBug("a ReachClient is used within `async with`")
        return self._line

    def _seconds(self, timeout: float | Usual | None) -> float | None:
        return self.timeout if isinstance(timeout, Usual) else timeout

    def _order(self, wish: Wish) -> Order:
        client = self._there.client
        return order_from(wish, client, trace_headers(wish.options.get("traceparent"), client.clock))


@dataclass(frozen=True, slots=True)
class Handle:
    """A task that was published. Its id is all that another process needs to fetch it."""

    task_id: str
    flow_id: str
    _client: ReachClient = field(repr=False)

    async def result(self, timeout: float | Usual | None = Usual.TIMEOUT) -> Any:
        """As :meth:`ReachClient.fetch`."""
        return await self._client.fetch(self.task_id, timeout)

    async def cancel(self) -> Cancellation:
        """As :meth:`ReachClient.cancel`."""
        return await self._client.cancel(self.task_id)


@asynccontextmanager
async def line_of(client: Client) -> AsyncGenerator[Line, None]:
    """A line over a client's bus, for as long as the block lasts."""
    room = Mailroom(client.bus, client.clock)
    async with asyncio.TaskGroup() as group:
        group.create_task(room.run(), name="answers")
        line = Line(client, room, group)
        try:
            yield line
        finally:
            await line.close()
