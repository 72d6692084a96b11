"""Whatever was recorded: pruning takes the old lives, whole, and leaves everything else as it was known before."""

import asyncio
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from reach_worker.clock import SystemClock
from reach_worker.ports import Row
from reach_worker.store import SqliteStore
from reach_worker.store.pruner import Pruner
from reach_worker.store.survey import beyond
from tests.store.sample import NOON, SECOND
from tests.store.test_convergence import DISPATCHES, TASKS, stories

HANGS_ON = {
    "decisions": "task IN (SELECT id FROM tasks)",
    "dispatches": "task IN (SELECT id FROM tasks)",
    "outcomes": "task IN (SELECT id FROM tasks)",
    "ends": "task IN (SELECT id FROM tasks)",
    "starts": "dispatch_id IN (SELECT dispatch_id FROM dispatches)",
    "unsent": "dispatch_id IN (SELECT dispatch_id FROM dispatches)",
    "waiters": "task_id IN (SELECT task_id FROM tasks)",
}


class Later(SystemClock):
    """The machine's clock, ahead of all that is recorded."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at

    def utc_us(self) -> int:
        return self.at


def ask(path: Path, sql: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


def too_old(path: Path, before: int, now: int) -> set[int]:
    """The lives that have to go, told from what the tables hold: of each task one after the other, first life first."""
    found = ask(
        path,
        "SELECT id, task_id, first_seen, ended_at, accepted, dispatch_id, parked_at,"
        " (SELECT max(remember_until) FROM ends WHERE task = t.id),"
        " EXISTS (SELECT 1 FROM tasks AS n WHERE n.task_id = t.task_id AND n.life > t.life)"
        " FROM tasks AS t ORDER BY life",
    )
    gone: set[int] = set()
    held: set[str] = set()
    for id_, task_id, first_seen, ended_at, accepted, dispatch_id, parked_at, until, superseded in found:
        if ended_at is None:
            over = superseded or (not accepted and dispatch_id is None and not parked_at)
        else:
            over = ended_at < before and until <= now
        if over and first_seen < before and task_id not in held:
            gone.add(id_)
        elif ended_at is None:
            held.add(task_id)
    return gone


async def check(path: Path, story: list[Row], before: int, now: int) -> None:
    async with SqliteStore.open(path, clock=SystemClock(), wait_s=60) as store:
        assert await store.record(story)
        tasks, record = await store.known_tasks(TASKS), await store.track_record()
        dispatches = await store.known_dispatches(DISPATCHES)
        old = too_old(path, before, now)
        lives = {
            id_: (task_id, life) for id_, task_id, life in ask(path, "SELECT id, task_id, life FROM tasks")
        }
        would_go = await beyond(path, before, now)

        pruner = Pruner(path, Later(now), 1.0)
        gone = await pruner.prune(before)
        assert all(rows <= gone[table] for table, rows in would_go.items())
        while any((await pruner.prune(before)).values()):
            pass  # a life that waited for an earlier one

        kept = {id_: life for id_, life in lives.items() if id_ not in old}
        assert {id_ for (id_,) in ask(path, "SELECT id FROM tasks")} == kept.keys()
        for table, hangs in HANGS_ON.items():
            late = f"at < {before} AND" if table in ("starts", "waiters") else ""
            assert ask(path, f"SELECT * FROM {table} WHERE {late} NOT ({hangs})") == []  # noqa: S608 - ours
        after = await store.known_tasks(TASKS)
        assert {task_id: task for task_id, task in after.items() if task.life == tasks[task_id].life} == {
            task_id: task for task_id, task in tasks.items() if (task_id, task.life) in kept.values()
        }
        assert await store.known_dispatches(DISPATCHES) == {
            id_: one for id_, one in dispatches.items() if (one.task_id, one.life) in kept.values()
        }
        assert (await store.track_record()).tracks.keys() == record.tracks.keys()


@settings(max_examples=40, deadline=None)
@given(
    story=stories(),
    before=st.integers(0, 60).map(lambda us: NOON + us),
    now=st.integers(0, 60).map(lambda us: NOON + 60 * SECOND + us),
)
def test_pruning_takes_the_old_lives_whole_and_nothing_else(story: list[Row], before: int, now: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(check(Path(folder) / "reach.db", story, before, now))
