"""Alive is not able: an instance that runs and completes nothing gets no more, until something is done again."""

from typing import Any

import pytest

from reach_worker.core.breaker import BreakerPolicy
from reach_worker.core.outcome import OutcomeClass
from reach_worker.core.presence import PresenceState
from reach_worker.core.slots import SlotPolicy
from tests.services.scripted import Reply, ScriptedAgent, succeed
from tests.services.stage import Stage

LONG_MS = 600_000


def presence(stage: Stage, router: int = 0) -> PresenceState:
    return stage.routers[router].desk.fleet.agents["a"].roster.state()


async def hung(stage: Stage, **fields: Any) -> ScriptedAgent:
    """An agent with four slots, three of them held by tasks that do not end; what the router gave up is there too."""
    agent = await stage.agent("a", slots=4, script=lambda _: None, **fields)
    for number in range(3):
        stage.publish(f"t{number}")
    await stage.settle()
    assert len(agent.held) == 3
    return agent


async def test_it_is_suspect_stalled_gets_nothing_new_and_is_told_to_stop_consuming() -> None:
    stage = Stage()
    await stage.router()
    agent = await hung(stage)
    await stage.pass_time(118)
    assert (presence(stage), agent.told) == (PresenceState.ACTIVE, [])
    await stage.pass_time(6)
    assert presence(stage) is PresenceState.STALLED
    assert presence(stage).value == "suspect: stalled"
    assert set(agent.told) == {"pause"}
    assert ("stop", "work") in agent.bus.journal
    ran = agent.ran.total()
    stage.publish("next")
    await stage.pass_time(6)
    assert agent.ran.total() == ran
    reason = stage.r1.desk.hands.waiting["next"].reason
    assert reason == "a: stalled: 4 running, nothing completed for 124 s"


async def test_it_goes_on_when_something_is_done_again() -> None:
    stage = Stage()
    await stage.router()
    agent = await hung(stage)
    await stage.pass_time(124)
    stage.publish("next")
    await stage.pass_time(3)
    assert not stage.dispatches("next")
    agent.script = succeed
    await agent.end(agent.held[0])
    await stage.pass_time(4)
    assert presence(stage) is PresenceState.ACTIVE
    assert agent.told[-1] == "resume"
    assert agent.told.count("resume") == 1
    assert stage.answer("next")["agent"] == "a"


async def test_others_do_meanwhile_what_it_cannot() -> None:
    stage = Stage()
    await stage.router()
    await hung(stage, capability_cost=1)
    await stage.pass_time(124)
    await stage.agent("b", slots=1, capability_cost=5)
    stage.publish("next")
    await stage.settle()
    assert stage.answer("next")["agent"] == "b"


async def test_what_waits_in_its_queue_is_taken_back() -> None:
    stage = Stage(slots=SlotPolicy(head_start_s=5.0))
    await stage.router()
    agent = await stage.agent("a", slots=1)
    stage.publish("quick")
    await stage.settle()
    agent.script = lambda _: None
    stage.publish("stuck")
    await stage.pass_time(118)
    stage.publish("behind")
    await stage.settle()
    assert stage.ready()["agent.a"] >= 1
    await stage.pass_time(6)
    assert presence(stage) is PresenceState.STALLED
    assert "agent.a" not in stage.ready()
    assert stage.r1.leases == 0
    waiting = stage.r1.desk.hands.waiting["behind"]
    assert waiting.admitted.envelope.next_attempt == 1


@pytest.mark.parametrize("routers", [1, 2])
async def test_what_may_take_longer_is_waited_for(routers: int) -> None:
    """The second router did not send it: it goes by what the agent declares."""
    stage = Stage()
    for number in range(routers):
        await stage.router(f"r{number + 1}")
    agent = await stage.agent("a", slots=1, script=lambda _: None, capability_timeout_ms=LONG_MS)
    stage.publish("t1")
    await stage.settle()
    await stage.pass_time(600, step=3)
    assert [presence(stage, router) for router in range(routers)] == [PresenceState.ACTIVE] * routers
    await stage.pass_time(9, step=3)
    assert agent.told[:1] == ["pause"]


async def test_one_that_does_not_count_is_never_stalled() -> None:
    stage = Stage()
    await stage.router()
    agent = await hung(stage)
    agent.counts = False
    await stage.pass_time(200, step=3)
    assert (presence(stage), agent.told) == (PresenceState.ACTIVE, [])


async def test_a_router_that_was_away_calls_nobody_stalled_for_it() -> None:
    stage = Stage()
    r1 = await stage.router()
    agent = await hung(stage, capability_timeout_ms=1_000)
    await stage.pass_time(60)
    r1.bus.disconnect()
    stage.clock.advance(100)
    agent.completed += 1
    r1.bus.connect()
    await r1.turn()
    assert presence(stage) is PresenceState.ACTIVE


async def test_an_agent_that_was_away_has_no_streak_of_failures() -> None:
    stage = Stage(breaker=BreakerPolicy(streak=3, rate_floor=None))
    await stage.router()
    agent = await stage.agent("a", script=lambda _: Reply(OutcomeClass.FAILED))
    for number in range(2):
        stage.publish(f"t{number}")
    await stage.settle()
    breaker = stage.r1.desk.fleet.agents["a"].breaker
    assert breaker.streak == 2
    agent.alive = False
    await stage.pass_time(10)
    assert presence(stage) is PresenceState.SUSPECT
    agent.alive = True
    agent.script = succeed
    await agent.beat()
    await stage.r1.turn()
    assert breaker.streak == 0
