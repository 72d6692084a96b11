"""Short questions in the loop's own thread: answered at once, or left to the patient way."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from reach_worker.clock import SystemClock
from reach_worker.store import SqliteStore
from reach_worker.store.at_once import AtOnce, Haste
from reach_worker.store.reader import Reader
from reach_worker.store.stats import StoreStats
from reach_worker.store.unwritten import Unwritten
from reach_worker.testing import SteppedClock
from tests.store.sample import accepted, dispatched
from tests.store.trouble import damage_live, locked, move_away, recorded

ASK = "SELECT task_id FROM tasks ORDER BY task_id"
EVERYTHING_IS_SLOW = Haste(slow_s=-1.0)


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    path = tmp_path / "reach.db"
    await made(path, "t1")
    return path


async def made(path: Path, task_id: str) -> None:
    async with SqliteStore.open(path, clock=SystemClock()) as store:
        await recorded(store, accepted(task_id))


async def test_it_sees_what_others_have_written_a_moment_ago(path: Path) -> None:
    asked = AtOnce(path, SystemClock(), Haste())
    assert await asked.rows(ASK, ()) == [("t1",)]
    async with SqliteStore.open(path, clock=SystemClock()) as store:
        await recorded(store, accepted("t2"))
        assert await asked.rows(ASK, ()) == [("t1",), ("t2",)]
        with locked(path):
            assert await asked.rows(ASK, ()) == [("t1",), ("t2",)]
    await asked.close()


async def test_after_an_answer_that_took_long_the_next_ones_are_left_to_others(path: Path) -> None:
    clock = SteppedClock()
    asked = AtOnce(path, clock, EVERYTHING_IS_SLOW)
    assert await asked.rows(ASK, ())
    assert await asked.rows(ASK, ()) is None
    clock.advance(EVERYTHING_IS_SLOW.pause_s)
    assert await asked.rows(ASK, ())
    await asked.close()


@pytest.mark.parametrize("gone", ["never there", "moved away", "damaged", "another program's"])
async def test_where_there_is_no_store_of_ours_it_has_no_answer(path: Path, gone: str) -> None:
    match gone:
        case "never there":
            path = path.with_name("other.db")
        case "moved away":
            move_away(path)
        case "damaged":
            damage_live(path)
        case "another program's":
            move_away(path)
            with closing(sqlite3.connect(path)) as other:
                other.execute("CREATE TABLE tasks (task_id)")
    asked = AtOnce(path, SystemClock(), Haste())
    assert await asked.rows("SELECT count(*), max(router) FROM tasks", ()) is None
    await asked.close()


async def test_a_file_that_is_replaced_is_opened_anew(path: Path) -> None:
    asked = AtOnce(path, SystemClock(), Haste())
    assert await asked.rows(ASK, ()) == [("t1",)]
    move_away(path)
    async with SqliteStore.open(path, clock=SystemClock()) as store:
        await recorded(store, accepted("new"))
        assert await asked.rows(ASK, ()) == [("new",)]
    await asked.close()


async def test_the_log_of_the_old_file_is_not_read_as_the_new_ones(path: Path) -> None:
    other, clock = path.with_name("other.db"), SteppedClock()
    await made(other, "old")
    async with SqliteStore.open(path, clock=SystemClock()) as store:
        await recorded(store, accepted("t2"))
        reader = Reader(path, 1.0, Unwritten(), StoreStats(), clock)
        for _ in range(3):
            assert set(await reader.known_tasks(["t1", "t2", "old"])) == {"t1", "t2"}
            clock.advance(Haste().pause_s)
        other.replace(path)
        assert set(await reader.known_tasks(["t1", "t2", "old"])) == set()
        await reader.close()


async def test_many_may_ask_at_the_same_time_also_when_what_they_ask_fails(path: Path) -> None:
    asked = AtOnce(path, SystemClock(), Haste(pause_s=0.0, share=0.0))

    async def ask(sql: str, *answers: object) -> None:
        for _ in range(200):
            assert await asked.rows(sql, ()) in answers
            await SystemClock().sleep(0)

    async with asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(ask(ASK, None, [("t1",)]))
            group.create_task(ask("SELECT nonsense", None))
    await asked.close()


async def test_the_store_answers_the_same_either_way(path: Path) -> None:
    clock = SteppedClock()
    async with SqliteStore.open(path, clock=SystemClock()) as store:
        await recorded(store, accepted("t2"), dispatched("t2"))
        answers = []
        for wait_s in (20.0, 0.0):  # with no time to open the file it is left to the patient way
            reader = Reader(path, wait_s, Unwritten(), StoreStats(), clock)
            reader._wait_s = 20.0  # noqa: SLF001 - which has time
            asked = ["t1", "t2", "t3"]
            answers.append((await reader.known_tasks(asked), await reader.known_dispatches(["d1"])))
            await reader.close()
    assert answers[0] == answers[1]
    assert set(answers[0][0]) == {"t1", "t2"}
