"""How the store is: looked at without writing a row."""

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import aiosqlite

from reach_worker.core.diagnosis_store import StoreHealth
from reach_worker.errors import OutsideWorld
from reach_worker.store.database import connect_to_read, our_errors

BUSY_S: Final = 2.0
_NEWEST: Final = """
SELECT max(
    ifnull((SELECT max(first_seen) FROM tasks), 0),
    ifnull((SELECT at FROM outcomes ORDER BY id DESC LIMIT 1), 0),
    ifnull((SELECT at FROM ends ORDER BY id DESC LIMIT 1), 0)
)
"""
_OLDEST: Final = "SELECT first_seen FROM tasks WHERE ended IS NOT NULL ORDER BY first_seen LIMIT 1"


async def look_at(path: Path, check_s: float) -> StoreHealth:
    """The store's health. ``check_s``: how long SQLite's own check of the whole file may take. Never raises."""
    around = await asyncio.to_thread(_around, path)
    unreadable: str | None = None
    read: dict[str, Any] = {}
    try:
        async with _connected(path) as connection:
            with our_errors(path):
                read = await _read(connection, check_s)
    except OutsideWorld as error:
        unreadable = str(error).removeprefix(f"{path}: ")
    unwritable = None if unreadable else await _unwritable(path)
    return StoreHealth(str(path), unreadable=unreadable, unwritable=unwritable, **around, **read)


@asynccontextmanager
async def _connected(path: Path) -> AsyncIterator[aiosqlite.Connection]:
    connection = await connect_to_read(path, BUSY_S)
    try:
        yield connection
    finally:
        with suppress(sqlite3.Error):
            await connection.close()


async def _read(connection: aiosqlite.Connection, check_s: float) -> dict[str, Any]:
    faults = await _faults(connection, check_s)
    if faults:
        return {"faults": faults}
    ((newest,),) = await connection.execute_fetchall(_NEWEST)
    oldest = [at for (at,) in await connection.execute_fetchall(_OLDEST)]
    return {"faults": faults, "newest_us": newest or None, "oldest_us": oldest[0] if oldest else None}


async def _faults(connection: aiosqlite.Connection, check_s: float) -> tuple[str, ...] | None:
    """What SQLite's own check says; nothing if all is well, ``None`` if it took too long."""
    checking = asyncio.ensure_future(connection.execute_fetchall("PRAGMA quick_check(5)"))  # noqa: TID251 - awaited below
    done, _ = await asyncio.wait({checking}, timeout=check_s)
    if not done:
        await connection.interrupt()
    try:
        said = tuple(str(line) for (line,) in await checking)
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT:
            return None
        return (str(error),)
    return () if said == ("ok",) else said


async def _unwritable(path: Path) -> str | None:
    """Why no row can be written now: the lock for writing is taken, and let go again."""
    try:
        async with aiosqlite.connect(_to_write(path), uri=True, isolation_level=None) as connection:
            await connection.execute(f"PRAGMA busy_timeout = {int(BUSY_S * 1000)}")
            await connection.execute("BEGIN IMMEDIATE")
            await connection.execute("ROLLBACK")
    except sqlite3.Error as error:
        return str(error)
    return None


def _to_write(path: Path) -> str:
    """It is not made where there is none."""
    return path.absolute().as_uri() + "?mode=rw"


def _around(path: Path) -> dict[str, Any]:
    """What the file system says of the store, its log, its spill file and its disk."""
    free: int | None = None
    with suppress(OSError):
        free = shutil.disk_usage(_nearest(path.absolute().parent)).free
    return {
        "missing": not path.exists(),
        "log_bytes": _size(path.with_name(path.name + "-wal")),
        "spill_bytes": _size(path.with_name(path.name + ".spill")),
        "free": free,
    }


def _nearest(folder: Path) -> Path:
    """The folder, or the nearest above it that exists."""
    return next((each for each in (folder, *folder.parents) if each.exists()), folder)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
