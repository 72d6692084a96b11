"""Rows that are written together leave the same as the same rows written one by one."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from reach_worker.clock import SystemClock
from reach_worker.core.duplicates import TaskState
from reach_worker.core.outcome import DeadLetterReason, OutcomeClass
from reach_worker.core.success import TrackRecord
from reach_worker.ports import Claimed, Row
from reach_worker.store import SqliteStore, StoreReader
from reach_worker.store.records import TaskHistory
from reach_worker.store.statement import TOGETHER
from tests.store.sample import NOON, accepted, dead, decided, dispatched, seen, succeeded

TASKS = [f"t{number}" for number in range(2 * TOGETHER + 3)]


def story() -> Iterator[Row]:
    """Two lives of many tasks, some of them without a beginning; each end is told twice, by two routers."""
    for number, task_id in enumerate(TASKS):
        for life in (0, 1):
            dispatch_id = f"d-{task_id}-{life}"
            if number % 5:
                yield Claimed(task_id, life, "r1", NOON)
                yield accepted(task_id, life, at=NOON + number)
            yield decided(task_id, life, f"x-{task_id}-{life}")
            yield dispatched(task_id, life, dispatch_id, at=NOON + number)
            yield dispatched(task_id, life, f"{dispatch_id}-2", attempt=number % 3, at=NOON + 100)
            yield from settled(task_id, life, dispatch_id, number)


def settled(task_id: str, life: int, dispatch_id: str, number: int) -> Iterator[Row]:
    outcome = OutcomeClass.FAILED if number % 4 == 1 else OutcomeClass.SUCCEEDED
    of_both = [
        seen(outcome, dispatch_id, task_id, life, agent_id=f"a{number % 2}", at=NOON + number + later)
        for later in (5, 6)
    ]
    yield from of_both if number % 3 else of_both[:1]
    unknown = dead(task_id, life, reason=DeadLetterReason.OUTCOME_UNKNOWN, at=NOON + number)
    yield replace(unknown, dispatch_id=dispatch_id)
    for later in (7, 8):
        end = succeeded(task_id, life, at=NOON + number + later)
        yield replace(end, dispatch_id="" if number % 7 == 0 else dispatch_id)


async def written(
    path: Path, batches: Sequence[Sequence[Row]]
) -> tuple[list[TaskHistory | None], TrackRecord]:
    async with SqliteStore.open(path, clock=SystemClock(), wait_s=60) as store:
        for rows in batches:
            assert await store.record(rows)
        record = await store.track_record()
    async with StoreReader.open(path) as reader:
        return [await reader.task(task_id) for task_id in TASKS], record


async def test_together_and_one_by_one_the_same_is_written(tmp_path: Path) -> None:
    rows = list(story())
    alone = await written(tmp_path / "alone.db", [[row] for row in rows])

    assert await written(tmp_path / "together.db", [rows]) == alone
    assert await written(tmp_path / "again.db", [rows, rows]) == alone
    histories, record = alone
    assert all(history is not None and len(history.lives) == 2 for history in histories)
    assert set(record.tracks) == {("a0", "log.query"), ("a1", "log.query")}
    ends = [Counter(end.state for end in history.ends) for history in histories if history is not None]
    assert ends[1] == {TaskState.DEAD_LETTER: 2, TaskState.SUCCEEDED: 2}
    assert ends[7] == {TaskState.DEAD_LETTER: 2, TaskState.SUCCEEDED: 4}  # by no outcome, so each counts


def before(task_id: str) -> Iterator[list[Row]]:
    """All that may be known of a task that is accepted and sent now."""
    was = accepted(task_id, flow_id="old")
    earlier = dispatched(task_id, dispatch_id=f"d-{task_id}-old", at=NOON - 1)
    later = dispatched(task_id, dispatch_id=f"d-{task_id}-old", attempt=2)
    yield []
    yield [decided(task_id)]
    yield [was]
    yield [was, earlier]
    yield [was, later]
    yield [earlier, accepted(task_id, life=1)]
    yield [later]
    yield [was, succeeded(task_id)]
    yield [was, dispatched(task_id, dispatch_id=f"d-{task_id}-now")]


async def test_accepted_and_sent_together_is_accepted_and_then_sent(tmp_path: Path) -> None:
    known = [row for place, task_id in enumerate(TASKS) for row in list(before(task_id))[place % 9]]
    now: list[Row] = []
    for task_id in TASKS:
        now += accepted(task_id, flow_id="new"), dispatched(task_id, dispatch_id=f"d-{task_id}-now")
    alone = await written(tmp_path / "alone.db", [known, *([row] for row in now)])

    assert await written(tmp_path / "together.db", [known, now]) == alone
    assert await written(tmp_path / "again.db", [known, now, now[::-1]]) == alone
    sent = [history.task.dispatch_id for history in alone[0] if history is not None]
    assert sent[2:5] == ["d-t2-now", "d-t3-now", "d-t4-old"]
