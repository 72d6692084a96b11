"""What the store says of every life, with what lies in the spill file, without disturbing who writes."""

import asyncio
import fcntl
import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from reach_worker.clock import SystemClock
from reach_worker.core.duplicates import TaskState
from reach_worker.core.outcome import DeadLetterReason, OutcomeClass
from reach_worker.errors import StoreUnavailable
from reach_worker.ports import Decided, Row, Standing
from reach_worker.store import SqliteStore
from reach_worker.store.conservation import DEAD, DOUBLED, KNOWN, OPEN, Conservation
from reach_worker.store.row_lines import to_line
from tests.store.sample import (
    NOON,
    SECOND,
    accepted,
    dead,
    decided,
    dispatched,
    manifest,
    parked,
    seen,
    succeeded,
)

UNKNOWN = DeadLetterReason.OUTCOME_UNKNOWN
FAILED = OutcomeClass.FAILED


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "reach.db"


async def record(path: Path, *rows: Row) -> None:
    async with SqliteStore.open(path, clock=SystemClock()) as store:
        assert await store.record(rows)


def spill(path: Path, *rows: Row, torn: bytes = b"") -> None:
    file = path.with_name(path.name + ".spill")
    file.write_bytes(b"".join(map(to_line, rows)) + torn)


def ended(task_id: str) -> Sequence[Row]:
    return [accepted(task_id), dispatched(task_id, dispatch_id=f"d-{task_id}"), succeeded(task_id)]


async def test_every_life_is_counted_in_its_state(path: Path) -> None:
    rows = [*ended("t1"), accepted("t2"), accepted("t3"), dead("t3"), accepted("t3", 1), succeeded("t3", 1)]
    await record(path, *rows, accepted("old", at=NOON - 10 * SECOND), succeeded("old", at=NOON))

    async with Conservation(path) as store:
        assert await store.states(0) == {"succeeded": 3, "dead_letter": 1, "open": 1}
        assert await store.states(NOON) == {"succeeded": 2, "dead_letter": 1, "open": 1}


async def test_ends_that_are_one_and_ends_that_are_two(path: Path) -> None:
    await record(
        path,
        *(accepted("unknown"), dead("unknown", reason=UNKNOWN), succeeded("unknown", at=NOON + 1)),
        *(accepted("twice"), dead("twice"), succeeded("twice", at=NOON + 1)),
        *(accepted("same"), succeeded("same"), succeeded("same", at=NOON + 1)),
        *(
            accepted("thrice"),
            dead("thrice", reason=UNKNOWN),
            succeeded("thrice"),
            succeeded("thrice", at=NOON + 2),
        ),
        *(accepted("once"), replace(succeeded("once"), dispatch_id="d1")),
        *(replace(succeeded("once", at=NOON + at), dispatch_id="d1") for at in (1, 2)),
        *(
            accepted("two outcomes"),
            replace(succeeded("two outcomes"), dispatch_id="d2"),
            replace(succeeded("two outcomes", at=NOON + 1), dispatch_id="d3"),
        ),
        *ended("t1"),
    )
    spill(
        path,
        replace(succeeded("once", at=NOON + 3), dispatch_id="d1"),
        replace(succeeded("two outcomes", at=NOON + 3), dispatch_id="d3"),
    )

    async with Conservation(path) as store:
        doubled = await store.doubled(0)
    assert sorted(one.task_id for one in doubled) == ["same", "thrice", "twice", "two outcomes"]
    assert next(len(one.ends) for one in doubled if one.task_id == "two outcomes") == 2
    twice = next(one for one in doubled if one.task_id == "twice")
    assert {end["state"] for end in twice.ends} == {"dead_letter", "succeeded"}


async def test_open_lives_say_what_is_out(path: Path) -> None:
    await record(
        path,
        *ended("t1"),
        *(accepted("out"), dispatched("out", dispatch_id="d1", at=NOON + 1)),
        *(accepted("back"), dispatched("back", dispatch_id="d2"), seen(FAILED, "d2", "back", at=NOON + 5)),
        *(accepted("lane"), decided("lane", at=NOON + 7)),
        *(accepted("parked"), parked("parked", at=NOON + 1)),
        seen(FAILED, "d9", "late", standing=Standing.STALE),
        *(accepted("anew"), accepted("anew", 1), succeeded("anew", 1)),
    )

    async with Conservation(path) as store:
        found = {life.task_id: life for life in await store.open_lives()}
    assert found.keys() == {"out", "back", "lane", "parked", "late", "anew"}
    out = found["out"]
    assert (out.dispatch_id, out.agent_id, out.dispatched_at, out.router) == ("d1", "grep", NOON + 1, "r1")
    assert (found["back"].dispatch_id, found["back"].traced_at) == (None, NOON + 5)
    assert found["lane"].traced_at == NOON + 7
    assert [name for name, life in found.items() if life.parked] == ["parked"]
    assert [name for name, life in found.items() if life.only_late] == ["late"]
    assert [name for name, life in found.items() if life.began_anew] == ["anew"]


def of_capability(row: Decided, capability: str) -> Decided:
    return replace(row, decision={**row.decision, "capability": capability})


async def test_what_was_handed_on_waits_for_the_capability_that_was_decided_on_last(path: Path) -> None:
    first = of_capability(decided("t1", at=NOON), "log.query")
    then = of_capability(decided("t1", decision_id="x2", at=NOON + 1), "log.sum")
    await record(path, accepted("t1"), first, then, accepted("t2"), of_capability(decided("t2"), "log.query"))
    spill(path, of_capability(decided("t2", decision_id="x3", at=NOON + 2), "log.count"))

    async with Conservation(path) as store:
        found = {life.task_id: life.capability for life in await store.open_lives()}
    assert found == {"t1": "log.sum", "t2": "log.count"}


async def test_dead_letters_after_which_nothing_began(path: Path) -> None:
    await record(
        path, *ended("t1"), accepted("d1"), dead("d1"), accepted("r1"), dead("r1"), accepted("r1", 1)
    )

    async with Conservation(path) as store:
        assert [(one.task_id, one.life, one.reason) async for one in store.dead(0)] == [
            ("d1", 0, "attempts_exhausted")
        ]
        assert [one async for one in store.dead(NOON + 1)] == []
        assert await store.known({"r1", "d1", "nobody"}) == {
            ("r1", 0): TaskState.DEAD_LETTER,
            ("r1", 1): TaskState.UNDER_WAY,
            ("d1", 0): TaskState.DEAD_LETTER,
        }


async def test_what_is_spilled_counts_as_if_it_were_written(path: Path) -> None:
    await record(
        path,
        *ended("t1"),
        accepted("t2"),
        dispatched("t2", dispatch_id="d2"),
        decided("t2"),
        accepted("t3"),
        dead("t3"),
    )
    spill(
        path,
        *(seen(OutcomeClass.SUCCEEDED, "d2", "t2"), succeeded("t2", at=NOON + 3)),
        *(succeeded("t3", at=NOON + 4), accepted("t4"), manifest(), decided("t4")),
        torn=b'{"row":"Accepted","of":{"task',
    )

    async with Conservation(path) as store:
        assert await store.states(0) == {"succeeded": 2, "dead_letter": 1, "open": 1}
        assert [life.task_id for life in await store.open_lives()] == ["t4"]
        assert [one.task_id for one in await store.doubled(0)] == ["t3"]
        assert [one.task_id async for one in store.dead(0)] == ["t3"]
        assert set(await store.known({"t1", "t2", "t4"})) == {("t1", 0), ("t2", 0), ("t4", 0)}
        assert (store.spilled, store.unreadable) == (6, 0)
    assert path.with_name("reach.db.spill").stat().st_size > 0


async def test_lines_that_are_no_rows_are_counted(path: Path) -> None:
    await record(path, *ended("t1"))
    spill(path, accepted("t2"), torn=b"what is this\n")

    async with Conservation(path) as store:
        assert (store.spilled, store.unreadable) == (1, 1)


async def test_looking_waits_for_no_lock_and_keeps_no_writer_out(path: Path) -> None:
    await record(path, *ended("t1"))
    spill(path, accepted("t2"))

    with path.with_name("reach.db.spill").open("r+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        async with asyncio.timeout(10), Conservation(path) as store:
            assert store.spilled == 1
            await record(path, accepted("t9"))
            assert {life.task_id for life in await store.open_lives()} == {"t2"}, "it is of one moment"
    async with Conservation(path) as store:
        assert "t9" in {life.task_id for life in await store.open_lives()}


async def test_a_store_that_is_not_there_is_said(path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="there is no store yet"):
        async with Conservation(path):
            pass


@pytest.mark.parametrize("sql", [OPEN, DEAD, KNOWN, DOUBLED])
async def test_what_is_open_or_odd_is_found_by_an_index(path: Path, sql: str) -> None:
    """Only counting goes through all tasks; and ends are counted in an index, without their answers."""
    await record(path, *ended("t1"))
    with closing(sqlite3.connect(path)) as database:
        plan = [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {sql}", [1] * sql.count("?"))]

    whole = [
        step for step in plan if re.match(r"SCAN (t|o|c|e|d|n|ends)\b(?! .*USING (COVERING )?INDEX)", step)
    ]
    assert [step for step in whole if step != "SCAN d"] == [], plan
