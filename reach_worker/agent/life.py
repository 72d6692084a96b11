"""What an agent opens before its first task and closes after its last: its lifespan and its hooks.

Opened in order: the lifespan, then the start-up hooks. Closed the other way round: the shutdown hooks from the last to
the first, then the lifespan. Closing always happens, also where a hook or the run failed, and it is bounded in time.
"""

import asyncio
import inspect
import logging
import threading
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from reach_worker.errors import BadInput, Problem, ReachError, StartupFailed

log = logging.getLogger(__name__)

CLOSING_S: Final = 10.0
"""All of the shutdown together has so long."""

Hook = Callable[..., Any]
Closing = list[tuple[str, Callable[[], Awaitable[object]]]]


@dataclass(frozen=True, slots=True)
class Alive:
    """The agent is ready to work. ``resources``: what its lifespan yielded, ``None`` without one."""

    resources: Any = None


class Life:
    """An agent's lifespan and hooks. ``whose``: the agent, which each of them is given if it takes a parameter."""

    def __init__(self, whose: object) -> None:
        self.startups: list[Hook] = []
        self.shutdowns: list[Hook] = []
        self._whose = whose
        self._lifespan: Hook | None = None

    def spans(self, lifespan: Any) -> None:
        """Set the lifespan. Raises ``BadInput`` for a second one, and for a function that never yields."""
        if self._lifespan is not None:
            raise BadInput(Problem("an agent has one lifespan", hint="open all in it, one after the other"))
        if isinstance(lifespan, AbstractAsyncContextManager):
            self._lifespan = lambda: lifespan
        elif inspect.iscoroutinefunction(lifespan):
            hint = "write `yield resources` where the agent is to work, and clean up after it"
            raise BadInput(Problem(f"the lifespan {_name(lifespan)} never yields", hint=hint))
        else:
            self._lifespan = (
                asynccontextmanager(lifespan) if inspect.isasyncgenfunction(lifespan) else lifespan
            )

    @asynccontextmanager
    async def lived(
        self, stop: asyncio.Event, *, closing_s: float = CLOSING_S
    ) -> AsyncIterator[Alive | None]:
        """Open everything, and close it after the block. ``None`` where ``stop`` was set before all was open.

        Raises:
            StartupFailed: something did not open. What was open by then is closed.
        """
        closing: Closing = []
        try:
            yield await self._open_unless(stop, closing)
        finally:
            await _close(closing, closing_s)

    async def _open_unless(self, stop: asyncio.Event, closing: Closing) -> Alive | None:
        stopped = asyncio.ensure_future(stop.wait())  # noqa: TID251 - ends with this function
        opening = True
        try:
            async with asyncio.timeout(None) as limit:

                def end(_stopped: object) -> None:
                    if opening and stop.is_set():
                        limit.reschedule(0)

                stopped.add_done_callback(end)
                return await self._open(closing)
        except TimeoutError:
            return None
        finally:
            opening = False
            stopped.cancel()

    async def _open(self, closing: Closing) -> Alive:
        resources = None
        if self._lifespan is not None:
            manager = await _watched(self._lifespan, self._entered(self._lifespan))
            resources = await _watched(self._lifespan, manager.__aenter__())
            closing.append((_name(self._lifespan), partial(manager.__aexit__, None, None, None)))
        closing += [(_name(hook), partial(self._run, hook)) for hook in self.shutdowns]
        for hook in self.startups:
            await _watched(hook, self._run(hook))
        return Alive(resources)

    async def _entered(self, lifespan: Hook) -> AbstractAsyncContextManager[Any]:
        manager = _called(lifespan, self._whose)
        if isinstance(manager, AbstractAsyncContextManager):
            return manager
        hint = "an async generator that yields once, or what returns an async context manager"
        message = f"the lifespan {_name(lifespan)} gives {type(manager).__name__!r}"
        raise BadInput(Problem(message, hint=hint))

    async def _run(self, hook: Hook) -> None:
        if inspect.iscoroutinefunction(hook):
            result = _called(hook, self._whose)
        else:
            result = await _in_thread(partial(_called, hook, self._whose))
        if inspect.isawaitable(result):
            await result


async def _watched(function: Hook, opening: Awaitable[Any]) -> Any:
    """What it gives; whatever it raises is the agent's own fault, and is said with its place."""
    try:
        return await opening
    except ReachError:
        raise
    except (Exception, SystemExit) as error:  # somebody else's code runs here, and may raise anything
        log.debug("the start-up failed", exc_info=error)
        raise StartupFailed(_what_failed(function, error)) from error


async def _close(closing: Closing, limit_s: float) -> None:
    """Close what was opened, the last first. Each may take its share of what is left of the time."""
    ends_at = asyncio.get_running_loop().time() + limit_s
    while closing:
        left_s = max(0.0, ends_at - asyncio.get_running_loop().time()) / len(closing)
        name, close = closing.pop()
        limit = asyncio.timeout(left_s)
        try:
            async with limit:
                await close()
        except Exception as error:  # the rest is closed all the same
            if limit.expired():
                log.error("the shutdown of %s is not done after %.3g s; leaving without it", name, left_s)  # noqa: TRY400
            else:
                log.exception("the shutdown of %s failed: %s", name, type(error).__name__)


def _called(function: Hook, agent: object) -> Any:
    """Call it with the agent if it takes a parameter."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    takes = any(each.kind in kinds for each in inspect.signature(function).parameters.values())
    return function(agent) if takes else function()


async def _in_thread(call: Callable[[], Any]) -> Any:
    """Call it in a thread that the process does not wait for when it ends."""
    future: Future[Any] = Future()

    def run() -> None:
        future.set_running_or_notify_cancel()
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is waited for
            future.set_exception(error)

    threading.Thread(target=run, name="hook", daemon=True).start()
    return await asyncio.wrap_future(future)


def _name(function: Hook) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _what_failed(function: Hook, error: BaseException) -> str:
    """In one line, with the place in the agent's own file."""
    message = f"the start-up failed in {_name(function)}: {type(error).__name__}: {error}"
    file = getattr(getattr(inspect.unwrap(function), "__code__", None), "co_filename", None)
    own = [each for each in traceback.extract_tb(error.__traceback__) if each.filename == file]
    return f"{own[-1].filename}:{own[-1].lineno}: {message}" if own else message
