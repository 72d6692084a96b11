"""What happens to a store from outside: a lock, a full disk. And how a test waits until it is over."""

import asyncio
import resource
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from reach_worker.ports import Row, Store

LIMIT_S = 60


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another program holds the write lock."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """No file of this process may grow beyond ``size`` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def recorded(store: Store, *rows: Row) -> None:
    """Record until it is committed: whatever was recorded before is then committed too."""
    async with asyncio.timeout(LIMIT_S):
        while not await store.record(rows):
            pass


def count(path: Path, table: str) -> int:
    """Rows in a table, as another program sees them."""
    with closing(sqlite3.connect(path)) as connection:
        (found,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()  # noqa: S608 - our own name
        return int(found)


def spill_file(path: Path) -> Path:
    return path.with_name(path.name + ".spill")


def spilled(path: Path) -> int:
    """Lines in the spill file."""
    return len(spill_file(path).read_bytes().splitlines())
