"""A long history that was made quickly reads as one that was lived."""

from pathlib import Path

import pytest

from reach_worker.bench.live.history import MODELS, made, task_id
from reach_worker.clock import SystemClock
from reach_worker.core.duplicates import TaskState
from reach_worker.core.outcome import OutcomeClass
from reach_worker.store import SqliteStore, StoreReader

OUTCOMES = 500


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    return await made(tmp_path / "reach.db", OUTCOMES)


async def test_every_task_has_its_whole_life(path: Path) -> None:
    async with StoreReader.open(path) as reader:
        counts = await reader.counts()
        assert counts.tasks[TaskState.SUCCEEDED] == OUTCOMES - 5
        assert counts.tasks[TaskState.DEAD_LETTER] == 5
        assert counts.doubled_ends == 0
        for number in (MODELS + 1, 100, OUTCOMES):
            history = await reader.task(task_id(number))
            assert history is not None
            (dispatch,), (outcome,), (end,) = history.dispatches, history.outcomes, history.ends
            (decision,) = history.decisions
            assert dispatch.decision_id == decision.decision_id
            assert outcome.dispatch_id == dispatch.dispatch_id
            assert decision.decision["candidates"]
            assert end.at <= SystemClock().utc_us()
            died = number % 100 == 0
            assert (outcome.outcome is OutcomeClass.FAILED) is died
            assert (end.state is TaskState.DEAD_LETTER) is died


async def test_a_router_finds_records_in_it(path: Path) -> None:
    async with SqliteStore.open(path, clock=SystemClock()) as store:
        record = await store.track_record()
        assert len(record.tracks) == MODELS
        assert all(len(track.service) for track in record.tracks.values())
        assert await store.open_dispatches("router-1") == []


async def test_it_is_made_once_and_none_is_an_empty_store(path: Path, tmp_path: Path) -> None:
    assert await made(path, OUTCOMES * 2) == path
    async with StoreReader.open(path) as reader:
        assert sum((await reader.counts()).tasks.values()) == OUTCOMES
    empty = await made(tmp_path / "empty.db", 0)
    async with StoreReader.open(empty) as reader:
        assert not any((await reader.counts()).tasks.values())
