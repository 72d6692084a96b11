"""What the command line asks: everything about a task, what came last, who is how good."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from reach_worker.bench.live.decide import asks
from reach_worker.bench.live.known_fleet import known_fleet
from reach_worker.clock import SystemClock
from reach_worker.core.duplicates import TaskState
from reach_worker.core.outcome import DeadLetterReason, OutcomeClass
from reach_worker.core.policy import RoutingPolicy
from reach_worker.core.recompute import recompute
from reach_worker.core.record import DecisionRecord
from reach_worker.core.routing import plan
from reach_worker.errors import StoreUnavailable
from reach_worker.ports import AnswerLost, BreakerMoved, Row, Standing
from reach_worker.store import SqliteStore, StoreReader
from tests.store.sample import (
    NOON,
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


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "reach.db"


@pytest.fixture
def write(path: Path) -> Callable[..., Awaitable[None]]:
    async def write_(*rows: Row) -> None:
        async with SqliteStore.open(path, clock=SystemClock(), wait_s=10) as store:
            assert await store.record(rows)

    return write_


Write = Callable[..., Awaitable[None]]


async def test_a_task_comes_back_as_it_was_recorded(path: Path, write: Write) -> None:
    decision = decided(at=NOON + 1)
    dispatches = (dispatched(at=NOON + 2), dispatched(dispatch_id="d2", attempt=2, at=NOON + 5))
    starts = (started(at=NOON + 3), started("d2", at=NOON + 6))
    outcomes = (
        seen(OutcomeClass.FAILED, at=NOON + 4, duration_ms=12.5),
        seen(OutcomeClass.SUCCEEDED, at=NOON + 7, standing=Standing.STALE),
        seen(OutcomeClass.TIMEOUT, "d2", at=NOON + 8),
    )
    end, lost = dead(at=NOON + 9), AnswerLost("t1", "q1", NOON + 10)
    waiters = (joined(at=NOON), joined(correlation_id=None, at=NOON + 1))
    rows = [accepted(flow_id="f1"), decision, *dispatches, *starts, *outcomes, end, *waiters, lost]
    await write(
        *rows[::-1], accepted("t2"), decided("t2"), dispatched("t2", dispatch_id="d3"), seen(task_id="t2")
    )

    async with StoreReader.open(path) as reader:
        history = await reader.task("t1")
        assert await reader.task("t3") is None

    assert history is not None
    assert history.decisions == (decision,)
    assert history.dispatches == dispatches
    assert history.starts == starts
    assert history.outcomes == outcomes
    assert history.ends == (end,)
    assert history.waiters == waiters
    assert history.lost_answers == (lost,)
    task = history.task
    assert (task.task_id, task.life, task.flow_id, task.capability) == ("t1", 0, "f1", "log.query")
    assert (task.caller, task.router, task.first_seen, task.accepted) == ("anonymous", "r1", NOON, True)
    assert (task.dispatch_id, task.attempt, task.parked_reason) == ("d2", 2, None)
    assert (task.state, task.ended_at, task.answer) == (TaskState.DEAD_LETTER, end.at, None)
    assert (task.reason, task.error) == (DeadLetterReason.ATTEMPTS_EXHAUSTED, "no agent could")
    assert task.remember_until == end.remember_until


async def test_a_decision_is_stored_compactly_and_comes_back_whole(path: Path, write: Write) -> None:
    fleet = known_fleet(3, 100.0)
    made = plan(asks(1)[0], fleet, RoutingPolicy(), 100.0)
    record = DecisionRecord(made, plan(asks(1)[0], fleet, RoutingPolicy(preset="declared"), 100.0))
    await write(accepted(), replace(decided(), decision=record))

    async with StoreReader.open(path) as reader:
        history = await reader.task("t1")
        ((logged, _),) = [one async for one in reader.logged(NOON, NOON + SECOND)]
    assert history is not None
    assert history.decisions[0].decision == logged == dict(record)
    assert recompute(logged).agent_id == made.agent_id


async def test_every_life_of_a_task_is_kept(path: Path, write: Write) -> None:
    await write(accepted(), dead(), accepted(life=1, at=NOON + 1), parked(life=1, at=NOON + 2))

    async with StoreReader.open(path) as reader:
        history = await reader.task("t1")

    assert history is not None
    assert [(life.life, life.state) for life in history.lives] == [
        (0, TaskState.DEAD_LETTER), (1, TaskState.UNMATCHED)
    ]  # fmt: skip
    assert history.task.parked_reason == "nobody can log.query"


async def test_a_task_whose_beginning_is_missing_is_told_apart(path: Path, write: Write) -> None:
    await write(seen())

    async with StoreReader.open(path) as reader:
        history = await reader.task("t1")

    assert history is not None
    assert not history.task.accepted
    assert history.outcomes == (seen(),)


async def test_a_task_keeps_the_way_it_came_in_first(path: Path, write: Write) -> None:
    late = replace(accepted(flow_id="f2", at=NOON + 9), caller="else", router="r9", capability="other")
    await write(seen(), accepted(flow_id="f1"))
    await write(late)

    async with StoreReader.open(path) as reader:
        history = await reader.task("t1")

    assert history is not None
    task = history.task
    assert (task.flow_id, task.first_seen, task.accepted) == ("f1", NOON, True)
    assert (task.caller, task.router, task.capability) == ("anonymous", "r1", "log.query")


async def test_the_last_reason_for_parking_is_the_one(path: Path, write: Write) -> None:
    await write(
        accepted(),
        replace(parked(at=NOON + 2), reason="second"),
        replace(parked(at=NOON + 1), reason="first"),
    )

    async with StoreReader.open(path) as reader:
        history = await reader.task("t1")

    assert history is not None
    assert history.task.parked_reason == "second"


async def test_ids_are_found_by_how_they_begin(path: Path, write: Write) -> None:
    ids = ["ab1", "ab2", "abc", "a%", "b", "äb"]
    await write(*map(accepted, ids), accepted("ab1", 1))

    async with StoreReader.open(path) as reader:
        assert await reader.find("ab") == ["ab1", "ab2", "abc"]
        assert await reader.find("ab", limit=2) == ["ab1", "ab2"]
        assert await reader.find("a%") == ["a%"]
        assert await reader.find("") == sorted(ids)
        assert await reader.find("ä") == ["äb"]
        assert await reader.find("zz") == []


async def test_a_flow_holds_its_tasks_in_order(path: Path, write: Write) -> None:
    await write(
        accepted("t1", at=NOON),
        accepted("t3", flow_id="t1", at=NOON + 2),
        accepted("t2", flow_id="t1", at=NOON + 1),
        accepted("t2", 1, flow_id="t1", at=NOON + 1),
        accepted("t4", flow_id="t2"),
    )

    async with StoreReader.open(path) as reader:
        assert [(task.task_id, task.life) for task in await reader.flow("t1")] == [
            ("t1", 0),
            ("t2", 1),
            ("t3", 0),
        ]
        assert [task.task_id for task in await reader.flow("t2")] == ["t4"]
        assert await reader.flow("t9") == []


async def test_recent_tasks_come_newest_first_and_by_state(path: Path, write: Write) -> None:
    cancelled = replace(succeeded("t5"), state=TaskState.CANCELLED)
    await write(
        *(accepted(f"t{number}", at=NOON + number) for number in range(1, 8)),
        parked("t2", at=NOON + 20),
        succeeded("t3"),
        dead("t4"),
        cancelled,
        dead("t6"),
        accepted("t6", 1, at=NOON + 6),
        succeeded("t7"),
    )
    expected = {
        None: ["t7", "t6", "t5", "t4", "t3", "t2", "t1"],
        TaskState.UNDER_WAY: ["t6", "t1"],
        TaskState.UNMATCHED: ["t2"],
        TaskState.SUCCEEDED: ["t7", "t3"],
        TaskState.DEAD_LETTER: ["t4"],
        TaskState.CANCELLED: ["t5"],
    }

    async with StoreReader.open(path) as reader:
        for state, ids in expected.items():
            assert [task.task_id for task in await reader.recent(10, state)] == ids
            assert [task.task_id for task in await reader.recent(1, state)] == ids[:1]
        counts = await reader.counts()

    assert counts.tasks == {state: len(ids) for state, ids in expected.items() if state}
    assert counts.doubled_ends == 0


async def test_a_doubled_end_is_seen_and_a_resolved_one_is_none(path: Path, write: Write) -> None:
    unknown = dead("t2", reason=DeadLetterReason.OUTCOME_UNKNOWN)
    await write(
        *(accepted(f"t{number}") for number in range(1, 5)),
        succeeded("t1"),
        succeeded("t1"),
        unknown,
        succeeded("t2", at=NOON + 1),
        succeeded("t3"),
        dead("t3", at=NOON + 1),
        replace(unknown, task_id="t4"),
        replace(unknown, task_id="t4", at=NOON + 1),
    )

    async with StoreReader.open(path) as reader:
        history = await reader.task("t3")
        assert (await reader.counts()).doubled_ends == 2

    assert history is not None
    assert history.task.state is TaskState.SUCCEEDED
    assert len(history.ends) == 2


async def test_agents_are_rated_where_there_is_something_to_rate(path: Path, write: Write) -> None:
    await write(
        seen(OutcomeClass.SUCCEEDED, "d1"),
        seen(OutcomeClass.FAILED, "d2"),
        seen(OutcomeClass.REJECTED, "d3", agent_id="sed"),
        seen(OutcomeClass.RELEASED, "d4", agent_id="awk"),
    )

    async with StoreReader.open(path) as reader:
        grep, sed = await reader.agents(NOON + 1800 * SECOND)

    assert (grep.agent_id, grep.capability, grep.last_at) == ("grep", "log.query", NOON)
    assert (grep.rate, grep.fast_rate, grep.rejection_rate) == (0.5, 0.5, 0.0)
    assert grep.tries == pytest.approx(1.0)
    assert (sed.agent_id, sed.rate, sed.fast_rate, sed.rejection_rate, sed.tries) == (
        "sed",
        None,
        None,
        1.0,
        0.0,
    )


async def test_breaker_moves_and_manifests_are_read(path: Path, write: Write) -> None:
    moves = [
        BreakerMoved("grep", "r1", state, NOON + number, "why")
        for number, state in enumerate(["open", "closed"])
    ]
    newest = manifest(hash_="h2", at=NOON + 1)
    await write(*moves[::-1], manifest(hash_="h1"), newest, manifest("sed"))

    async with StoreReader.open(path) as reader:
        assert await reader.breaker_moves(NOON) == moves
        assert await reader.breaker_moves(NOON + 1) == moves[1:]
        assert await reader.manifests() == [newest, manifest("sed")]


def take_away(path: Path) -> None:
    path.rename(path.with_name("elsewhere.db"))


async def test_a_store_that_goes_away_is_a_clear_error(path: Path, write: Write) -> None:
    await write(accepted())
    async with StoreReader.open(path) as reader:
        assert await reader.find("t") == ["t1"]
        take_away(path)
        with pytest.raises(StoreUnavailable, match="there is no store"):
            await reader.find("t")


async def test_a_store_is_read_where_nothing_may_be_written_to_it(path: Path, write: Write) -> None:
    await write(accepted())
    async with StoreReader.open(path) as reader:
        with pytest.raises(StoreUnavailable, match="readonly"):
            await reader._ask("DELETE FROM tasks")  # noqa: SLF001 - nothing public writes, and nothing ever may
