"""A router that could not hear its agents for a while does not blame them for it."""

from reach_worker.core.outcome import OutcomeClass
from tests.services.scripted import ScriptedAgent
from tests.services.stage import Stage

LONG_S = 300.0


async def one_at_work(stage: Stage) -> ScriptedAgent:
    """A router, and an agent that holds a task."""
    await stage.router()
    agent = await stage.agent("a", script=lambda _: None, capability_timeout_ms=5_000)
    stage.publish("t1")
    await stage.settle()
    assert len(agent.held) == 1
    return agent


async def assert_done_at_the_first_attempt(stage: Stage) -> None:
    await stage.settle()
    assert stage.answer("t1")["status"] == "succeeded"
    assert [seen.outcome for seen in stage.outcomes("t1")] == [OutcomeClass.SUCCEEDED]
    assert stage.r1.desk.fleet.agents["a"].breaker.streak == 0


async def test_while_it_has_no_broker_nothing_is_overdue() -> None:
    stage = Stage()
    agent = await one_at_work(stage)
    stage.r1.bus.disconnect()
    await stage.pass_time(LONG_S, step=10)
    stage.r1.bus.connect()
    await stage.pass_time(5)
    await agent.end(agent.held[0])
    await assert_done_at_the_first_attempt(stage)


async def test_while_it_is_held_up_nothing_becomes_overdue() -> None:
    """By a memory alarm, or a machine that slept: it was the same for the agents."""
    stage = Stage()
    agent = await one_at_work(stage)
    stage.clock.advance(LONG_S)
    await stage.r1.turn()
    await agent.end(agent.held[0])
    await assert_done_at_the_first_attempt(stage)


async def test_what_is_not_heard_of_afterwards_either_is_given_up() -> None:
    stage = Stage()
    await one_at_work(stage)
    stage.r1.bus.disconnect()
    await stage.pass_time(LONG_S, step=10)
    stage.r1.bus.connect()
    await stage.pass_time(60)
    assert [seen.outcome for seen in stage.outcomes("t1")] == [OutcomeClass.TIMEOUT]
