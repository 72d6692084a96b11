"""Cleaning up that nothing interrupts."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def to_the_end(cleaning: Coroutine[Any, Any, None]) -> None:
    """Wait until it is done, however often this is cancelled meanwhile; a cancellation counts from then on.

    Whoever is told to stop may just be closing what he holds, and what is closed by half stays open.
    """
    work = asyncio.ensure_future(cleaning)  # noqa: TID251 - must survive a cancellation
    cancelled = False
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError:
            cancelled = True
    work.result()
    if cancelled:
        raise asyncio.CancelledError
