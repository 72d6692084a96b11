"""Agents that fall silent, die, and come back: what they had goes elsewhere, and nothing is lost."""

import logging

import pytest

from reach_worker.core.outcome import OutcomeClass
from reach_worker.core.presence import PresenceState
from tests.services.scripted import ScriptedAgent, manifest, succeed
from tests.services.stage import Stage


def presence(stage: Stage, agent_id: str = "a") -> PresenceState:
    return stage.r1.desk.fleet.agents[agent_id].roster.state()


async def test_one_that_is_killed_is_known_by_its_probe_and_its_work_goes_elsewhere() -> None:
    stage = Stage()
    await stage.router()
    dead = await stage.agent("a", slots=3, script=lambda _: None, capability_cost=1)
    alive = await stage.agent("b", slots=3, script=succeed, capability_cost=5)
    for number in range(3):
        stage.publish(f"t{number}")
    await stage.settle()
    assert len(dead.held) == 3
    dead.die()
    await stage.pass_time(8)
    assert alive.ran.total() == 0
    await stage.pass_time(12)
    assert presence(stage) is PresenceState.DEAD
    assert [stage.answer(f"t{number}")["agent"] for number in range(3)] == ["b"] * 3
    assert stage.unacknowledged() == 0
    assert stage.r1.leases == 0


async def test_what_it_had_when_it_died_costs_no_attempt_the_first_time_and_runs_alone_then() -> None:
    """Of all that it had, one may have killed it: nobody knows which."""
    stage = Stage()
    await stage.router()
    dead = await stage.agent("a", slots=4, script=lambda _: None, capability_cost=1)
    await dead.take_at_once(1)
    for number in range(4):
        stage.publish(f"t{number}")
    await stage.pass_time(3)
    (running,) = dead.held
    dead.die()
    other = await stage.agent("b", slots=4, script=lambda _: None, capability_cost=5)
    await stage.pass_time(12)
    suspects = [work.task_id for work in other.held if work.dispatch.envelope.crashes == 1]
    assert suspects == [running.task_id]
    for work in list(other.held):
        await other.end(work)
    await stage.settle()
    assert {stage.answer(f"t{number}")["attempt"] for number in range(4)} == {1}
    assert [row.outcome for row in stage.outcomes(running.task_id)] == [
        OutcomeClass.RELEASED,
        OutcomeClass.SUCCEEDED,
    ]


async def test_what_died_with_its_process_when_it_ran_alone_costs_an_attempt() -> None:
    stage = Stage()
    await stage.router()
    first = await stage.agent("a", script=lambda _: None, capability_cost=1)
    stage.publish("t1")
    await stage.pass_time(3)
    first.die()
    second = await stage.agent("b", script=lambda _: None, capability_cost=5)
    await stage.pass_time(12)
    assert [work.dispatch.envelope.crashes for work in second.held] == [1]
    await stage.pass_time(3)
    second.die()
    await stage.agent("c", capability_cost=5)
    await stage.pass_time(14)
    assert stage.answer("t1")["attempt"] == 2
    assert [row.outcome for row in stage.outcomes("t1")] == [
        OutcomeClass.RELEASED,
        OutcomeClass.UNAVAILABLE,
        OutcomeClass.SUCCEEDED,
    ]


async def test_one_that_hangs_is_dead_only_after_the_long_silence() -> None:
    stage = Stage()
    await stage.router()
    hung = await stage.agent("a", script=lambda _: None)
    hung.alive = False
    await stage.pass_time(10)
    assert presence(stage) is PresenceState.SUSPECT
    await stage.pass_time(28)
    assert presence(stage) is PresenceState.SUSPECT
    await stage.pass_time(5)
    assert presence(stage) is PresenceState.DEAD


async def test_one_that_answers_its_probe_never_left() -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a")
    agent.alive = False
    await stage.pass_time(9.5)
    assert presence(stage) is PresenceState.SUSPECT
    agent.alive = True
    await stage.settle()
    assert presence(stage) is PresenceState.ACTIVE


async def test_a_suspect_gets_nothing_new() -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a")
    agent.alive = False
    await stage.pass_time(9.5)
    stage.publish("t1")
    await stage.settle()
    assert not stage.dispatches("t1")
    assert stage.ready() == {}
    agent.alive = True
    await stage.settle()
    assert stage.answer("t1")["agent"] == "a"


async def test_one_that_says_goodbye_gets_nothing_more(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a")
    await agent.stop()
    stage.publish("t1")
    await stage.pass_time(2)
    assert presence(stage) is PresenceState.DEAD
    assert not stage.dispatches("t1")
    assert not stage.answers()
    assert f"a instance {agent.instance_id} is stopping: it takes no more tasks" in caplog.text


async def test_one_that_comes_back_gets_work_again() -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a")
    agent.die()
    await stage.pass_time(15)
    stage.publish("t1")
    await stage.pass_time(5)
    assert not stage.answers()
    await agent.start()
    await stage.settle()
    assert stage.answer("t1")["status"] == "succeeded"


async def test_a_router_that_knows_nobody_asks_and_the_task_waits() -> None:
    stage = Stage()
    await stage.router()
    stage.publish("t1")
    stage.publish("t2", "text.nobody")
    await stage.pass_time(120)
    assert stage.ready() == {"intake": 2}
    await stage.agent("a")
    await stage.settle()
    assert stage.answer("t1")["attempt"] == 1
    assert stage.answer("t2")["status"] == "unmatched"


async def test_a_known_agent_that_is_away_is_a_wait_not_an_end() -> None:
    stage = Stage()
    await stage.router(manifests=[manifest("a")])
    stage.publish("t1")
    await stage.pass_time(120)
    assert not stage.answers()
    assert stage.ready() == {"lane.text.echo": 1}
    assert not stage.letters()
    await stage.agent("a")
    await stage.pass_time(3)
    assert stage.answer("t1")["attempt"] == 1


async def test_slots_are_the_sum_over_the_instances() -> None:
    stage = Stage()
    await stage.router()
    first = await stage.agent("a", slots=2, script=lambda _: None)
    second = ScriptedAgent(stage.broker, first.manifest, lambda _: None, "2")
    stage.agents.append(second)
    await second.start()
    await stage.settle()
    for number in range(6):
        stage.publish(f"t{number}")
    await stage.settle()
    assert stage.r1.leases == 4
    second.die()
    await stage.pass_time(12)
    assert stage.r1.desk.fleet.agents["a"].roster.slots() == 2


async def test_an_instance_that_registers_again_replaces_its_earlier_state() -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a", slots=2)
    agent.die()
    await agent.start()
    await stage.settle()
    assert stage.r1.desk.fleet.agents["a"].roster.slots() == 2
    await stage.pass_time(15)
    assert presence(stage) is PresenceState.ACTIVE


async def test_a_new_session_of_the_router_suspects_nobody_for_its_own_absence() -> None:
    stage = Stage()
    r1 = await stage.router()
    await stage.agent("a")
    r1.bus.disconnect()
    stage.clock.advance(60)
    r1.bus.connect()
    await stage.settle()
    assert presence(stage) is PresenceState.ACTIVE
    stage.publish("t1")
    await stage.settle()
    assert stage.answer("t1")["status"] == "succeeded"


async def test_announcements_that_cannot_be_read_change_nothing(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a")
    bus = stage.agents[0].bus
    with caplog.at_level(logging.WARNING):
        for key in ("presence.a", "manifest.a", "router.x", "other.x"):
            for body in (b"", b"[]", b"{}", b"\xff", b'{"agent": 1}'):
                await stage.agents[0]._say(key, body)  # noqa: SLF001 - one of the tests' own
    await stage.settle()
    stage.publish("t1")
    await stage.settle()
    assert stage.answer("t1")["status"] == "succeeded"
    assert bus.ready
