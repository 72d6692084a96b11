"""Stopping as people expect: the first signal drains, the second leaves at once."""

import asyncio
import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

log = logging.getLogger(__name__)

LEFT_AT_ONCE: Final = 130


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
