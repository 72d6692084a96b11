"""Short questions in the loop's own thread: answered at once, or left to the patient way."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from reach_worker.clock import SystemClock
from reach_worker.store import SqliteStore, at_once
from reach_worker.store.at_once import AtOnce
from tests.store.sample import accepted, dispatched
from tests.store.trouble import damage_live, locked, move_away, recorded

ASK = "SELECT task_id FROM tasks ORDER BY task_id"


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    path = tmp_path / "reach.db"
    async with SqliteStore.open(path, clock=SystemClock()) as store:
        await recorded(store, accepted("t1"))
    return path


async def test_it_sees_what_others_have_written_a_moment_ago(path: Path) -> None:
    asked = AtOnce(path, SystemClock())
    assert await asked.rows(ASK, ()) == [("t1",)]
    async with SqliteStore.open(path, clock=SystemClock()) as store:
        await recorded(store, accepted("t2"))
        assert await asked.rows(ASK, ()) == [("t1",), ("t2",)]
        with locked(path):
            assert await asked.rows(ASK, ()) == [("t1",), ("t2",)]
    await asked.close()


async def test_after_an_answer_that_took_long_the_next_ones_are_left_to_others(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = AtOnce(path, SystemClock())
    assert await asked.rows(ASK, ())
    monkeypatch.setattr(at_once, "SLOW_S", -1.0)
    monkeypatch.setattr(at_once, "PAUSE_S", 1000.0)
    assert await asked.rows(ASK, ())
    assert await asked.rows(ASK, ()) is None
    await asked.close()
    asked = AtOnce(path, SystemClock())
    monkeypatch.setattr(at_once, "PAUSE_S", 0.0)
    assert await asked.rows(ASK, ())
    assert await asked.rows(ASK, ()), "when the pause is over"
    await asked.close()


@pytest.mark.parametrize("gone", ["never there", "moved away", "damaged", "another program's"])
async def test_where_there_is_no_store_of_ours_it_has_no_answer(path: Path, gone: str) -> None:
    asked = AtOnce(path, SystemClock())
    match gone:
        case "never there":
            asked = AtOnce(path.with_name("other.db"), SystemClock())
        case "moved away":
            move_away(path)
        case "damaged":
            damage_live(path)
        case "another program's":
            move_away(path)
            with closing(sqlite3.connect(path)) as other:
                other.execute("CREATE TABLE tasks (task_id)")
    assert await asked.rows("SELECT count(*), max(router) FROM tasks", ()) is None
    await asked.close()


async def test_a_file_that_is_replaced_is_opened_anew(path: Path) -> None:
    asked = AtOnce(path, SystemClock())
    assert await asked.rows(ASK, ()) == [("t1",)]
    move_away(path)
    async with SqliteStore.open(path, clock=SystemClock()) as store:
        await recorded(store, accepted("new"))
        assert await asked.rows(ASK, ()) == [("new",)]
    await asked.close()


async def test_the_store_answers_the_same_either_way(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with SqliteStore.open(path, clock=SystemClock()) as store:
        await recorded(store, accepted("t2"), dispatched("t2"))
        monkeypatch.setattr(at_once, "SLOW_S", -1.0)
        answers = [
            (await store.known_tasks(["t1", "t2", "t3"]), await store.known_dispatches(["d1"]))
            for _ in range(2)
        ]
        assert store.stats().failed_reads == 0
    assert answers[0] == answers[1]
    assert set(answers[0][0]) == {"t1", "t2"}
