"""The SQLite file: opening it, telling whether it is ours, and bringing its schema up to date."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Final

import aiosqlite

from reach_worker.errors import StoreForeign, StoreNewer, StoreUnavailable

APPLICATION_ID: Final = 0x52454143
"""``REAC`` in the file's header: by this we, and file(1), know our files."""

CACHE_KIB: Final = 32 * 1024
"""Pages each connection keeps in memory; the indexes are hit in random places."""

WAL_PAGES: Final = 4_000
"""About 16 MB of write-ahead log before its pages are copied into the file. More of them save little: a page that is
written again and again is copied once, and new rows come one after the other. While it copies, the disk has time for
nobody else: for 16,000 pages that was a tenth of a second, in which the broker confirmed nothing either."""

READ_AHEAD: Final = 64
"""Rows that a cursor fetches together."""

WAL_LIMIT_BYTES: Final = 64 * 1024 * 1024
"""What the write-ahead log is cut back to, after a long reader let it grow."""


class StoreBusy(StoreUnavailable):
    """Locked, full, or out of memory: it may pass by itself, so it is worth another try."""


class StoreSick(StoreUnavailable):
    """The file is there, and is damaged, write-protected, or on a disk that fails: for a person to mend.

    Worth another try too, but from the beginning, with a new connection.
    """


class StoreDamaged(StoreSick):
    """What is in the file makes no sense to SQLite."""


_PASSING: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_INTERRUPT,
    }
)


_WHAT_TO_DO: Final = {
    sqlite3.SQLITE_CORRUPT: (
        "; it is damaged: move it away, with the files beside it that end with -wal and -shm, and a new one is made, "
        "or put a backup in its place"
    ),
    sqlite3.SQLITE_READONLY: "; see that this user may write it and its folder",
    sqlite3.SQLITE_CANTOPEN: "; see that its folder is there, and that this user may read and write both",
    sqlite3.SQLITE_IOERR: "; see to the disk: is it full, or failing?",
}


def unavailable(path: Path, error: sqlite3.Error | OSError) -> StoreUnavailable | StoreForeign:
    """Our error for one of SQLite's or of the system's."""
    if isinstance(error, OSError):
        return StoreUnavailable(f"{path}: {error.strerror or error}")
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code == sqlite3.SQLITE_NOTADB:
        return StoreForeign(
            f"{path} is not an SQLite database; set store.path to another file, or move it away"
        )
    if path.is_dir():
        return StoreUnavailable(f"{path} is a folder; set store.path to a file in it")
    if code in _PASSING:
        return StoreBusy(f"{path}: {error}")
    text = f"{path}: {error}{_WHAT_TO_DO.get(code, '')}"
    if code == sqlite3.SQLITE_CORRUPT:
        return StoreDamaged(text)
    return StoreSick(text) if path.is_file() else StoreUnavailable(text)


@contextmanager
def our_errors(path: Path) -> Iterator[None]:
    """Foreign exceptions end here."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise unavailable(path, error) from error
    except UnicodeDecodeError as error:  # SQLite quotes what is damaged, and Python cannot read it
        raise StoreDamaged(f"{path}: {error.object!r}{_WHAT_TO_DO[sqlite3.SQLITE_CORRUPT]}") from error


@contextmanager
def sense(path: Path) -> Iterator[None]:
    """Making our own values of what was read; what cannot be one is damage that SQLite did not see."""
    try:
        yield
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise StoreDamaged(
            f"{path}: a row makes no sense ({error}){_WHAT_TO_DO[sqlite3.SQLITE_CORRUPT]}"
        ) from error


async def connect(path: Path, busy_s: float) -> aiosqlite.Connection:
    """Open the store to read and write; make it where there is none, and bring its schema up to date.

    ``busy_s`` is how long a statement waits for another process's lock.

    Raises:
        StoreForeign: the file is something else; it was not touched.
        StoreNewer: a newer version of this package wrote it; it was not touched.
        StoreBusy: it is locked, or the disk is full.
        StoreSick: it is damaged or write-protected.
        StoreUnavailable: it cannot be made.
    """
    with our_errors(path):
        await asyncio.to_thread(path.parent.mkdir, parents=True, exist_ok=True)
        async with _opened(str(path), busy_s) as (connection, keep):
            version = await _version_at_once(connection, path)
            await _set_up(connection, path)
            if version < schema_version():
                await _migrate(connection, path)
            keep()
    return connection


async def connect_to_read(path: Path, busy_s: float) -> aiosqlite.Connection:
    """Open the store to read only, also while others write it. Raises as :func:`connect` does."""
    if not await asyncio.to_thread(path.exists):
        raise StoreUnavailable(f"{path}: there is no store yet; a router makes it when it starts")
    with our_errors(path):
        async with _opened(_read_only(path), busy_s) as (connection, keep):
            version = await _version_at_once(connection, path)
            if version < schema_version():
                raise StoreUnavailable(
                    f"{path} has schema {version}, this version of reach_worker reads {schema_version()}; "
                    "a router brings it up to date when it starts"
                )
            keep()
    return connection


def _read_only(path: Path) -> str:
    return path.absolute().as_uri() + "?mode=ro"


@asynccontextmanager
async def _opened(
    database: str, busy_s: float
) -> AsyncIterator[tuple[aiosqlite.Connection, Callable[[], object]]]:
    """A connection, closed again unless it is kept. Transactions are ours: ``isolation_level`` is off.

    The file is opened before the connection has its thread: where that fails, aiosqlite lets nobody wait for the end of
    the thread. Any other thread may use it, too (:mod:`.at_once`); SQLite has a lock for that.
    """
    file = await asyncio.to_thread(
        sqlite3.connect,
        database,
        uri=database.startswith("file:"),
        isolation_level=None,
        check_same_thread=False,
    )
    async with AsyncExitStack() as stack:
        stack.callback(file.close)  # where the connection was cancelled before it had it
        connecting = aiosqlite.Connection(lambda: file, READ_AHEAD)
        connection = await stack.enter_async_context(connecting)
        await connection.execute_fetchall(f"PRAGMA busy_timeout = {int(busy_s * 1000)}")
        await connection.execute_fetchall(f"PRAGMA cache_size = -{CACHE_KIB}")
        yield connection, stack.pop_all


async def _version_at_once(connection: aiosqlite.Connection, path: Path) -> int:
    """The schema's version, read at one moment: another process may be making the store just now."""
    await connection.execute("BEGIN")
    version = await _our_version(connection, path)
    await connection.execute("COMMIT")
    return version


async def _our_version(connection: aiosqlite.Connection, path: Path) -> int:
    """The schema's version, 0 for a new file. Reads only."""
    application, version = await number(connection, "PRAGMA application_id"), await schema_of(connection)
    if application != APPLICATION_ID:
        names = [
            name for (name,) in await connection.execute_fetchall("SELECT name FROM sqlite_schema LIMIT 5")
        ]
        if application or version or names:
            raise StoreForeign(
                f"{path} is another program's SQLite database (application_id {application}, tables: "
                f"{', '.join(names) or 'none'}); set store.path to another file, or move it away"
            )
    if version > schema_version():
        raise StoreNewer(
            f"{path} has schema {version}, this version of reach_worker knows {schema_version()}: "
            "a newer version wrote it; install that one, or set store.path to another file"
        )
    return version


async def _set_up(connection: aiosqlite.Connection, path: Path) -> None:
    """How the file is written.

    ``synchronous = NORMAL``: no fsync per transaction. A power cut may take the last moments of history with
    it, never the file; what must not be lost are messages, and those the broker keeps.
    """
    rows = await connection.execute_fetchall("PRAGMA journal_mode = WAL")
    mode = next(iter(rows))[0]
    if mode != "wal":
        raise StoreUnavailable(
            f"{path}: this file system cannot do write-ahead logging; put the store on a local disk"
        )
    for pragma in (
        "synchronous = NORMAL",
        "foreign_keys = OFF",
        f"wal_autocheckpoint = {WAL_PAGES}",
        f"journal_size_limit = {WAL_LIMIT_BYTES}",
    ):
        await connection.execute_fetchall(f"PRAGMA {pragma}")


async def _migrate(connection: aiosqlite.Connection, path: Path) -> None:
    """Apply what is missing, as one transaction. Whoever comes second waits, and finds nothing left to do."""
    await connection.execute("BEGIN IMMEDIATE")
    version = await _our_version(connection, path)
    for script in migrations()[version:]:
        for statement in statements(script):
            await connection.execute(statement)
    await connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    await connection.execute(f"PRAGMA user_version = {schema_version()}")
    await connection.execute("COMMIT")


async def schema_of(connection: aiosqlite.Connection) -> int:
    """The schema's version in the file's header."""
    return await number(connection, "PRAGMA user_version")


async def number(connection: aiosqlite.Connection, sql: str) -> int:
    """The one number that a query answers with."""
    return int(next(iter(await connection.execute_fetchall(sql)))[0])


@cache
def migrations() -> tuple[str, ...]:
    """The scripts in order; the n-th brings a store from version n - 1 to n."""
    folder = resources.files("reach_worker.store") / "migrations"
    found = sorted((file.name, file.read_text(encoding="utf-8")) for file in folder.iterdir())
    return tuple(text for name, text in found if name.endswith(".sql"))


def schema_version() -> int:
    """The version that this package writes."""
    return len(migrations())


def statements(script: str) -> Iterator[str]:
    """The script's statements one by one: run as a whole, sqlite3 would commit before the first."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
