"""Stopping as people expect: the first signal drains, the second leaves at once."""

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

log = logging.getLogger(__name__)

LEFT_AT_ONCE: Final = 130


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
