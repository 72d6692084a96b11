"""Short questions, answered in the event loop's own thread.

What the router asks with every turn SQLite finds in microseconds; to go to another thread for it and back took ten
times as long, most of it waiting for the interpreter's lock. What SQLite does not have at hand it must not wait for here:
a file that is locked is left to the patient way, and after an answer that took long so are the questions of the next
second. (A cold cache after the start, a slow disk: from then on the pages are in memory, or the way stays.)
"""

import asyncio
import os
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import aiosqlite

from reach_worker.errors import OutsideWorld
from reach_worker.ports import Clock
from reach_worker.store.database import connect_to_read
from reach_worker.store.link import FileId, Link

SLOW_S: Final = 0.005
PAUSE_S: Final = 1.0
OPEN_S: Final = 1.0


class AtOnce:
    """A connection of its own, which waits for no lock."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._name = os.fspath(path)
        self._clock = clock
        self._link = Link(path, lambda: connect_to_read(path, 0.0))
        self._connection: aiosqlite.Connection | None = None
        self._file: FileId | None = None
        self._again_at = float("-inf")

    async def rows(self, sql: str, parameters: Sequence[object]) -> list[Any] | None:
        """The answer, or ``None`` where it is not to be had at once."""
        began = self._clock.monotonic()
        if began < self._again_at:
            return None
        if self._connection is None or self._file != self._file_there():
            await self._open()
        rows = None if self._connection is None else _ask(self._connection, sql, parameters)
        if rows is None:
            await self.close()
        ended = self._clock.monotonic()
        if rows is None or ended - began > SLOW_S:
            self._again_at = ended + PAUSE_S
        return rows

    async def close(self) -> None:
        """Let go of the file."""
        self._connection = None
        await self._link.drop()

    async def _open(self) -> None:
        self._connection = None
        with suppress(TimeoutError, OutsideWorld):
            async with asyncio.timeout(OPEN_S):
                self._connection = await self._link.get()
        self._file = self._file_there()

    def _file_there(self) -> FileId | None:
        """Which file the name means now: another one may have been put in its place."""
        try:
            found = os.stat(self._name)  # noqa: PTH116 - with every question, and a Path's own takes longer
        except OSError:
            return None
        return found.st_dev, found.st_ino


def _ask(connection: aiosqlite.Connection, sql: str, parameters: Sequence[object]) -> list[Any] | None:
    with suppress(
        sqlite3.Error, ValueError
    ):  # ValueError: closed; what is wrong the patient way finds out and says
        return connection._conn.execute(sql, parameters).fetchall()  # noqa: SLF001 - aiosqlite has no such way
    return None
