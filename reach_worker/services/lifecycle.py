"""Stopping as people expect: the first signal drains, the second leaves at once."""

import asyncio
import gc
import logging
import os
import signal
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, Final, TypeVar

log = logging.getLogger(__name__)
T = TypeVar("T")

LEFT_AT_ONCE: Final = 130
COLLECT_AFTER: Final = (50_000, 20, 50)


def few_collections() -> None:
    """Let the garbage collector look rarely, and never again at what is there now: modules, manifests, settings.

    What a router makes for a task it also lets go of by reference counts. (Measured: with a thousand agents a full
    collection took longer than the decision that it fell into, and the slowest one in a hundred took a third as long
    without it.)
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, object]) -> AsyncIterator[None]:
    """Within the block the work goes on beside it; it is cancelled with its end, and its error ends the block."""
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(work)
            yield
            task.cancel()
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] if len(errors.exceptions) == 1 else errors from None


@contextmanager
def stop_on_signals(stop: asyncio.Event) -> Iterator[None]:
    """Within the block SIGTERM and SIGINT set ``stop``; a second one ends the process."""
    loop = asyncio.get_running_loop()

    def asked() -> None:
        if stop.is_set():
            log.warning("leaving at once")
            os._exit(LEFT_AT_ONCE)
        log.info("stopping: no new work, finishing what runs (once more to leave at once)")
        stop.set()

    signals = (signal.SIGTERM, signal.SIGINT)
    for number in signals:
        loop.add_signal_handler(number, asked)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


@asynccontextmanager
async def unless_stopped(
    manager: AbstractAsyncContextManager[T], stop: asyncio.Event
) -> AsyncIterator[T | None]:
    """Enter the manager; ``None`` where ``stop`` was set before that was done: it may wait for ever for a broker."""
    async with AsyncExitStack() as stack:
        yield await _unless_stopped(stack, manager, stop)


async def _unless_stopped(
    stack: AsyncExitStack, manager: AbstractAsyncContextManager[T], stop: asyncio.Event
) -> T | None:
    task = asyncio.current_task()
    entering = True

    def end(_stopped: object) -> None:
        if entering and task is not None:
            task.cancel()

    stopped = asyncio.ensure_future(stop.wait())  # noqa: TID251 - ends with this function
    stopped.add_done_callback(end)
    try:
        return await stack.enter_async_context(manager)
    except asyncio.CancelledError:
        if task is None or not stop.is_set() or task.uncancel():
            raise
        return None
    finally:
        entering = False
        stopped.cancel()
