"""Every task has one end: which outcome ended it is recorded, and so one that two routers settled is one end."""

from pathlib import Path

import pytest

from reach_worker.clock import SystemClock
from reach_worker.core.outcome import OutcomeClass
from reach_worker.store import SqliteStore, StoreReader
from reach_worker.testing import Moment
from tests.services.scripted import Reply
from tests.services.stage import Stage

KINDS = [OutcomeClass.SUCCEEDED, OutcomeClass.BAD_REQUEST, OutcomeClass.CANCELLED]


@pytest.mark.parametrize("kind", KINDS)
async def test_an_outcome_that_two_routers_settle_ends_its_task_once(
    tmp_path: Path, kind: OutcomeClass
) -> None:
    """r1 loses its session over it before r2 can know that it is settled."""
    stage = Stage()
    r1, r2 = await stage.two_routers()
    agent = await stage.agent("a", slots=4, script=lambda _: None)
    await r2.bus.want("intake", wanted=False)
    stage.publish("t1")
    await stage.settle()
    stage.store.away = True
    r1.bus.once(Moment.BEFORE_ACK, r1.bus.disconnect)
    await agent.end(agent.held[0], Reply(kind))
    await stage.settle()
    stage.store.away = False
    await stage.settle()
    first, second = stage.ends("t1")
    assert {first.dispatch_id, second.dispatch_id} == {row.dispatch_id for row in stage.dispatches("t1")}
    path = tmp_path / "reach.db"
    async with SqliteStore.open(path, clock=SystemClock()) as store:
        assert await store.record(stage.store.rows)
    async with StoreReader.open(path) as reader:
        history = await reader.task("t1")
        assert (await reader.counts()).doubled_ends == 0
    assert history is not None
    assert history.ends == (first,)
    assert history.task.answer == first.answer
