"""What is asked finds its rows by an index, however many there are: no query reads a large table from end to end."""

import asyncio
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from reach_worker.clock import SystemClock
from reach_worker.core.duplicates import TaskState
from reach_worker.store import SqliteStore
from reach_worker.store.counts import _COUNTS, _NEW, COUNTS_AND_TIMES, LAST_OUTCOME
from reach_worker.store.history import _FIND, _FLOW, _IN_STATE, _MOVES, _PARTS, recent_query
from reach_worker.store.pruner import connect_to_prune
from reach_worker.store.pruning import CANDIDATES, KEEP_SINCE, REMOVE
from reach_worker.store.reader import _DISPATCHES, _OPEN, _TASKS, _WAITERS

QUERIES = {
    "known_tasks": _TASKS,
    "known_dispatches": _DISPATCHES,
    "open_dispatches": _OPEN,
    "waiters": _WAITERS,
    "track_record": COUNTS_AND_TIMES,
    "last outcome": LAST_OUTCOME,
    "new outcomes": _NEW,
    "counts": _COUNTS,
    "find": _FIND,
    "flow": _FLOW,
    "breaker_moves": _MOVES,
    **_PARTS,
    **{f"recent {state}": recent_query(state) for state in _IN_STATE},
}
PRUNING = {"candidates": CANDIDATES, "kept since": KEEP_SINCE, "remove": REMOVE}

LARGE = "t|d|o|e|n|new|old|tasks|decisions|dispatches|outcomes|ends|waiters|breaker_moves"

READ_WHOLE = re.compile(rf"SCAN (TABLE )?({LARGE})\b(?! .*USING INDEX tasks_)")
"""The indexes of tasks are read along, and only up to the limit, or hold the few that are open or failed."""


@pytest.fixture(scope="module")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    path = tmp_path_factory.mktemp("plans") / "reach.db"
    asyncio.run(make(path))
    with closing(sqlite3.connect(path)) as connection:
        yield connection


async def make(path: Path) -> None:
    async with SqliteStore.open(path, clock=SystemClock()):
        pass


@pytest.mark.parametrize("name", QUERIES)
def test_no_large_table_is_read_from_end_to_end(empty_store: sqlite3.Connection, name: str) -> None:
    sql = QUERIES[name]
    plan = [row[3] for row in empty_store.execute(f"EXPLAIN QUERY PLAN {sql}", values_for(sql))]

    assert plan
    assert [step for step in plan if READ_WHOLE.match(step)] == []


@pytest.mark.parametrize("name", PRUNING)
async def test_pruning_reads_only_what_is_old(tmp_path: Path, name: str) -> None:
    path = tmp_path / "reach.db"
    connection = await connect_to_prune(path)
    parameters = dict.fromkeys(re.findall(r":(\w+)", PRUNING[name]), 1)
    plan = await connection.execute_fetchall(f"EXPLAIN QUERY PLAN {PRUNING[name]}", parameters)
    await connection.close()

    assert [step for *_, step in plan if READ_WHOLE.match(step)] == []


def values_for(sql: str) -> list[int]:
    numbered = set(re.findall(r"\?(\d)", sql))
    return [1] * (len(numbered) or sql.count("?"))


def test_every_state_can_be_asked_for() -> None:
    assert set(_IN_STATE) == {None, *TaskState}
