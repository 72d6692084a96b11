"""Short questions, answered in the event loop's own thread.

What the router asks with every turn SQLite finds in microseconds; to go to another thread for it and back took ten
times as long, most of it waiting for the interpreter's lock. What SQLite does not have at hand it must not wait for here:
a file that is locked is left to the patient way, and after an answer that took long so are the questions of some time.
(A cold cache after the start, a slow disk: from then on the pages are in memory, or the other way stays.)
"""

import asyncio
import os
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiosqlite

from reach_worker.errors import OutsideWorld
from reach_worker.ports import Clock
from reach_worker.store.database import connect_to_read
from reach_worker.store.link import FileId, Link, Seen


@dataclass(frozen=True, slots=True)
class Haste:
    """How quick it has to be, in seconds.

    ``slow_s``: an answer that took longer is followed by a pause, of ``pause_s`` at least and of ``share`` times what it
    took, for it held up everything else. ``open_s``: how long opening the file may take.
    """

    slow_s: float = 0.005
    pause_s: float = 1.0
    share: float = 50.0
    open_s: float = 0.25


class AtOnce:
    """A connection of its own, which waits for no lock. ``seen``: what the asker's other links know of the file."""

    def __init__(self, path: Path, clock: Clock, haste: Haste, seen: Seen | None = None) -> None:
        self._name = os.fspath(path)
        self._clock = clock
        self._haste = haste
        self._link = Link(path, lambda: connect_to_read(path, 0.0), seen)
        self._connection: aiosqlite.Connection | None = None
        self._file: FileId | None = None
        self._again_at = float("-inf")
        self._moving = asyncio.Lock()

    async def rows(self, sql: str, parameters: Sequence[object]) -> list[Any] | None:
        """The answer, or ``None`` where it is not to be had at once."""
        if self._clock.monotonic() < self._again_at:
            return None
        if self._connection is None or self._file != self._file_there():
            await self._open()
        began = self._clock.monotonic()
        rows = None if self._connection is None else _ask(self._connection, sql, parameters)
        ended = self._clock.monotonic()
        if rows is None or ended - began > self._haste.slow_s:
            self._again_at = ended + max(self._haste.pause_s, self._haste.share * (ended - began))
        if rows is None:
            await self.close()
        return rows

    async def close(self) -> None:
        """Let go of the file."""
        async with self._moving:  # nobody gets hold of a connection that is being closed
            self._connection = None
            await self._link.drop()

    async def _open(self) -> None:
        async with self._moving:
            self._connection = None
            with suppress(TimeoutError, OutsideWorld):
                async with asyncio.timeout(self._haste.open_s):
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
    """What is wrong with the file the patient way finds out, and says. ``ValueError``: the connection is closed."""
    with suppress(sqlite3.Error, ValueError):
        return connection._conn.execute(sql, parameters).fetchall()  # noqa: SLF001 - aiosqlite has no such way
    return None
