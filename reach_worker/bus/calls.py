"""Calls to the broker, and the ways in which they end when their connection does."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from reach_worker.errors import BrokerUnavailable, ReachError

CANCEL_AGAIN_S: Final = 0.5


@contextmanager
def broker_call(what: str) -> Iterator[None]:
    """Turn whatever a dying connection does to a pending call into :class:`BrokerUnavailable`.

    aiormq rejects pending calls with the reason of the close, with a bare ``Exception`` where there is none, and with
    ``CancelledError`` although nobody cancelled the caller. A cancellation that somebody did ask for passes.
    """
    try:
        yield
    except ReachError:
        raise
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise BrokerUnavailable(f"{what}: the connection ended") from error
    except Exception as error:
        words = str(error) or type(error).__name__
        raise BrokerUnavailable(f"{what}: {words}") from error


async def cancelled_for_good(task: "asyncio.Task[Any]") -> None:
    """Cancel a task until it is over.

    ``asyncio.wait_for`` of Python 3.11, which aiormq waits with, forgets a cancellation that meets the end of what it
    waits for: the task would go on for ever.
    """
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=CANCEL_AGAIN_S)
