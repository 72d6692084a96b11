"""Nothing that happens to the database ever stops ``record``, and nothing recorded is lost by it."""

import asyncio
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reach_worker.clock import SystemClock
from reach_worker.core.duplicates import TaskState
from reach_worker.core.outcome import OutcomeClass
from reach_worker.ports import Row
from reach_worker.store import SqliteStore, StoreReader
from reach_worker.store.writer import Limits
from tests.store.sample import accepted, dead, decided, dispatched, joined, seen, started, succeeded
from tests.store.trouble import count, full_disk, locked, recorded, spilled

LIMIT_S = 20.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "reach.db"


def opened(path: Path, *, wait_s: float = 0.2, memory_rows: int = 50_000) -> SqliteStore:
    return SqliteStore.open(path, clock=SystemClock(), wait_s=wait_s, memory_rows=memory_rows)


def make_empty(path: Path) -> None:
    path.touch()


async def test_a_locked_database_stops_nobody(path: Path) -> None:
    async with opened(path) as store:
        await recorded(store, accepted("t0"))
        with locked(path):
            assert not await store.record([accepted("t1")])
            assert not await store.record([accepted("t2"), seen()])
            away = store.stats()
            assert spilled(path) == 3, "a router that is killed now has lost nothing"
        await recorded(store, accepted("t3"))
        back = store.stats()

    assert (away.written, away.waiting) == (1, 3)
    assert (back.waiting, back.away, back.spilled, back.lost) == (0, False, 3, 0), "kept on disk meanwhile"
    assert count(path, "tasks") == 4
    assert count(path, "success") == 1


async def test_what_is_not_written_yet_is_known_all_the_same(path: Path) -> None:
    async with opened(path) as store:
        await recorded(store, accepted(), dispatched(), accepted("t2"), dispatched("t2", dispatch_id="d2"))
        with locked(path):
            await store.record([seen(OutcomeClass.FAILED), dispatched(dispatch_id="d3", attempt=2)])
            await store.record(
                [started("d3"), joined(), seen(dispatch_id="d2", task_id="t2"), succeeded("t2")]
            )
            tasks = await store.known_tasks(["t1", "t2"])
            dispatches = await store.known_dispatches(["d1", "d2", "d3"])
            assert await store.waiters(["t1"]) == {"t1": [joined()]}
            assert [one.dispatch_id for one in await store.open_dispatches("r1")] == ["d3"]
        await recorded(store, accepted("t9"))

        assert await store.known_tasks(["t1", "t2"]) == tasks
        assert await store.known_dispatches(["d1", "d2", "d3"]) == dispatches
    assert (tasks["t1"].dispatch_id, tasks["t1"].attempts_ended) == ("d3", 1)
    assert (tasks["t2"].state, tasks["t2"].answer) == (TaskState.SUCCEEDED, b"{}")
    assert [dispatches[id_].settled for id_ in ("d1", "d2", "d3")] == [True, True, False]
    assert dispatches["d3"].started


async def test_a_store_that_is_locked_at_the_start_opens_later(path: Path) -> None:
    make_empty(path)
    with ExitStack() as lock:
        lock.enter_context(locked(path))
        async with opened(path) as store:
            assert not await store.record([accepted("t1")])
            assert await store.known_tasks(["t1"])
            assert store.stats().away
            lock.close()
            await recorded(store, accepted("t2"))
            assert not store.stats().away

    assert count(path, "tasks") == 2


async def test_a_full_disk_stops_nobody(path: Path) -> None:
    async with opened(path) as store:
        await recorded(store, accepted("t0"))
        with full_disk(100_000):
            for number in range(1, 40):
                await store.record([decided(f"t{number}", decision_id="x" * 10_000)])
            away = store.stats()
        await recorded(store, accepted("t99"))

        assert away.away
        assert away.last_error is not None
        assert str(path) in away.last_error
        assert (store.stats().away, store.stats().waiting) == (False, 0)
    assert count(path, "decisions") == 39


@pytest.mark.parametrize("names", [["reach.db"], ["reach.db", "reach.db-wal", "reach.db-shm"]])
async def test_a_removed_file_is_made_anew(path: Path, names: list[str]) -> None:
    async with opened(path) as store:
        await recorded(store, accepted("t0"))
        for name in names:
            path.with_name(name).unlink()
        assert await store.known_tasks(["t0"]) == {}
        await recorded(store, accepted("t1"))

        assert set(await store.known_tasks(["t0", "t1"])) == {"t1"}
        assert store.stats().failed_reads > 0
    assert count(path, "tasks") == 1


async def test_a_file_removed_in_the_middle_of_a_transaction_is_made_anew(path: Path) -> None:
    async with opened(path, wait_s=1.0) as store:
        await recorded(store, accepted("t0"))
        with locked(path):
            assert not await store.record([accepted("t1")])  # the transaction is still waiting for the lock
            remove(path)
        await recorded(store, accepted("t2"))

        assert set(await store.known_tasks(["t0", "t1", "t2"])) == {"t1", "t2"}


def remove(path: Path) -> None:
    path.unlink()


def remove_log(path: Path) -> None:
    for name in ("reach.db-wal", "reach.db-shm"):
        path.with_name(name).unlink()


async def test_a_store_put_in_the_place_of_the_file_is_used(path: Path) -> None:
    other = path.with_name("other.db")
    async with opened(other) as store:
        await recorded(store, accepted("old"))
    async with opened(path) as store:
        await recorded(store, accepted("t0"))
        remove_log(path)
        other.replace(path)
        await recorded(store, accepted("t1"))

        assert set(await store.known_tasks(["old", "t0", "t1"])) == {"old", "t1"}


async def test_the_log_of_the_old_file_is_not_taken_for_the_new_ones(path: Path) -> None:
    other = path.with_name("other.db")
    async with opened(other) as store:
        await recorded(store, accepted("old"))
    async with opened(path) as store:
        await recorded(store, accepted("t0"))
        other.replace(path)
        assert not await store.record([accepted("t1")])
        assert "reach.db-wal belongs to the old file" in (store.stats().last_error or "")
        remove_log(path)
        await recorded(store, accepted("t2"))

        assert set(await store.known_tasks(["old", "t0", "t1", "t2"])) == {"old", "t1", "t2"}
    assert count(path, "tasks") == 3


def is_the_letter(path: Path) -> bool:
    return path.read_text() == "Dear reader, " * 100


async def test_something_else_in_the_place_of_the_file_is_not_touched(path: Path) -> None:
    letter = path.with_name("letter")
    letter.write_text("Dear reader, " * 100)
    async with opened(path) as store:
        await recorded(store, accepted("t0"))
        remove_log(path)
        letter.replace(path)
        assert not await store.record([accepted("t1")])
        assert set(await store.known_tasks(["t0", "t1"])) == {"t1"}
        assert "not an SQLite database" in (store.stats().last_error or "")

    assert is_the_letter(path)
    assert spilled(path) == 1


BAD_ROWS: list[Row] = [
    replace(accepted("bad"), caller=None),  # type: ignore[arg-type]
    replace(accepted("bad"), first_seen="noon"),  # type: ignore[arg-type]
    replace(accepted("bad"), life=2**70),
    replace(accepted("bad"), flow_id="\ud800"),
    replace(accepted("bad"), caller=object()),  # type: ignore[arg-type]
    replace(decided("bad"), decision={"why": "\ud800"}),
    replace(decided("bad"), decision=None),  # type: ignore[arg-type]
    replace(seen(), agent_id=None),  # type: ignore[arg-type]
    replace(dispatched("bad"), agent_id=None),  # type: ignore[arg-type]
    replace(dead("bad"), error=None),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("bad", BAD_ROWS, ids=range(len(BAD_ROWS)))
async def test_a_bad_row_takes_no_other_with_it(
    path: Path, bad: Row, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(path, wait_s=10) as store:
        assert await store.record([accepted("t0"), bad, accepted("t1"), seen(dispatch_id="d9"), bad])
        assert await store.record([accepted("t2")])

        assert set(await store.known_tasks(["t0", "bad", "t1", "t2"])) == {"t0", "t1", "t2"}
        assert (store.stats().refused, store.stats().written) == (2, 4)
        assert store.stats().waiting == 0
    assert "refuses" in caplog.text
    assert count(path, "success") == 1


async def test_an_oddity_inside_a_decision_is_written_as_text(path: Path) -> None:
    odd: dict[Any, Any] = {"at": Path("x"), 7: b"seven", "nan": float("nan"), "score": "high", "agent": 3}
    async with opened(path, wait_s=10) as store:
        assert await store.record([replace(decided(), decision=odd)])
    async with StoreReader.open(path) as reader:
        history = await reader.task("t1")

    assert history is not None
    assert history.decisions[0].decision == {
        "at": "x", "7": "c2V2ZW4=", "nan": None, "score": "high", "agent": 3
    }  # fmt: skip


async def test_a_record_that_nobody_waits_for_any_more_is_written(path: Path) -> None:
    async with opened(path, wait_s=60) as store:
        with locked(path), pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await store.record([accepted("t1")])
        await recorded(store, accepted("t2"))

        assert set(await store.known_tasks(["t1", "t2"])) == {"t1", "t2"}


async def test_what_is_recorded_together_is_written_in_few_transactions(path: Path) -> None:
    async with opened(path, wait_s=30) as store:
        async with asyncio.TaskGroup() as group:
            for number in range(300):
                group.create_task(
                    store.record([accepted(f"t{number}"), dispatched(f"t{number}", dispatch_id=f"d{number}")])
                )
        assert store.stats().written == 600


async def test_an_error_of_the_user_stays_the_users(path: Path) -> None:
    async def use_it_wrongly() -> None:
        async with opened(path) as store:
            await store.record([accepted()])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await use_it_wrongly()
    assert count(path, "tasks") == 1


async def test_leaving_writes_what_is_left(path: Path) -> None:
    async with opened(path, wait_s=0) as store:
        for number in range(3000):
            await store.record([accepted(f"t{number}")])

    assert count(path, "tasks") == 3000


async def test_leaving_leaves_one_file(path: Path) -> None:
    async with opened(path, wait_s=10) as store:
        assert await store.record([accepted()])
        assert await store.known_tasks(["t1"])

    assert [file.name for file in files_in(path.parent)] == ["reach.db"]


def files_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def test_without_patience_there_is_no_answer_and_no_error(path: Path) -> None:
    async with opened(path, wait_s=0) as store:
        with locked(path):
            assert not await store.record([accepted("t1")])
        assert set(await store.known_tasks(["t1"])) <= {"t1"}
        assert await store.known_tasks(["t2"]) == {}
        assert await store.known_dispatches(["d1"]) == {}
        assert store.stats().failed_reads >= 2
        assert "no answer within 0 s" in (store.stats().last_error or "")
        assert (await store.track_record()).tracks == {}

    assert count(path, "tasks") == 1


async def test_rows_that_nobody_waits_for_are_written_with_those_that_somebody_waits_for(path: Path) -> None:
    limits = Limits(wait_s=LIMIT_S, gather_s=10 * LIMIT_S)
    async with SqliteStore(path, limits, SystemClock()) as store, StoreReader.open(path) as reader:
        assert await store.record([accepted("first")], patient=True), "nothing was written a moment ago"
        async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
            patient = group.create_task(store.record([accepted("patient")], patient=True))
            while not store.stats().waiting:
                await asyncio.wait([patient], timeout=0.001)
            assert set(await store.known_tasks(["first", "patient"])) == {"first", "patient"}
            assert [task.task_id for task in await reader.recent(5)] == ["first"]
            assert await store.record([accepted("hurried")])
            assert await patient
        assert {task.task_id for task in await reader.recent(5)} == {"first", "patient", "hurried"}


async def test_a_full_batch_and_the_end_wait_for_nobody(path: Path) -> None:
    limits = Limits(wait_s=LIMIT_S, gather_s=10 * LIMIT_S, batch=3)
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
        async with SqliteStore(path, limits, SystemClock()) as store:
            assert await store.record([accepted("t0")], patient=True)
            assert await store.record([accepted(f"t{number}") for number in (1, 2, 3)], patient=True)
            last = group.create_task(store.record([accepted("t4")], patient=True))
            while not store.stats().waiting:
                await asyncio.wait([last], timeout=0.001)
        await last
    assert count(path, "tasks") == 5


async def test_what_many_wait_for_is_kept_once(path: Path) -> None:
    async with opened(path, wait_s=0.1) as store:
        await recorded(store, accepted("t0"))
        with locked(path):
            waiting = [store.record([accepted(f"t{number}")], patient=True) for number in range(1, 200)]
            assert not any(await asyncio.gather(*waiting))
            assert spilled(path) == 199
        await recorded(store, accepted("t200"))
    assert count(path, "tasks") == 201


async def test_rows_never_gather_for_longer_than_somebody_waits(path: Path) -> None:
    limits = Limits(wait_s=4.0, gather_s=1_000.0)
    async with SqliteStore(path, limits, SystemClock()) as store:
        assert await store.record([accepted("first")], patient=True)
        assert await store.record([accepted("second")], patient=True)
