"""An agent dies or its breaker opens while its queue is full and hundreds more wait: all are routed on, once, by their
owner, and it costs them nothing."""

from collections import Counter

import pytest

from reach_worker.core.breaker import BreakerPolicy
from reach_worker.core.outcome import OutcomeClass
from reach_worker.core.slots import SlotPolicy
from reach_worker.ports import Ended, OutcomeSeen, Standing
from tests.services.scripted import Reply, ScriptedAgent, always, succeed
from tests.services.stage import Stage

OPEN_S = 30.0
WAITING = 500
SLOTS = 8


async def crowded(stage: Stage) -> tuple[ScriptedAgent, list[str]]:
    """Two routers; agent ``a`` runs what it has slots for, has more in its queue, and 500 tasks wait for it."""
    await stage.router("r1")
    await stage.router("r2")
    await stage.pass_time(4)
    agent = await stage.agent("a", slots=SLOTS, script=always(OutcomeClass.SUCCEEDED, duration_ms=20.0))
    for number in range(20):
        stage.publish(f"warm{number}")
        await stage.pass_time(0.5)
    agent.script = lambda _: None
    ids = [f"t{number:03}" for number in range(WAITING)]
    for task_id in ids:
        stage.publish(task_id)
    await stage.pass_time(5)
    assert len(agent.held) == SLOTS
    assert stage.ready()["agent.a"] >= SLOTS, "sent ahead of its slots, and queued"
    return agent, ids


def assert_each_went_on_once(stage: Stage, ids: list[str], spent: set[str]) -> None:
    """Done by ``b`` at the first attempt, but for those that had begun at ``a``."""
    assert Counter(row.task_id for row in stage.rows(Ended) if row.task_id in ids) == dict.fromkeys(ids, 1)
    assert not stage.letters()
    for task_id in ids:
        counted = [row for row in stage.outcomes(task_id) if row.standing is Standing.CURRENT]
        lost = [row.outcome for row in counted if row.outcome is not OutcomeClass.RELEASED]
        assert len(lost) == 1 + (task_id in spent), (task_id, lost)
        assert stage.answer(task_id)["attempt"] == 1 + (task_id in spent)
        attempts = [row.attempt for row in stage.dispatches(task_id)]
        assert attempts[-1] == 1 + (task_id in spent)
        assert len(attempts) <= 2
        owners = {row.router for row in stage.dispatches(task_id)}
        assert len(owners) == 1 or task_id in spent, "only its owner binds a dispatch again"


async def test_the_agent_dies() -> None:
    stage = Stage(slots=SlotPolicy(per_agent=80), breaker=BreakerPolicy(open_s=OPEN_S, rate_floor=None))
    agent, ids = await crowded(stage)
    begun = {work.task_id for work in agent.held}
    b = await stage.agent("b", slots=SLOTS, script=succeed)
    agent.die()
    await stage.pass_time(OPEN_S)
    assert_each_went_on_once(stage, ids, begun)
    assert set(ids) - set(b.ran) == set()
    assert {b.ran[task_id] for task_id in ids} == {1}


async def test_its_breaker_opens() -> None:
    stage = Stage(breaker=BreakerPolicy(streak=3, open_s=OPEN_S, rate_floor=None))
    agent, ids = await crowded(stage)
    b = await stage.agent("b", slots=SLOTS, script=succeed)
    agent.script = always(OutcomeClass.FAILED)
    failed = set()
    for work in list(agent.held)[:SLOTS]:
        failed.add(work.task_id)
        await agent.end(work, Reply(OutcomeClass.FAILED))
    ran_before = +agent.ran
    await stage.pass_time(OPEN_S - 5)
    more = {task_id for task_id, count in (agent.ran - ran_before).items() if count}
    assert len(more) <= 3 * SLOTS, "what it took from its queue before the routers knew"
    assert_each_went_on_once(stage, ids, failed | more)
    assert not {task_id for task_id in ids if b.ran[task_id] != 1}


@pytest.mark.parametrize("way", ["away", "open"])
async def test_where_no_other_could_take_them_they_wait_and_spend_nothing(way: str) -> None:
    stage = Stage(breaker=BreakerPolicy(streak=3, open_s=OPEN_S, rate_floor=None, steps=()))
    agent, ids = await crowded(stage)
    spent: set[str] = {work.task_id for work in agent.held}
    if way == "away":
        agent.die()
    else:
        await agent.take_at_once(0)
        for work in list(agent.held):
            await agent.end(work, Reply(OutcomeClass.FAILED))
    await stage.pass_time(OPEN_S - 10)
    untouched = [task_id for task_id in ids if task_id not in spent]
    assert not [row for row in stage.rows(Ended) if row.task_id in ids]
    assert {row.attempt for task_id in untouched for row in stage.dispatches(task_id)} <= {1}
    seen = {row.outcome for row in stage.rows(OutcomeSeen) if row.task_id in untouched}
    assert seen <= {OutcomeClass.RELEASED}
    agent.script = succeed
    if way == "away":
        await stage.pass_time(600, step=5)
        assert not stage.letters()
        await agent.start()
    else:
        await agent.take_at_once(SLOTS)
    await stage.pass_time(200, step=2)
    assert {len(stage.ends(task_id)) for task_id in ids} == {1}
    assert not stage.letters()
    assert {stage.answer(task_id)["attempt"] for task_id in ids if task_id not in spent} == {1}
