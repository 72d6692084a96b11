"""What a handler knows of the attempt it runs for."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from reach_worker.agent.calls import AttemptCalls, Made
from reach_worker.agent.cancel_signal import CancelSignal
from reach_worker.agent.spent import Spent
from reach_worker.agent.voice import Voice
from reach_worker.core.dispatch import Dispatch
from reach_worker.core.handed import Handed
from reach_worker.core.task import Task

LOG: Final = logging.getLogger("reach.agent")
"""What handlers write to."""
_MAKING: Final = threading.Lock()


class FlowLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger whose every line carries the flow and the task."""

    def process(
        self, msg: object, kwargs: MutableMapping[str, Any]
    ) -> tuple[object, MutableMapping[str, Any]]:
        """Prefix the message."""
        extra = self.extra or {}
        return f"[flow {extra['flow_id']} task {extra['task_id']}] {msg}", kwargs


@dataclass(slots=True)
class Context:
    """One attempt, as its handler sees it.

    ``cancelled`` is set when the attempt should stop (time is up, the caller cancelled it, the worker stops);
    a plain function that runs long looks at it now and then. ``attempt`` counts from 1; ``dispatch_id`` names this
    sending of the task, and is the same if the broker delivers it again. ``resources``: what the agent's lifespan gave.
    ``handed``: who handed the task on, why and with what context, if it was; ``chain``: who had it before, oldest first.
    ``attachments``: the caller's references to larger inputs.

    :meth:`stream` and :meth:`progress` are awaited in an async handler, and simply called in a plain one, where they
    return when the chunk is taken.
    """

    task_id: str
    flow_id: str
    attempt: int
    capability: str
    caller: str
    metadata: Mapping[str, str]
    session_id: str | None
    timeout_s: float
    log: FlowLogger
    dispatch_id: str = ""
    resources: Any = None
    spent: Spent = field(default_factory=Spent)
    handed: Handed | None = None
    chain: tuple[str, ...] = ()
    attachments: Sequence[Mapping[str, Any]] = ()
    _voice: Voice | None = None
    _calls: AttemptCalls | None = None
    _loop: asyncio.AbstractEventLoop | None = None
    _monotonic: Callable[[], float] = lambda: 0.0
    _ends_at: float = 0.0
    _signal: CancelSignal | None = None

    @property
    def cancelled(self) -> CancelSignal:
        """Set when the attempt should stop. Most handlers never look, so it is made when it is first looked at."""
        with _MAKING:  # a handler's thread may be the first to look, and the worker at the same moment
            if self._signal is None:
                self._signal = CancelSignal()
        return self._signal

    def seconds_left(self) -> float:
        """Seconds until this attempt's time is up; 0 if it is."""
        return max(0.0, self._ends_at - self._monotonic())

    async def wait_cancelled(self) -> None:
        """Wait until the attempt should stop, in an async handler. A plain one has ``cancelled.wait()``."""
        await self.cancelled.wait_async()

    def stream(self, chunk: Any) -> Awaitable[None]:
        """Send one chunk, any JSON value, to the caller if he asked for it; waits while too many are unsent.

        Raises :class:`StreamError` for a chunk that cannot be sent, :class:`Cancelled` after the attempt was cancelled.
        """
        return self._said(self._voice.stream(chunk)) if self._voice is not None else _NOTHING

    def progress(self, fraction: float | None, note: str = "") -> Awaitable[None]:
        """Tell the caller how far it is: a fraction from 0 to 1 if that is known, and some words. May be left out."""
        if self._voice is None:
            return _NOTHING
        return self._said(self._voice.progress(fraction, note, self._monotonic()))

    def call(self, capability: str, payload: Mapping[str, Any], *, timeout: float | None = None) -> Any:
        """Have another agent do something, and get its result; in an async handler this is awaited.

        It belongs to the same flow, lasts no longer than this attempt, and is cancelled with it. At most
        ``calls.max`` calls and ``calls.seconds`` in them; one that asks for the same as an earlier one gets its answer,
        see :attr:`calls`. Raises ``CallLimit``; ``DeadLettered``, ``Unmatched``, ``TaskCancelled`` or ``CallTimeout``
        where there is no result; ``Cancelled`` after the attempt was cancelled; ``ValueError`` for what is no payload.
        """
        if self._calls is None:
            raise RuntimeError("this context has no broker behind it: nobody can be called")
        return self._done(self._calls.call(capability, payload, timeout))

    @property
    def calls(self) -> tuple[Made, ...]:
        """The calls so far, those that repeated another one included."""
        return () if self._calls is None else tuple(self._calls.made)

    def charge(self, cost: float = 0.0, *, tokens_in: int = 0, tokens_out: int = 0) -> None:
        """Book what this attempt has cost, more each time. It is recorded however the attempt ends."""
        self.spent.add(cost, tokens_in, tokens_out)

    def cancel(self) -> None:
        """Tell the handler to stop (the worker does). What waits to be said is dropped."""
        self.cancelled.set()
        if self._voice is not None:
            self._voice.silence()
        if self._calls is not None:
            self._calls.end()

    def _said(self, saying: Coroutine[Any, Any, None]) -> Awaitable[None]:
        """As :meth:`_done`; what is done already can be awaited all the same."""
        return self._done(saying) or _NOTHING

    def _done(self, doing: Coroutine[Any, Any, Any]) -> Any:
        """From the handler's own loop it is awaited there; from its thread it is waited for here."""
        if self._loop is None or _running_loop() is self._loop:
            return doing
        return asyncio.run_coroutine_threadsafe(doing, self._loop).result()


class _Nothing:
    """What is left to await where all is done."""

    def __await__(self) -> Generator[Any, None, None]:
        """Nothing to wait for."""
        yield from ()


_NOTHING = _Nothing()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def context_of(
    dispatch: Dispatch,
    task: Task,
    monotonic: Callable[[], float],
    ends_at: float,
    voice: Voice,
    calls: AttemptCalls,
    resources: Any,
) -> Context:
    """The context of a dispatch that begins now, in the loop that runs now. ``ends_at``: monotonic seconds."""
    envelope = dispatch.envelope
    log = FlowLogger(LOG, {"flow_id": envelope.flow_id, "task_id": envelope.task_id})
    return Context(
        task_id=envelope.task_id,
        flow_id=envelope.flow_id,
        attempt=envelope.next_attempt,
        capability=envelope.capability,
        caller=envelope.caller,
        metadata=task.metadata,
        session_id=task.session_id,
        timeout_s=dispatch.timeout_ms / 1000,
        log=log,
        dispatch_id=dispatch.dispatch_id,
        resources=resources,
        handed=task.handoff,
        chain=envelope.chain() if envelope.visited else (),
        attachments=task.attachments,
        _voice=voice,
        _calls=calls,
        _loop=_running_loop(),
        _monotonic=monotonic,
        _ends_at=ends_at,
    )
