"""Rows may come twice, late and in any order: in the end the same is known, in memory and on disk."""

import asyncio
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from hypothesis import given, settings
from hypothesis import strategies as st

from reach_worker.clock import SystemClock
from reach_worker.core.duplicates import KnownTask
from reach_worker.core.outcome import RULES, DeadLetterReason, OutcomeClass, Success
from reach_worker.core.success import DecayedCount, Track, TrackRecord
from reach_worker.ports import Ended, Joined, KnownDispatch, Row, Standing, Store
from reach_worker.store import MemoryStore, SqliteStore
from reach_worker.store.statements import STATEMENTS
from tests.store.sample import (
    NOON,
    SECOND,
    accepted,
    dead,
    decided,
    dispatched,
    joined,
    parked,
    seen,
    started,
    succeeded,
)

TASKS = ("a", "b")
DISPATCHES = tuple(f"{task}{life}{number}" for task in TASKS for life in (0, 1) for number in (1, 2))
ROUTERS = ("r1", "r2")

moments = st.integers(1, 50).map(lambda n: NOON + n)


@st.composite
def stories(draw: st.DrawFn) -> list[Row]:
    """Some rows of some lives of two tasks: no two of them contradict each other."""
    rows: list[Row] = []
    for task in TASKS:
        for life in (0, 1):
            rows += [accepted(task, life, at=draw(moments))]
            rows += [parked(task, life, at=draw(moments)), parked(task, life, at=draw(moments))]
            rows += draw(endings(task, life))
            for number in (1, 2):
                rows += draw(attempts(task, life, number))
        rows += [joined(task, correlation_id=draw(st.sampled_from(["c1", "c2", None, ""])), at=NOON)]
    return draw(st.lists(st.sampled_from(rows), max_size=30))


@st.composite
def attempts(draw: st.DrawFn, task: str, life: int, number: int) -> list[Row]:
    id_ = f"{task}{life}{number}"
    outcome = draw(st.sampled_from(OutcomeClass))
    return [
        decided(task, life, f"x{id_}"),
        dispatched(task, life, id_, attempt=number, router=draw(st.sampled_from(ROUTERS)), at=draw(moments)),
        started(id_),
        seen(outcome, id_, task, life, at=draw(moments)),
        seen(draw(st.sampled_from(OutcomeClass)), id_, task, life, at=draw(moments), standing=Standing.STALE),
    ]


@st.composite
def endings(draw: st.DrawFn, task: str, life: int) -> list[Ended]:
    success = succeeded(task, life, at=draw(moments))
    unknown = dead(task, life, reason=DeadLetterReason.OUTCOME_UNKNOWN, at=draw(moments))
    return draw(st.sampled_from([[], [success], [dead(task, life)], [unknown], [unknown, success]]))


@dataclass(frozen=True)
class Picture:
    """All that a store can be asked, but for the statistics, in which order counts."""

    tasks: dict[str, KnownTask]
    dispatches: dict[str, KnownDispatch]
    open: list[list[str]]
    waiters: dict[str, list[Joined]]


async def picture(store: Store) -> Picture:
    return Picture(
        await store.known_tasks(TASKS),
        await store.known_dispatches(DISPATCHES),
        [sorted(one.dispatch_id for one in await store.open_dispatches(router)) for router in ROUTERS],
        await store.waiters(TASKS),
    )


@given(story=stories(), data=st.data())
def test_the_order_of_rows_does_not_matter(story: list[Row], data: st.DataObject) -> None:
    other = data.draw(st.permutations([*story, *story[::2]]))

    async def compare() -> None:
        one, two = MemoryStore(), MemoryStore()
        await one.record(story)
        await two.record(other)
        assert await picture(one) == await picture(two)

    asyncio.run(compare())


@settings(max_examples=60, deadline=None)
@given(story=stories(), data=st.data())
def test_the_database_knows_what_memory_knows(story: list[Row], data: st.DataObject) -> None:
    repeated = data.draw(st.permutations([*story, *story[::2]]))
    cut = data.draw(st.integers(0, len(repeated)))

    async def compare(path: Path) -> None:
        memory = MemoryStore()
        await memory.record(story)
        async with SqliteStore.open(path, clock=SystemClock(), wait_s=60) as store:
            assert await store.record(repeated[:cut])
            assert await store.record(repeated[cut:])
            assert await picture(store) == await picture(memory)

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(compare(Path(folder) / "reach.db"))


Attempted = tuple[OutcomeClass, int, str]

attempted = st.tuples(
    st.sampled_from(OutcomeClass),
    st.integers(0, 10_000 * SECOND).map(lambda us: NOON + us),
    st.sampled_from(["x", "y"]),
)


@settings(max_examples=40, deadline=None)
@given(history=st.lists(attempted, max_size=25), sizes=st.lists(st.integers(1, 6), min_size=25, max_size=25))
def test_decay_is_the_cores_arithmetic_to_the_last_bit(history: list[Attempted], sizes: list[int]) -> None:
    rows = [
        seen(outcome, f"d{number}", at=at, agent_id=agent)
        for number, (outcome, at, agent) in enumerate(history)
    ]

    async def compare(path: Path) -> None:
        rest = list(rows)
        async with SqliteStore.open(path, clock=SystemClock(), wait_s=60) as store:
            for size in sizes:
                assert await store.record(rest[:size])
                del rest[:size]
            found = await store.track_record()
        assert counts_of(found) == counts_of(by_hand(history))

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(compare(Path(folder) / "reach.db"))


def by_hand(history: list[Attempted]) -> TrackRecord:
    record = TrackRecord.empty()
    for outcome, at, agent in history:
        effect = RULES[outcome].success
        if effect is Success.REJECTION:
            record.touch(agent, "log.query").rejected(at / 1e6)
        elif effect is not Success.NOTHING:
            record.touch(agent, "log.query").ended(at / 1e6, good=effect is Success.COUNTS_FOR, seconds=None)
    return record


def counts_of(record: TrackRecord) -> dict[tuple[str, str], tuple[DecayedCount, ...]]:
    def parts(track: Track) -> tuple[DecayedCount, ...]:
        return track.slow, track.fast, track.rejections

    return {key: parts(track) for key, track in record.tracks.items()}


def test_every_kind_of_row_is_written() -> None:
    assert set(STATEMENTS) == set(get_args(Row))
