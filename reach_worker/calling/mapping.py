"""The same call for many payloads: a few at once, results in order, the input taken no faster than it is worked off."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, Final

from reach_worker.calling.line import Line
from reach_worker.errors import BadInput, ReachError

Payload = Mapping[str, Any]
Payloads = Iterable[Payload] | AsyncIterable[Payload]
CallOne = Callable[[Payload], Coroutine[Any, Any, Any]]
_END: Final = StopAsyncIteration


async def mapped(
    line: Line, call_one: CallOne, payloads: Payloads, concurrency: int, *, return_exceptions: bool
) -> AsyncGenerator[Any, None]:
    """The result of each payload, in their order; or the error in its place, or raised, then the rest is cancelled.

    A payload is taken from the input only when there is room for its call, and a result that is not read yet takes up
    room, too.
    """
    if concurrency < 1:
        raise BadInput(f"concurrency is 1 or more, not {concurrency!r}")
    source, ended = _each(payloads), False
    calls: deque[asyncio.Task[Any]] = deque()
    pull: asyncio.Task[Any] | None = None
    try:
        while True:
            if pull is None and not ended and len(calls) < concurrency:
                pull = line.start(_kept(anext(source)))
            waited = [task for task in (pull, next(iter(calls), None)) if task is not None]
            if not waited:
                return
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if pull is not None and pull.done():
                payload, pull = pull.result(), None
                ended = isinstance(payload, _END)
                if not ended:
                    calls.append(line.start(_kept(call_one(_sound(payload)))))
            if calls and calls[0].done():
                yield _given(calls.popleft().result(), return_exceptions=return_exceptions)
    finally:
        await _stop([*calls, *([pull] if pull else [])])
        await source.aclose()


async def _each(payloads: Payloads) -> AsyncGenerator[Payload, None]:
    if isinstance(payloads, AsyncIterable):
        async for payload in payloads:
            yield payload
    else:
        for payload in payloads:
            yield payload


async def _kept(work: Awaitable[Any]) -> Any:
    """What comes of it; an error as a value, which is raised where the result would be read."""
    return (await asyncio.gather(work, return_exceptions=True))[0]


def _sound(payload: Any) -> Payload:
    """A payload; what the input raised instead of giving one is raised here."""
    if isinstance(payload, BaseException):
        raise payload
    return payload  # type: ignore[no-any-return]  # checked with the task that it goes into


def _given(outcome: Any, *, return_exceptions: bool) -> Any:
    """A result, or an error of a call; whatever else was raised is a fault of the program and is raised again."""
    if isinstance(outcome, BaseException) and not (return_exceptions and isinstance(outcome, ReachError)):
        raise outcome
    return outcome


async def _stop(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
