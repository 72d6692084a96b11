"""A backup is whole, of one moment, and never in the way of what is there already."""

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from reach_worker.clock import SystemClock
from reach_worker.errors import BadInput, OutsideWorld, ReachError, StoreForeign, StoreNewer, StoreUnavailable
from reach_worker.store import SqliteStore, StoreReader
from reach_worker.store.backup import backup
from tests.store.sample import accepted, decided, dispatched, seen, succeeded
from tests.store.trouble import LIMIT_S, count, damage, full_disk, recorded
from tests.store.unprivileged import unprivileged


def opened(path: Path) -> SqliteStore:
    return SqliteStore.open(path, clock=SystemClock(), wait_s=10)


def names_in(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "reach.db"
    asyncio.run(make(path))
    return path


async def make(path: Path, tasks: int = 100) -> None:
    async with opened(path) as store:
        for number in range(tasks):
            await store.record([accepted(f"t{number}"), decided(f"t{number}")])


async def error_of_backup(path: Path, target: Path) -> ReachError:
    with pytest.raises(ReachError) as caught:
        await backup(path, target)
    return caught.value


async def test_a_backup_is_one_file_that_becomes_a_store_again(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    made = await backup(path, target)

    assert names_in(tmp_path) == {"data", "copy.db"}
    assert (made.path, made.tasks, made.bytes) == (target, 100, target.stat().st_size)
    restored = tmp_path / "new" / "reach.db"
    restored.parent.mkdir()
    target.rename(restored)
    async with opened(restored) as store:
        assert len(await store.known_tasks([f"t{number}" for number in range(100)])) == 100
        await recorded(store, accepted("after"))
    assert count(restored, "tasks") == 101


async def test_a_backup_is_of_one_moment_and_comes_to_its_end_while_a_router_writes(
    path: Path, tmp_path: Path
) -> None:
    target = tmp_path / "copy.db"
    writing, step, go_on = 0, threading.Event(), threading.Event()

    def told(copied: int, pages: int) -> None:
        if copied < pages:
            step.set()
            go_on.wait(0.01)

    async with opened(path) as store:
        copying = asyncio.ensure_future(backup(path, target, told=told, step_pages=1))  # noqa: TID251 - awaited below
        while not copying.done():
            id_ = f"w{writing}"
            coming = (accepted(id_), dispatched(id_, dispatch_id=id_))
            assert await store.record([*coming, seen(dispatch_id=id_, task_id=id_), succeeded(id_)])
            writing += 1
        made = await copying

    assert step.is_set()
    assert writing > 10
    assert made.tasks < 100 + writing
    assert count(path, "tasks") == 100 + writing
    assert count(target, "outcomes") == count(target, "ends") == made.tasks - 100
    with closing(sqlite3.connect(target)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


async def test_a_file_that_is_there_is_replaced_only_when_that_is_said(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "letter"
    target.write_text("Dear reader")

    error = await error_of_backup(path, target)
    assert isinstance(error, BadInput)
    assert "there already" in str(error)
    assert target.read_text() == "Dear reader"
    await backup(path, target, replace=True)
    assert count(target, "tasks") == 100
    assert names_in(tmp_path) == {"data", "letter"}


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("data", "is a folder: name a file in it"),
        ("nowhere/copy.db", "there is no folder"),
        ("data/reach.db", "is the store itself"),
    ],
)
async def test_a_target_that_cannot_be_is_bad_input(
    path: Path, tmp_path: Path, target: str, words: str
) -> None:
    error = await error_of_backup(path, tmp_path / target)

    assert isinstance(error, BadInput)
    assert words in str(error)


async def test_a_full_disk_leaves_nothing_behind(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    with full_disk(40_000):
        error = await error_of_backup(path, target)

    assert isinstance(error, OutsideWorld)
    assert f"{target}: the backup could not be made" in str(error)
    assert names_in(tmp_path) == {"data"}


@pytest.fixture
def closed_folder() -> Iterator[Path]:
    with unprivileged() as folder:
        (folder / "data").mkdir()
        (folder / "closed").mkdir(0o555)
        yield folder


def test_a_folder_that_may_not_be_written_is_told(closed_folder: Path) -> None:
    path = closed_folder / "data" / "reach.db"
    asyncio.run(make(path, 1))
    error = asyncio.run(error_of_backup(path, closed_folder / "closed" / "copy.db"))

    assert "the backup could not be made: Permission denied" in str(error)


async def test_a_copy_of_a_damaged_store_is_no_backup(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    target.write_text("the last good one")
    damage(path, 3 * 4096, 8 * 4096)

    with pytest.raises(StoreUnavailable, match="is damaged, so a copy of it is no backup"):
        await backup(path, target, replace=True)
    assert target.read_text() == "the last good one"
    assert names_in(tmp_path) == {"data", "copy.db"}


async def test_what_is_no_store_is_not_backed_up(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    letter = tmp_path / "letter"
    letter.write_text("Dear reader, " * 100)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 1234")

    assert isinstance(await error_of_backup(letter, target), StoreForeign)
    assert isinstance(await error_of_backup(path, target), StoreNewer)
    assert "there is no store yet" in str(await error_of_backup(tmp_path / "none.db", target))
    assert names_in(tmp_path) == {"data", "letter"}


async def test_a_backup_that_nobody_waits_for_any_more_ends_and_leaves_nothing(
    path: Path, tmp_path: Path
) -> None:
    began = threading.Event()
    go_on = threading.Event()

    def told(_copied: int, _pages: int) -> None:
        began.set()
        go_on.wait(LIMIT_S)

    copying = asyncio.ensure_future(backup(path, tmp_path / "copy.db", told=told, step_pages=1))  # noqa: TID251 - awaited below
    await asyncio.to_thread(began.wait, LIMIT_S)
    copying.cancel()
    asyncio.get_running_loop().call_later(0.01, go_on.set)
    with pytest.raises(asyncio.CancelledError):
        await copying
    assert names_in(tmp_path) == {"data"}


async def test_a_backup_can_be_read_as_it_is(path: Path, tmp_path: Path) -> None:
    await backup(path, tmp_path / "copy.db")
    async with StoreReader.open(tmp_path / "copy.db") as reader:
        assert len(await reader.recent(200)) == 100
