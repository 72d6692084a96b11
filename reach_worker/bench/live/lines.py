"""How a process of a run talks with the bench: lines of JSON out, orders in."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping

import orjson


def say(event: str, **more: object) -> None:
    """One line to the bench."""
    sys.stdout.write(orjson.dumps({"event": event, **more}).decode() + "\n")
    sys.stdout.flush()


class listening:  # noqa: N801 - a context manager, used as a function
    """Within the block lines on the standard input are carried out; its end asks the process to stop."""

    def __init__(self, orders: Mapping[str, Callable[[], object]]) -> None:
        self._orders = orders
        self._loop = asyncio.get_running_loop()
        self._rest = b""

    def __enter__(self) -> None:
        self._loop.add_reader(sys.stdin.fileno(), self._read)

    def __exit__(self, *_: object) -> None:
        self._loop.remove_reader(sys.stdin.fileno())

    def _read(self) -> None:
        data = os.read(sys.stdin.fileno(), 4096)
        if not data:
            self._loop.remove_reader(sys.stdin.fileno())
            os.kill(os.getpid(), signal.SIGTERM)
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._orders[line.decode()]()
