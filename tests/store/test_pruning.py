"""What is old leaves the reach log whole; what is young, open or still remembered stays; statistics stay for ever."""

import asyncio
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_worker.clock import SystemClock
from reach_worker.core.outcome import DeadLetterReason, OutcomeClass
from reach_worker.core.success import WINDOW
from reach_worker.errors import StoreUnavailable
from reach_worker.ports import AnswerLost, BreakerMoved, Claimed, Feedback, Joined, Row, Unsent
from reach_worker.store import SqliteStore
from reach_worker.store.pruner import DAY_US, LARGEST, PIECE_S, SMALLEST, Pruner, Retention, next_size
from reach_worker.store.pruning import PRUNED
from reach_worker.store.vacuum import vacuum
from reach_worker.testing.clock import SteppedClock
from tests.store.sample import (
    SECOND,
    accepted,
    dead,
    decided,
    dispatched,
    joined,
    manifest,
    parked,
    seen,
    started,
    succeeded,
)
from tests.store.trouble import LIMIT_S, count, locked, recorded

NOW = SystemClock().utc_us()
LIMIT = NOW - 90 * DAY_US
OLD = LIMIT - 10 * DAY_US
YOUNG = LIMIT + 10 * DAY_US


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "reach.db"


def opened(path: Path) -> SqliteStore:
    return SqliteStore.open(path, clock=SystemClock(), wait_s=10)


async def written(path: Path, *rows: Row) -> None:
    async with opened(path) as store:
        await recorded(store, *rows)


async def prune(path: Path, before: int = LIMIT) -> Mapping[str, int]:
    """What is gone, of the tables where anything is."""
    removed = await Pruner(path, SystemClock(), share=1.0).prune(before)
    return {table: rows for table, rows in removed.items() if rows}


def rows_in(path: Path) -> dict[str, int]:
    found = {table: count(path, table) for table in PRUNED}
    return {table: rows for table, rows in found.items() if rows}


def whole(task_id: str, at: int, life: int = 0) -> list[Row]:
    """A task with a row of every kind."""
    dispatch_id = f"d-{task_id}-{life}"
    return [
        accepted(task_id, life, at=at),
        decided(task_id, life, at=at),
        dispatched(task_id, life, dispatch_id, at=at),
        started(dispatch_id, at=at),
        Unsent(dispatch_id, task_id, life),
        seen(OutcomeClass.SUCCEEDED, dispatch_id, task_id, life, at=at, duration_ms=5.0),
        succeeded(task_id, life, at=at),
        joined(task_id, at=at),
        AnswerLost(task_id, "q1", at),
        Feedback(task_id, "grep", "log.query", "good", None, at),
        BreakerMoved("grep", "r1", "open", at, ""),
    ]


async def test_an_old_task_goes_with_all_that_hangs_on_it(path: Path) -> None:
    await written(path, *whole("old", OLD), *whole("young", YOUNG))

    removed = await prune(path)

    one_of_each = dict.fromkeys(PRUNED, 1)
    del one_of_each["manifests"]
    assert removed == one_of_each
    assert rows_in(path) == one_of_each
    async with opened(path) as store:
        assert set(await store.known_tasks(["old", "young"])) == {"young"}
        assert set(await store.known_dispatches(["d-old-0", "d-young-0"])) == {"d-young-0"}
        assert set(await store.waiters(["old", "young"])) == {"young"}
    assert await prune(path) == {}


@pytest.mark.parametrize(
    "rows",
    [
        [accepted(at=OLD), dispatched(at=OLD)],
        [dispatched(at=OLD)],
        [accepted(at=OLD), parked(at=OLD)],
        [parked(at=OLD)],
        [accepted(at=OLD)],
        [accepted(at=OLD), dispatched(at=OLD), seen(OutcomeClass.FAILED, at=OLD)],
        [accepted(at=OLD), dead(at=YOUNG)],
        [accepted(at=YOUNG), succeeded(at=OLD)],
        [accepted(at=YOUNG), succeeded(at=YOUNG)],
        [accepted(at=OLD), dead(at=OLD, reason=DeadLetterReason.OUTCOME_UNKNOWN), succeeded(at=YOUNG)],
    ],
)
async def test_what_has_not_ended_or_not_long_ago_stays(path: Path, rows: list[Row]) -> None:
    await written(path, *rows)
    before = rows_in(path)

    assert await prune(path) == {}
    assert rows_in(path) == before


async def test_an_answer_that_is_still_remembered_stays_whatever_its_age(path: Path) -> None:
    now = SystemClock().utc_us()  # not that of when this file was read: the memory lasts a minute
    await written(path, accepted("a", at=now - SECOND), succeeded("a", at=now - SECOND))
    await written(path, accepted("b", at=now - 100 * SECOND), succeeded("b", at=now - 100 * SECOND))

    assert await prune(path, now + DAY_US) == {"tasks": 1, "ends": 1}
    async with opened(path) as store:
        assert set(await store.known_tasks(["a", "b"])) == {"a"}


async def test_what_a_late_row_left_of_a_task_that_is_gone_goes_too(path: Path) -> None:
    await written(path, seen(dispatch_id="d1", task_id="gone", at=OLD), decided("gone too", at=OLD))
    await written(path, seen(dispatch_id="d2", task_id="new", at=YOUNG))

    assert await prune(path) == {"tasks": 2, "outcomes": 1, "decisions": 1}
    assert rows_in(path) == {"tasks": 1, "outcomes": 1}


async def test_a_claim_stays_whatever_its_age(path: Path) -> None:
    await written(path, Claimed("t1", 0, "r1", OLD))

    assert await prune(path) == {}
    async with opened(path) as store:
        assert (await store.known_tasks(["t1"]))["t1"].claimed_by == "r1"


async def test_rows_of_no_task_go_by_their_age(path: Path) -> None:
    for at in (OLD, YOUNG):
        await written(
            path,
            started(f"d{at}", at=at),
            Joined(f"t{at}", "q1", None, at),
            Joined(f"t{at}", "q2", "c", at),
            AnswerLost(f"t{at}", "q1", at),
            BreakerMoved("grep", "r1", "open", at, ""),
        )
    await written(path, *(manifest(hash_=hash_, at=at) for hash_, at in (("h1", OLD), ("h2", YOUNG))))
    await written(path, manifest("resting", at=OLD))

    assert await prune(path) == {
        "starts": 1, "waiters": 2, "lost_answers": 1, "breaker_moves": 1, "manifests": 1
    }  # fmt: skip
    async with opened(path) as store:
        assert [("h2" in body, "resting" in body) for body in await store.manifests()] == [
            (True, False),
            (False, True),
        ]


async def test_an_earlier_life_goes_alone_and_the_last_one_takes_what_is_the_tasks(path: Path) -> None:
    await written(path, *whole("t", OLD), *whole("t", YOUNG, life=1))

    removed = await prune(path)
    assert removed["tasks"] == 1
    assert "waiters" not in removed
    assert rows_in(path) | {"breaker_moves": 0} == {
        **dict.fromkeys(PRUNED[:7], 1), "waiters": 1, "lost_answers": 2, "feedback": 2, "breaker_moves": 0
    }  # fmt: skip
    assert {"waiters": 1, "lost_answers": 2, "feedback": 2}.items() <= (await prune(path, NOW)).items()
    assert rows_in(path) == {}


async def test_success_statistics_are_for_ever(path: Path) -> None:
    rows: list[Row] = []
    for number in range(100):
        id_, at = f"t{number}", OLD + number * SECOND
        good = number % 3 > 0
        rows += [accepted(id_, at=at), dispatched(id_, dispatch_id=f"d{number}", at=at)]
        rows += [
            seen(
                OutcomeClass.SUCCEEDED if good else OutcomeClass.FAILED,
                f"d{number}", id_, at=at, duration_ms=float(number),
            ),
            succeeded(id_, at=at),
            Feedback(id_, "grep", "log.query", "good" if number % 2 else "bad", None, at),
        ]  # fmt: skip
    await written(path, *rows)
    before = await track_record(path)

    assert (await prune(path, OLD + 40 * SECOND))["tasks"] == 40
    assert await track_record(path) == before
    assert (await prune(path))["tasks"] == 60
    assert await track_record(path) == before
    assert rows_in(path) == {}


async def track_record(path: Path) -> tuple[object, ...]:
    async with opened(path) as store:
        track = (await store.track_record()).tracks["grep", "log.query"]
    return track.slow, track.week, track.feedback, list(track.service.recent)


async def test_of_pruned_service_times_only_the_newest_are_kept(path: Path) -> None:
    def rows(first: int, last: int) -> list[Row]:
        return [
            row
            for number in range(first, last)
            for id_, at in [(f"t{number}", OLD + number * SECOND)]
            for row in (
                accepted(id_, at=at),
                seen(dispatch_id=f"d{number}", task_id=id_, at=at, duration_ms=float(number)),
                succeeded(id_, at=at),
            )
        ]

    await written(path, *rows(0, 200))
    await prune(path)
    assert count(path, "service_times") == 200
    await written(path, *rows(200, 300))
    await prune(path)
    assert count(path, "service_times") == WINDOW
    await written(path, *rows(300, 300 + WINDOW + 50))
    before = await track_record(path)
    assert (await prune(path))["tasks"] == WINDOW + 50
    assert await track_record(path) == before
    assert before[-1] == [(300 + 50 + number) / 1000 for number in range(WINDOW)]
    assert count(path, "service_times") == WINDOW


async def test_an_outcome_after_everything_was_pruned_is_counted_once(path: Path) -> None:
    await written(path, *whole("t1", OLD))
    await prune(path)
    await written(path, *whole("t2", YOUNG))
    await written(path, *whole("t2", YOUNG))

    async with opened(path) as store:
        track = (await store.track_record()).tracks["grep", "log.query"]
    assert track.week.tries == pytest.approx(1.0, abs=0.1)
    assert [len(each) for each in (track.service.recent,)] == [2]


async def test_several_prune_one_file_while_it_is_written(path: Path) -> None:
    await written(path, *(row for number in range(1000) for row in whole(f"old{number}", OLD + number)))
    async with opened(path) as store, asyncio.TaskGroup() as group:
        pruning = [group.create_task(Pruner(path, SystemClock(), share=0.5).prune(LIMIT)) for _ in range(3)]
        for number in range(100):
            assert await store.record(whole(f"new{number}", NOW - number))

    assert sum(each.result()["tasks"] for each in pruning) == 1000
    assert {table: rows for table, rows in rows_in(path).items() if rows != 100} == {}
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


async def test_the_pieces_are_small_transactions(path: Path) -> None:
    await written(path, *(row for number in range(300) for row in whole(f"old{number}", OLD + number)))
    told: list[int] = []

    await Pruner(path, SystemClock(), 1.0, told.append).prune(LIMIT)

    assert told[0] == 20
    assert told[-1] == 300
    assert told == sorted(set(told))


@given(st.integers(SMALLEST, LARGEST), st.floats(0, 100))
def test_a_piece_that_took_long_is_followed_by_a_smaller_one(size: int, took: float) -> None:
    following = next_size(size, took)

    assert SMALLEST <= following <= min(LARGEST, 2 * size)
    if took > PIECE_S:
        assert following <= size


async def test_a_locked_store_is_pruned_later(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    await written(path, *whole("old", OLD))
    retention = Retention(path, 90, SystemClock())
    with locked(path):
        assert not await retention.once()
        assert not await retention.once()
    assert caplog.text.count("cannot be pruned now") == 1
    assert count(path, "tasks") == 1
    caplog.set_level("INFO")
    assert await retention.once()
    assert "pruned what is older than 90 days: 1 tasks, 1 decisions" in caplog.text
    assert count(path, "tasks") == 0


async def test_a_router_prunes_again_and_again(path: Path) -> None:
    clock = SteppedClock()
    clock.wall_us = NOW
    await written(path, *whole("old", OLD))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(Retention(path, 90, clock).run())
        await until_pruned(path, clock)
        await written(path, *whole("older", OLD))
        await until_pruned(path, clock)
        task.cancel()


async def until_pruned(path: Path, clock: SteppedClock) -> None:
    async with asyncio.timeout(LIMIT_S):
        while count(path, "tasks"):
            clock.advance(60)
            await SystemClock().sleep(0)


async def test_a_pruner_that_is_stopped_leaves_a_whole_file(path: Path) -> None:
    await written(path, *(row for number in range(500) for row in whole(f"old{number}", OLD + number)))
    began = asyncio.Event()

    async def pruning() -> None:
        await Pruner(path, SystemClock(), 0.5, lambda _gone: began.set()).prune(LIMIT)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(pruning())
        await began.wait()
        task.cancel()

    left = rows_in(path)
    assert 0 < left["tasks"] < 500
    assert {rows for table, rows in left.items() if table != "breaker_moves"} == {left["tasks"]}


async def test_the_file_is_made_smaller_while_routers_have_it_open(path: Path) -> None:
    await written(path, *(row for number in range(2000) for row in whole(f"old{number}", OLD + number)))
    await prune(path)
    size = size_of(path)
    async with opened(path) as store:
        for number in range(50):
            await store.record([accepted(f"before{number}", at=NOW)])
        shrinking = asyncio.ensure_future(vacuum(path, 10))  # noqa: TID251 - awaited below
        for number in range(50):
            await store.record([accepted(f"meanwhile{number}", at=NOW)])
        await shrinking
        await recorded(store, accepted("after", at=NOW))
        assert store.stats().lost == 0

    assert size_of(path) < size / 2
    assert count(path, "tasks") == 101


async def test_a_locked_store_is_not_made_smaller_and_says_what_it_takes(path: Path) -> None:
    await written(path, *whole("old", OLD))
    with (
        locked(path),
        pytest.raises(StoreUnavailable, match="database is locked; this takes the store for itself"),
    ):
        await vacuum(path, 0.01)


def size_of(path: Path) -> int:
    return path.stat().st_size


async def test_what_is_not_there_is_not_pruned_in_silence(tmp_path: Path) -> None:
    folder = tmp_path / "reach.db"
    folder.mkdir()
    with pytest.raises(StoreUnavailable):
        await prune(folder)
