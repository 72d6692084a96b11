"""A process that serves for as long as whoever started it lives."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from reach_worker import wiring
from reach_worker.errors import ReachError
from reach_worker.settings import Settings, load_settings

log = logging.getLogger(__name__)


def serve_while_wanted(config: Path, serve: Callable[[Settings], Awaitable[int]]) -> int:
    """Serve with the settings of a file, until standard input ends; the exit status.

    Raises:
        ReachError: the settings are wrong. What goes wrong while it serves is logged, and 1 is returned.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("aiormq").setLevel(logging.WARNING)
    settings = load_settings(config, os.environ)
    try:
        return wiring.run(lambda: while_wanted(lambda: serve(settings)))
    except ReachError as error:
        log.critical("%s", error)
        return 1


async def while_wanted(serve: Callable[[], Awaitable[int]]) -> int:
    """Serve until standard input ends, and drain then as on a signal; the exit status."""
    loop = asyncio.get_running_loop()
    wanted = sys.stdin.fileno()

    def no_longer() -> None:
        loop.remove_reader(wanted)
        os.kill(os.getpid(), signal.SIGTERM)

    loop.add_reader(wanted, no_longer)
    try:
        return await serve()
    finally:
        loop.remove_reader(wanted)
