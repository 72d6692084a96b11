"""Legs that are given up because no word can come of them any more, and those of which one still may."""

import pytest

from reach_worker.core.outcome import OutcomeClass
from tests.services.scripted import Reply, hold, leg, succeed
from tests.services.stage import Stage


async def test_its_attempt_and_its_dispatch_are_told() -> None:
    stage = Stage()
    await stage.router()
    a = await stage.agent("a", script=hold)
    stage.publish("t", mode="fanout", deadline_ms=900_000)
    await stage.settle()
    await a.end(leg(a), Reply(OutcomeClass.FAILED, "a hiccup"))
    await stage.pass_time(5)
    stage.broker.delete_queue(stage.names.agent("a"))
    a.die()
    stage.kill(stage.r1)
    await stage.router("r1")
    await stage.pass_time(300)
    told = [(one.outcome, one.attempt) for one in stage.outcomes("t~0.1.a")]
    assert told == [(OutcomeClass.FAILED, 1), (OutcomeClass.TIMEOUT, 2)]
    assert stage.end("t~0.1.a").dispatch_id == stage.outcomes("t~0.1.a")[-1].dispatch_id


@pytest.mark.parametrize("kind", [OutcomeClass.FAILED, OutcomeClass.UNAVAILABLE])
async def test_an_outcome_that_comes_with_the_watch_is_not_overtaken_by_it(kind: OutcomeClass) -> None:
    """The router heard nothing for long, and then of everything at once."""
    stage = Stage()
    r1 = await stage.router()
    a = await stage.agent("a", script=hold)
    stage.publish("t", mode="fanout", deadline_ms=600_000)
    await stage.settle()
    r1.bus.disconnect()
    await a.end(leg(a), Reply(kind, "a hiccup"))
    a.script = succeed
    stage.clock.advance(200)
    r1.bus.connect()
    await stage.pass_time(60)
    await stage.come_to_rest()
    assert stage.outcomes("t~0.1.a")[-1].outcome is OutcomeClass.SUCCEEDED
    assert stage.answer("t")["status"] == "succeeded"
    assert len(stage.ends("t~0.1.a")) == 1


async def test_success_that_waits_while_all_routers_were_down_is_not_given_up() -> None:
    stage = Stage()
    await stage.two_routers()
    agents = [await stage.agent(name, script=hold) for name in ("a", "b")]
    for number in range(4):
        stage.publish(f"t{number}", mode="race")
    await stage.settle()
    held = [(agent, work) for agent in agents for work in agent.held]
    agent, work = next((a, w) for a, w in held if w.dispatch.owner != w.dispatch.envelope.group_owner)
    for router in list(stage.routers):
        stage.kill(router)
    await agent.end(work, Reply(result=b'"done"'))
    await stage.pass_time(200)
    await stage.router(work.dispatch.envelope.group_owner)
    await stage.router(work.dispatch.owner)
    await stage.pass_time(10)
    assert [one.outcome for one in stage.outcomes(work.task_id)] == [OutcomeClass.SUCCEEDED]
