"""How the store is, looked at without writing to it."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from reach_worker.clock import SystemClock
from reach_worker.core.diagnosis_store import StoreHealth
from reach_worker.store import SqliteStore
from reach_worker.store.health import look_at
from tests.store.sample import NOON, accepted, dispatched, seen, succeeded


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "reach.db"
    asyncio.run(fill(path))
    return path


async def fill(path: Path) -> None:
    async with SqliteStore.open(path, clock=SystemClock()) as store:
        for number in range(50):
            task_id = f"t{number}"
            assert await store.record([accepted(task_id, at=NOON + number)])
            assert await store.record([dispatched(task_id, dispatch_id=task_id), succeeded(task_id)])
        assert await store.record([seen(dispatch_id="t1", task_id="t1", at=NOON + 77)])


def look(path: Path, check_s: float = 10) -> StoreHealth:
    return asyncio.run(look_at(path, check_s))


def test_a_store_that_is_well(path: Path) -> None:
    before = path.read_bytes()

    health = look(path)

    assert (health.unreadable, health.unwritable, health.faults, health.missing) == (None, None, (), False)
    assert (health.newest_us, health.oldest_us) == (NOON + 77, NOON)
    assert health.free is not None
    assert health.free > 0
    assert path.read_bytes() == before


def test_none_is_made_where_there_is_none(tmp_path: Path) -> None:
    health = look(tmp_path / "not" / "yet" / "reach.db")

    assert health.missing
    assert health.unreadable is not None
    assert "there is no store yet" in health.unreadable
    assert health.free is not None
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_one_is_noticed(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        size = database.execute("PRAGMA page_size").fetchone()[0]
    data = bytearray(path.read_bytes())
    pages = len(data) // size
    for page in range(pages // 2, pages):
        data[page * size : page * size + 200] = b"\xff" * 200
    path.write_bytes(data)

    health = look(path)

    assert health.unreadable is not None or health.faults


def test_another_file_and_a_locked_one(path: Path, tmp_path: Path) -> None:
    diary = tmp_path / "diary.db"
    diary.write_text("Dear diary, this is no database at all.\n" * 50)
    health = look(diary)
    assert health.unreadable is not None
    assert "is not an SQLite database" in health.unreadable

    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("BEGIN IMMEDIATE")
        health = look(path)
    assert health.unreadable is None
    assert health.unwritable == "database is locked"


def test_a_check_that_takes_too_long_is_left(path: Path) -> None:
    health = look(path, 0)

    assert health.faults in (None, ())
    assert health.unreadable is None
    assert health.newest_us == NOON + 77
