"""A connection for as long as the file at its path is the same one."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import aiosqlite

from reach_worker.store.database import StoreBusy

FileId = tuple[int, int]
"""Device and inode: which file a name means now."""


@dataclass(slots=True)
class Seen:
    """The file that was opened last at a path, and the write-ahead log beside it. Links of one owner share it."""

    file: FileId | None = None
    log: FileId | None = None


class Link:
    """A connection made when it is needed, and made anew when the file was removed or replaced under it.

    SQLite itself would not notice: it goes on writing to a file that has no name any more. And if the write-ahead log
    of the old file is still there, it would take it for the new one's.
    """

    def __init__(
        self, path: Path, connector: Callable[[], Awaitable[aiosqlite.Connection]], seen: Seen | None = None
    ) -> None:
        self._path = path
        self._log = path.with_name(path.name + "-wal")
        self._connector = connector
        self._connection: aiosqlite.Connection | None = None
        self._file: FileId | None = None
        self._seen = Seen() if seen is None else seen
        self._lock = asyncio.Lock()

    async def get(self) -> aiosqlite.Connection:
        """The connection. Raises what its connector raises, and ``StoreBusy``."""
        async with self._lock:
            if self._connection is not None and not self.in_place():
                await self._close()
            if self._connection is None:
                self._beware_of_an_old_log()
                self._connection = await self._connector()
                self._file = self._seen.file = _file_id(self._path)
                self._seen.log = _file_id(self._log)
            return self._connection

    def in_place(self) -> bool:
        """The file at the path is the one that was opened."""
        if self._file is None or _file_id(self._path) != self._file:
            return False
        self._seen.log = _file_id(self._log)
        return True

    async def drop(self) -> None:
        """Close the connection; the next use opens another one."""
        async with self._lock:
            await self._close()

    async def interrupt(self) -> None:
        """End what runs on the connection now."""
        if self._connection is not None:
            await self._connection.interrupt()

    async def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):  # it is closed all the same
                await connection.close()

    def _beware_of_an_old_log(self) -> None:
        replaced = _file_id(self._path) not in (None, self._seen.file)
        if replaced and self._seen.log is not None and _file_id(self._log) == self._seen.log:
            raise StoreBusy(
                f"{self._path} was replaced while it was in use, and {self._log.name} belongs to the old file: "
                "remove that, and the file that ends with -shm"
            )


def _file_id(path: Path) -> FileId | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
