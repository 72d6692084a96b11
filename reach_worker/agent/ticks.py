"""Something that is done now and again, by one timer of the loop."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def ticking(tick: Callable[[], None], every_s: float) -> Iterator[None]:
    """Call it at once, and every so many seconds within the block. It must not raise."""
    loop = asyncio.get_running_loop()
    timer: asyncio.Handle

    def again() -> None:
        nonlocal timer
        timer = loop.call_later(every_s, again)
        tick()

    timer = loop.call_soon(again)
    try:
        yield
    finally:
        timer.cancel()
