"""Several processes on one file, and one that is killed."""

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path

import pytest

from reach_worker.clock import SystemClock
from reach_worker.core.duplicates import TaskState
from reach_worker.store import SqliteStore, StoreReader
from tests.store.sample import NOON, accepted
from tests.store.trouble import count, recorded

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.system


@contextmanager
def writing(path: Path, prefix: str, limit: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.store.writing_process", str(path), prefix, str(limit)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_two_processes_share_a_new_store(tmp_path: Path) -> None:
    path = tmp_path / "reach.db"
    with writing(path, "a", 400) as one, writing(path, "b", 400) as other:
        said = {*one.communicate()[0].split(), *other.communicate()[0].split()}

    assert (one.returncode, other.returncode) == (0, 0)
    assert len(said) == 800
    assert [count(path, table) for table in ("tasks", "decisions", "dispatches", "outcomes", "ends")] == [
        800
    ] * 5
    # All at one moment, so nothing has decayed: what two processes counted adds up exactly.
    with closing(sqlite3.connect(path)) as connection:
        (counts,) = connection.execute("SELECT slow_good, slow_tries, fast_tries FROM success").fetchall()
    assert counts == (800.0, 800.0, 800.0)


def test_what_was_committed_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "reach.db"
    with writing(path, "a", 0) as process:
        assert process.stdout is not None
        said = [line.strip() for line in islice(process.stdout, 100)]
        process.kill()
        said += process.stdout.read().split()

    asyncio.run(check_after_kill(path, said))


async def check_after_kill(path: Path, said: list[str]) -> None:
    async with StoreReader.open(path) as reader:  # before any writer has mended the file
        newest = await reader.task(said[-1])
        counts = await reader.counts()
    assert newest is not None
    assert newest.task.state is TaskState.SUCCEEDED
    assert counts.doubled_ends == 0

    async with SqliteStore.open(path, clock=SystemClock(), wait_s=10) as store:
        assert await store.record([accepted("after")])
        known = await store.known_tasks(said)
        record = await store.track_record()
    assert {task_id for task_id, task in known.items() if task.state is TaskState.SUCCEEDED} == set(said)
    check_file(path, record.tracks["grep", "log.query"].slow.tries)


def check_file(path: Path, tries: float) -> None:
    """The file is whole, and what was recorded together is there together."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        halves = connection.execute(
            "SELECT count(*) FROM tasks AS t WHERE accepted AND task_id <> 'after'"
            " AND NOT EXISTS (SELECT 1 FROM dispatches AS d WHERE d.task = t.id)"
        )
        assert halves.fetchone() == (0,)
    assert count(path, "outcomes") == count(path, "ends") == tries


async def test_history_is_read_while_a_process_writes(tmp_path: Path) -> None:
    path = tmp_path / "reach.db"
    with writing(path, "a", 0) as process:
        assert process.stdout is not None
        first = process.stdout.readline().strip()
        async with StoreReader.open(path) as reader:
            counts = []
            for _ in range(5):
                said = process.stdout.readline().strip()
                assert await reader.task(said) is not None
                counts.append((await reader.counts()).tasks[TaskState.SUCCEEDED])
            assert await reader.recent(3)
            assert await reader.agents(NOON)
            assert await reader.task(first) is not None

    assert counts == sorted(counts)
    assert counts[0] >= 1


async def test_two_stores_in_one_process_see_each_other(tmp_path: Path) -> None:
    path = tmp_path / "reach.db"
    async with (
        SqliteStore.open(path, clock=SystemClock()) as one,
        SqliteStore.open(path, clock=SystemClock()) as other,
    ):
        await recorded(one, accepted("t1"))
        await recorded(other, accepted("t2"))

        assert (
            set(await one.known_tasks(["t1", "t2"]))
            == set(await other.known_tasks(["t1", "t2"]))
            == {"t1", "t2"}
        )
