"""A task that kills its process pays with its own attempts; what only ran or waited beside it pays nothing."""

import pytest

from reach_worker.core.backoff import RetryPolicy
from reach_worker.core.outcome import DeadLetterReason, OutcomeClass
from tests.services.scripted import Reply, ScriptedAgent, Work
from tests.services.stage import Stage, rules

KILLED = Reply(OutcomeClass.UNAVAILABLE, "the process that had it before ended", started=False, crashed=True)
"""What a worker says of a dispatch that was delivered to it so often that it does not try again."""


async def deadly(stage: Stage, agent: ScriptedAgent, work: Work) -> None:
    """It ran alone, and said so before; then its process was gone."""
    await agent.say_started(work)
    await stage.settle()
    await agent.end(work, KILLED)
    await stage.pass_time(5)


async def test_who_says_that_it_begins_and_dies_pays_until_its_attempts_are_spent() -> None:
    stage = Stage(policies=rules(retry=RetryPolicy(max_retries=2)))
    await stage.router()
    agent = await stage.agent("a", script=lambda _: None)
    stage.publish("poison")
    await stage.settle()
    for _ in range(3):
        (work,) = agent.held
        await deadly(stage, agent, work)
    assert stage.letter().reason is DeadLetterReason.POISON
    assert [seen.outcome for seen in stage.outcomes("poison")] == [OutcomeClass.UNAVAILABLE] * 3
    assert agent.ran == {"poison": 3}


@pytest.mark.parametrize("times", [1, 4])
async def test_who_was_delivered_again_and_again_and_never_began_pays_nothing(times: int) -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a", script=lambda _: None)
    stage.publish("innocent")
    await stage.settle()
    for _ in range(times):
        (work,) = agent.held
        await agent.end(work, KILLED)
        await stage.pass_time(10)
    (work,) = agent.held
    assert work.dispatch.envelope.attempts == ()
    await agent.end(work)
    await stage.settle()
    assert stage.answer("innocent")["attempt"] == 1
    assert stage.r1.desk.fleet.agents["a"].breaker.streak == 0
    assert len(stage.outcomes("innocent")) == times + 1
    assert {seen.outcome for seen in stage.outcomes("innocent")[:-1]} == {OutcomeClass.RELEASED}


async def test_after_a_restart_of_the_router_the_note_still_counts() -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a", script=lambda _: None)
    stage.publish("poison")
    await stage.settle()
    (work,) = agent.held
    await agent.say_started(work)
    await stage.settle()
    stage.kill(stage.r1)
    await stage.router()
    await agent.end(work, KILLED)
    await stage.settle()
    assert [seen.outcome for seen in stage.outcomes("poison")] == [OutcomeClass.UNAVAILABLE]


async def test_whichever_router_finds_it_out_what_died_with_its_process_runs_alone_from_then_on() -> None:
    stage = Stage()
    await stage.router("r1")
    await stage.router("r2")
    dead = await stage.agent("a", slots=6, script=lambda _: None, capability_cost=1)
    for number in range(6):
        stage.publish(f"t{number}")
    await stage.pass_time(3)
    had = {work.task_id for work in dead.held}
    assert {work.dispatch.owner for work in dead.held} == {"r1", "r2"}
    dead.die()
    other = await stage.agent("b", slots=6, script=lambda _: None, capability_cost=5)
    await stage.pass_time(12)
    suspected: dict[str, bool] = {}
    while len(suspected) < 6:
        for work in list(other.held):
            suspected[work.task_id] = work.dispatch.envelope.crashes == 1
            await other.end(work)
        await stage.pass_time(3)
    assert {task_id for task_id, alone in suspected.items() if alone} == had
