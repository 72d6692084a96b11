"""The spill file: rows that the database did not take in time, as lines of JSON beside it.

Several processes may share it. Whoever adds to it, or reads it into the database, holds its lock; it is
emptied, never removed, so that nobody adds to a file without a name. A crash between reading and emptying
means that rows are read again, which changes nothing.

Waiting for another process's lock takes a thread. That is one of our own, so that those who add to the file never keep
the threads that its reader needs; within the process they wait for each other without one.
"""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager
from io import BufferedReader, FileIO
from itertools import islice
from pathlib import Path
from typing import Literal

from reach_worker.ports import Row
from reach_worker.store.database import our_errors
from reach_worker.store.row_lines import from_line


def spill_of(store: Path) -> Path:
    """The spill file of the store at a path."""
    return store.with_name(store.name + ".spill")


class Spill:
    """The file at ``path``. ``pending``: there is something in it, as far as this process knows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.pending = False
        self._busy = asyncio.Lock()
        self._adder = ThreadPoolExecutor(1, "spill")

    async def look(self) -> int:
        """See whether an earlier process left something behind: how many bytes."""
        size = await asyncio.to_thread(_size, self.path)
        self.pending = size > 0
        return size

    async def append(self, lines: bytes) -> None:
        """Add lines; on disk when this returns. Raises ``StoreUnavailable``."""
        if lines:
            async with self._busy:
                await asyncio.get_running_loop().run_in_executor(self._adder, self._append, lines)

    def _append(self, lines: bytes) -> None:
        with our_errors(self.path), _locked(self.path, "a+b", fcntl.LOCK_EX) as file:
            end = file.seek(0, os.SEEK_END)
            try:
                _write(file, _newline_if_torn(file, end) + lines)
                os.fsync(file.fileno())
            except OSError:
                file.truncate(end)  # a full disk took the first part of it: leave no half row behind
                raise
            self.pending = True  # here, while nobody else reads: who asked for it may have stopped waiting

    @asynccontextmanager
    async def reading(self) -> AsyncIterator["Lines | None"]:
        """Its lines, for the one who may read them now; ``None`` while others use it, or there is no file.

        Raises ``StoreUnavailable``.
        """
        if self._busy.locked():
            yield None
            return
        async with self._busy:
            with our_errors(self.path), ExitStack() as stack:
                try:
                    file = stack.enter_context(_locked(self.path, "r+b", fcntl.LOCK_EX | fcntl.LOCK_NB))
                except (BlockingIOError, FileNotFoundError):
                    yield None
                else:
                    yield Lines(file)
            await self.look()


class Lines:
    """The lines of a spill file that is locked."""

    def __init__(self, file: FileIO) -> None:
        self._file = file
        self._lines = BufferedReader(file)

    async def next(self, limit: int) -> list[Row | bytes]:
        """Up to ``limit`` rows; a line that is none comes as it is. Nothing at the end."""
        return await asyncio.to_thread(self._next, limit)

    def _next(self, limit: int) -> list[Row | bytes]:
        return [_row_or_line(line) for line in islice(self._lines, limit)]

    async def clear(self) -> None:
        """Everything is in the database."""
        await asyncio.to_thread(self._clear)

    def _clear(self) -> None:
        self._file.truncate(0)
        os.fsync(self._file.fileno())


def _row_or_line(line: bytes) -> Row | bytes:
    try:
        return from_line(line)
    except (KeyError, TypeError, ValueError):
        return line


def _newline_if_torn(file: FileIO, end: int) -> bytes:
    """A crash may have cut the last line; ours must not be glued to it."""
    if end == 0:
        return b""
    file.seek(end - 1)
    return b"" if file.read(1) == b"\n" else b"\n"


def _write(file: FileIO, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


@contextmanager
def _locked(path: Path, mode: Literal["a+b", "r+b"], how: int) -> Iterator[FileIO]:
    """The file with its lock, unbuffered. Somebody may have removed it while we waited: then once more."""
    while True:
        with path.open(mode, buffering=0) as file:
            fcntl.flock(file, how)
            if _is_at(path, file):
                yield file
                return


def _is_at(path: Path, file: FileIO) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except OSError:
        return False
