"""Replayed dead letters, from the dead letters to their second end."""

import orjson
import pytest

from reach_worker.core.breaker import BreakerPolicy
from reach_worker.core.dead_letter import Filter
from reach_worker.core.outcome import DeadLetterReason, OutcomeClass
from reach_worker.services.dead_letters import DeadLetters
from reach_worker.services.replay_order import ReplayOrder, ReplayReport
from reach_worker.testing import MemoryBus, Moment
from tests.services.scripted import always, succeed
from tests.services.stage import Killed, Stage, die

ALL = Filter()


async def replay(
    stage: Stage, order: ReplayOrder | None = None, *, dies: bool = False
) -> ReplayReport | None:
    """Replay in a session of its own; ``dies``: just before it acknowledges."""
    bus = MemoryBus(stage.broker)
    async with bus.running():
        letters = DeadLetters(bus, stage.names, stage.clock, stage.names.dlq, stage.store.known_tasks)
        if dies:
            bus.once(Moment.BEFORE_ACK, die)
        try:
            return await letters.replay(order or ReplayOrder(ALL))
        except Killed:
            return None


async def buried(stage: Stage, *task_ids: str) -> None:
    """Each of these is refused by its agent, and dead."""
    for task_id in task_ids:
        stage.publish(task_id)
    await stage.settle()
    assert [letter.task_id for letter in stage.letters()] == list(task_ids)


async def test_it_is_done_with_a_fresh_budget_and_the_old_history() -> None:
    stage = Stage(breaker=BreakerPolicy(streak=100, min_samples=1000))
    await stage.router()
    agent = await stage.agent("a", script=always(OutcomeClass.FAILED))
    stage.publish("t")
    await stage.pass_time(60)
    assert stage.letter().reason is DeadLetterReason.ATTEMPTS_EXHAUSTED

    await replay(stage)
    await stage.pass_time(60)
    again = stage.letter()

    assert agent.ran == {"t": 8}, "four attempts, twice"
    assert (again.envelope.life, again.envelope.replays, len(again.envelope.attempts)) == (1, 1, 4)
    assert len(orjson.loads(again.envelope.past or "[]")) == 4
    agent.script = succeed
    await replay(stage)
    await stage.pass_time(5)
    assert not stage.letters()
    assert stage.answers()[-1]["status"] == "succeeded"


async def test_a_replay_that_dies_before_it_acknowledges_runs_nothing_twice() -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a", slots=5, script=always(OutcomeClass.BAD_REQUEST))
    await buried(stage, "t1", "t2", "t3")
    agent.script = succeed
    agent.ran.clear()

    await replay(stage, dies=True)
    await stage.settle()
    assert len(stage.letters()) == 3, "they were not removed"
    report = await replay(stage)
    await stage.settle()

    assert report is not None
    assert len(report.held_back) == 3, "the store knows that they were replayed"
    assert agent.ran == {"t1": 1, "t2": 1, "t3": 1}


async def test_a_second_copy_of_a_replay_is_let_go_while_the_first_runs() -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a", slots=5, script=always(OutcomeClass.BAD_REQUEST))
    await buried(stage, "t1", "t2")
    agent.script = lambda _: None
    agent.ran.clear()

    bus = MemoryBus(stage.broker)
    for _ in range(3):
        async with bus.running():  # no store at hand: it is for the router to tell
            bus.once(Moment.BEFORE_ACK, die)
            with pytest.raises(Killed):
                await DeadLetters(bus, stage.names, stage.clock, stage.names.dlq).replay(ReplayOrder(ALL))
        await stage.settle()

    assert agent.ran == {"t1": 1, "t2": 1}
    assert stage.r1.desk.counts.stale_copies == 4


async def test_replayed_while_the_breaker_is_open_it_waits() -> None:
    """It would be a dead letter again at once, with its replay spent."""
    stage = Stage(breaker=BreakerPolicy(streak=1, open_s=30.0))
    await stage.router()
    agent = await stage.agent("a", slots=5, script=always(OutcomeClass.BAD_REQUEST))
    await buried(stage, "t1", "t2")
    agent.script = always(OutcomeClass.FAILED)
    stage.publish("trips it")
    await stage.settle()
    agent.script = succeed
    agent.ran.clear()

    await replay(stage)
    await stage.pass_time(20)
    assert (agent.ran.total(), stage.letters()) == (0, [])
    await stage.pass_time(40)

    assert (agent.ran["t1"], agent.ran["t2"]) == (1, 1)
    assert not stage.letters()


async def test_the_deadline_counts_from_the_replay() -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a", script=always(OutcomeClass.BAD_REQUEST))
    stage.publish("t", deadline_ms=10_000)
    await stage.settle()
    await stage.pass_time(60)
    agent.script = lambda _: None
    stage.publish("holds the one slot")
    await stage.settle()

    await replay(stage)
    await stage.pass_time(8)
    assert not stage.letters(), "it is not late yet"
    await stage.pass_time(8)

    assert stage.letter().reason is DeadLetterReason.EXPIRED


async def test_sent_to_an_agent_it_goes_to_no_other() -> None:
    stage = Stage()
    await stage.router()
    one = await stage.agent("a", script=always(OutcomeClass.BAD_REQUEST), capability_cost=1)
    two = await stage.agent("b", script=succeed, capability_cost=5)
    await buried(stage, "t")

    await replay(stage, ReplayOrder(ALL, to_agent="b"))
    await stage.settle()

    assert (one.ran["t"], two.ran["t"]) == (1, 1)
