"""A store that is damaged, write-protected or long away: tasks go on, nothing is forgotten, and it comes back."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from random import Random  # noqa: TID251 - a seeded one

import pytest

from reach_worker.clock import SystemClock
from reach_worker.errors import StoreUnavailable
from reach_worker.ports import Row
from reach_worker.store import SqliteStore, StoreReader
from reach_worker.store.writer import Limits
from tests.store.sample import accepted, decided, dispatched, joined, seen, started, succeeded
from tests.store.trouble import (
    LIMIT_S,
    count,
    damage,
    damage_at_random,
    damage_live,
    full_disk,
    locked,
    move_away,
    recorded,
    spilled,
)
from tests.store.unprivileged import unprivileged


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "reach.db"


def opened(path: Path, *, memory_rows: int = 50_000) -> SqliteStore:
    limits = Limits(wait_s=0.2, memory_rows=memory_rows, busy_s=0.01)
    return SqliteStore(path, limits, SystemClock())


async def until_said(caplog: pytest.LogCaptureFixture, words: str) -> None:
    """Until the log says so; the writer tries again and again meanwhile."""
    async with asyncio.timeout(LIMIT_S):
        while words not in caplog.text:
            await SystemClock().sleep(0.01)


async def until_back(store: SqliteStore, path: Path) -> None:
    """Until all that was spilled is in the database; the writer brings it there by itself."""
    async with asyncio.timeout(LIMIT_S):
        while spilled(path) or store.stats().waiting or store.stats().recovered < store.stats().spilled:
            await SystemClock().sleep(0.01)


async def test_a_lock_that_outlasts_every_wait_only_delays_the_rows(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(path, memory_rows=10) as store:
        await recorded(store, accepted("t0"))
        with locked(path):
            for number in range(1, 31):
                assert not await store.record([accepted(f"t{number}")])
            await until_said(caplog, "the store is still away")
            assert store.stats().spilled == 30, "also what waits in memory: the process may be killed"
        await until_back(store, path)

    assert count(path, "tasks") == 31
    assert "the store is back after" in caplog.text
    assert spilled(path) == 0


async def test_a_store_damaged_while_it_is_used_is_told_and_its_rows_go_into_the_next_one(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(path, memory_rows=10) as store:
        await recorded(store, accepted("t0"))
        await asyncio.to_thread(damage_live, path)
        for number in range(1, 41):
            assert not await store.record([accepted(f"t{number}")])
        assert set(await store.known_tasks(["t0", "t1"])) == {"t1"}
        away = store.stats()
        await asyncio.to_thread(move_away, path)
        await until_back(store, path)
        back = store.stats()

    assert (away.away, away.spilled, away.lost) == (True, 40, 0)
    assert "malformed; it is damaged: move it away" in (away.last_error or "")
    assert (back.away, back.waiting, back.lost) == (False, 0, 0)
    assert count(path, "tasks") == 40
    assert "the store is away, rows are kept; tasks go on" in caplog.text
    assert spilled(path) == 0


async def test_a_damaged_store_that_stays_keeps_its_rows_for_the_next_start(path: Path) -> None:
    async with opened(path) as store:
        await recorded(store, accepted("t0"))
        await asyncio.to_thread(damage_live, path)
        assert not await store.record([accepted("t1"), dispatched("t1")])
    assert spilled(path) == 2
    await asyncio.to_thread(move_away, path)
    async with opened(path) as store:
        await recorded(store, accepted("t2"))
        async with asyncio.timeout(LIMIT_S):
            while store.stats().recovered < 2:
                await store.record([accepted("t2")])

    assert count(path, "tasks") == 2
    assert spilled(path) == 0


async def test_a_store_damaged_at_the_start_stops_nobody(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(path) as store:
        await recorded(store, accepted("t0"))
    damage(path, 100)
    async with opened(path) as store:
        assert "move it away" in caplog.text
        assert not await store.record([accepted("t1")])
        assert set(await store.known_tasks(["t0", "t1"])) == {"t1"}
        assert await store.manifests() == []
        assert (await store.track_record()).tracks == {}
        await asyncio.to_thread(move_away, path)
        await recorded(store, accepted("t2"))

    assert count(path, "tasks") == 2


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["noise", "zeros", "swap", "bytes", "end"])
async def test_whatever_is_damaged_nobody_is_stopped_and_no_row_is_lost(
    path: Path, kind: str, seed: int
) -> None:
    async with opened(path) as store:
        for number in range(150):
            await recorded(store, *story(f"old{number}"))
    damage_at_random(path, kind, Random(seed))
    new = [f"new{number}" for number in range(5)]
    async with opened(path) as store:
        await store.track_record()
        await store.open_dispatches("r1")
        for number, task_id in enumerate(new):
            await store.record(story(task_id))
            await store.known_tasks([task_id, f"old{number * 17}"])
            await store.known_dispatches([f"d-old{number * 11}"])
        in_the_old = store.stats().written
        await asyncio.to_thread(move_away, path)
        await recorded(store, *story("after"))
        found = await store.known_tasks([*new, "after"])
        stats = store.stats()

    assert (stats.away, stats.waiting, stats.lost, stats.refused) == (False, 0, 0, 0)
    assert len(found) == 1 + len(new) - in_the_old // len(story("after"))


@pytest.mark.parametrize(
    "damaging",
    [
        "UPDATE ends SET reason = 'nonsense' WHERE task = 1",
        "UPDATE ends SET state = 'nonsense' WHERE task = 1; UPDATE tasks SET ended = 'nonsense' WHERE id = 1",
        "UPDATE outcomes SET outcome = 'nonsense' WHERE task = 1",
        "UPDATE decisions SET detail = '7' WHERE task = 1",
    ],
)
async def test_a_row_that_makes_no_sense_hides_no_other_and_is_told(path: Path, damaging: str) -> None:
    async with opened(path) as store:
        await recorded(store, *story("bad"))
        await recorded(store, *story("good"))
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(damaging)
    async with opened(path) as store:
        assert "good" in await store.known_tasks(["bad", "good"])
        assert (await store.track_record()).tracks
        await recorded(store, *story("new"))
    async with StoreReader.open(path) as reader:
        with pytest.raises(StoreUnavailable, match=r"a row makes no sense .*put a backup in its place"):
            await reader.task("bad")
        assert await reader.task("good") is not None


async def test_damage_whose_name_cannot_be_read_stops_nobody_either(path: Path) -> None:
    async with opened(path) as store:
        await recorded(store, *story("old"))
    content = await asyncio.to_thread(path.read_bytes)
    assert content.count(b"CREATE TABLE tasks (") == 1
    await asyncio.to_thread(
        path.write_bytes, content.replace(b"CREATE TABLE tasks (", b"CREATE T\xeeBLE tasks (")
    )
    async with opened(path) as store:
        assert not await store.record(story("new"))
        assert set(await store.known_tasks(["old", "new"])) == {"new"}
        assert "put a backup in its place" in (store.stats().last_error or "")
    assert spilled(path) == len(story("new"))
    with pytest.raises(StoreUnavailable, match="put a backup in its place"):
        await StoreReader.open(path).__aenter__()


async def test_a_store_that_does_not_find_the_task_it_just_wrote_costs_no_rows(path: Path) -> None:
    """As one with a damaged index does not; here it forgets each task at once."""
    async with opened(path) as store:
        await recorded(store, accepted("t1"))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            "CREATE TRIGGER t AFTER INSERT ON tasks BEGIN DELETE FROM tasks WHERE id = NEW.id; END"
        )
    async with opened(path) as store:
        assert not await store.record([decided("t2")])
        assert (store.stats().refused, store.stats().waiting) == (0, 1)
        assert "an index of tasks is damaged" in (store.stats().last_error or "")
    assert spilled(path) == 1


def story(task_id: str) -> list[Row]:
    id_ = f"d-{task_id}"
    coming: list[Row] = [
        accepted(task_id),
        decided(task_id),
        dispatched(task_id, dispatch_id=id_),
        joined(task_id),
    ]
    return [
        *coming,
        started(id_),
        seen(dispatch_id=id_, task_id=task_id, duration_ms=1.0),
        succeeded(task_id),
    ]


async def test_a_backup_put_in_the_place_of_a_damaged_store_is_used(path: Path) -> None:
    backup = path.with_name("backup.db")
    async with opened(backup) as store:
        await recorded(store, accepted("old"))
    async with opened(path) as store:
        await recorded(store, accepted("t0"))
        await asyncio.to_thread(damage_live, path)
        assert not await store.record([accepted("t1")])
        await asyncio.to_thread(move_away, path)
        backup.rename(path)
        await recorded(store, accepted("t2"))
        assert set(await store.known_tasks(["old", "t0", "t1", "t2"])) == {"old", "t1", "t2"}


async def test_a_disk_that_is_full_at_the_start_stops_nobody(path: Path) -> None:
    with ExitStack() as full:
        full.enter_context(full_disk(8192))
        async with opened(path) as store:
            assert not await store.record([accepted("t1")])
            assert store.stats().away
            full.close()
            await recorded(store, accepted("t2"))

    assert count(path, "tasks") == 2


@pytest.fixture
def frozen_store() -> Iterator[Path]:
    """A file and a folder that may only be read, as on a disk that the system made read-only after a fault."""
    with unprivileged() as folder:
        path = folder / "reach.db"
        asyncio.run(_make(path))
        path.chmod(0o444)
        folder.chmod(0o555)
        yield path
        folder.chmod(0o777)


async def _make(path: Path) -> None:
    async with opened(path) as store:
        await recorded(store, accepted("t0"))


def thaw(path: Path) -> None:
    path.parent.chmod(0o777)
    path.chmod(0o644)


async def _use_frozen(path: Path) -> None:
    async with opened(path, memory_rows=2) as store:
        for number in range(1, 6):
            assert not await store.record([accepted(f"t{number}")])
        away = store.stats()
        thaw(path)
        await recorded(store, accepted("t6"))
        back = store.stats()

    assert away.away
    assert str(path) in (away.last_error or "")
    assert away.waiting + away.lost == 5
    assert away.lost == 3  # beyond what memory holds, and the spill file cannot be made either
    assert (back.away, back.waiting) == (False, 0)


def test_a_read_only_store_stops_nobody_and_what_is_lost_is_counted(
    frozen_store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asyncio.run(_use_frozen(frozen_store))

    assert count(frozen_store, "tasks") == 1 + 2 + 1
    assert "rows are lost, the spill file takes none" in caplog.text
    assert "3 lost" in caplog.text


def test_a_reader_of_a_store_in_a_read_only_folder_says_what_it_needs(frozen_store: Path) -> None:
    async def read() -> None:
        async with StoreReader.open(frozen_store):
            pass

    with pytest.raises(StoreUnavailable, match=r"see that this user may .*write"):
        asyncio.run(read())


async def test_the_last_word_in_the_log_says_what_waits_for_the_next_start(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(path) as store:
        await recorded(store, accepted("t0"))
        with locked(path):
            await store.record([accepted("t1")])
            await store.__aexit__(None, None, None)

    assert "the store took 1 rows; the spill file took 1 and gave back 0" in caplog.text
    assert "bytes wait in it for the next start; 0 refused, 0 lost" in caplog.text
