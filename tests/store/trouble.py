"""What happens to a store from outside: a lock, a full disk. And how a test waits until it is over."""

import asyncio
import os
import resource
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from random import Random  # noqa: TID251 - a seeded one

from reach_worker.ports import Row, Store

LIMIT_S = 60
PAGE = 4096


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


def damage(path: Path, start: int, size: int | None = None) -> None:
    """Overwrite ``size`` bytes of a file from ``start`` on, or all to its end. The length stays."""
    with path.open("r+b") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(start)
        file.write(b"\xff" * ((end if size is None else start + size) - start))


def damage_at_random(path: Path, kind: str, chance: Random) -> None:
    """Damage some pages as disks and programs do: noise, zeros, another page's bytes, a few wrong ones, a lost end."""
    content = bytearray(path.read_bytes())
    pages = len(content) // PAGE
    for _ in range(chance.choice([1, 3, 10])):
        at, other = (chance.randrange(1, pages) * PAGE for _ in range(2))
        match kind:
            case "noise":
                content[at : at + PAGE] = chance.randbytes(PAGE)
            case "zeros":
                content[at : at + PAGE] = bytes(PAGE)
            case "swap":
                content[at : at + PAGE] = content[other : other + PAGE]
            case "bytes":
                for _ in range(40):
                    content[at + chance.randrange(PAGE)] = chance.randrange(256)
            case "end":
                del content[at + chance.choice([0, 1000]) :]
                break
    path.write_bytes(content)


def damage_live(path: Path) -> None:
    """Overwrite all but the first page of a store that is in use: what is in its log goes into the file before."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA busy_timeout = 10000")
        assert connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
        damage(path, PAGE)


def move_away(path: Path) -> None:
    """As a person does who was told to: the file, and what is beside it."""
    for end in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            path.with_name(path.name + end).rename(path.with_name(f"damaged{end}"))


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
