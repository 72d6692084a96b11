"""A dispatch came back unrun, and had run after all: one router goes on with it, the other one settles its outcome."""

from reach_worker.core.duplicates import TaskState
from reach_worker.core.outcome import OutcomeClass
from reach_worker.ports import Claimed
from reach_worker.testing import Fate
from tests.services.scripted import Reply, ScriptedAgent, Work, succeed
from tests.services.stage import OnStage, Stage

RESTS_S = 6.0
EXPIRED_S = 61


async def ran_on(stage: Stage, r1: OnStage, r2: OnStage) -> tuple[ScriptedAgent, Work]:
    """r1 has sent t1. Then all lost their connections, and the agent ran it all the same; r2 is not back yet."""
    agent = await stage.agent("a", script=lambda _: None)
    r2.bus.disconnect()
    stage.publish("t1")
    await stage.settle()
    (work,) = agent.held
    await agent.take_at_once(0)
    agent.bus.end_session()
    agent.held.clear()
    agent.script = succeed
    r1.bus.end_session()
    return agent, work


async def settled_by(router: OnStage, owner: OnStage, agent: ScriptedAgent, work: Work) -> None:
    """The agent's outcome comes to the router that stands by for the owner. That one goes on with the task."""
    router.bus.connect()
    await owner.bus.want("outcomes", wanted=False)
    await agent.send_outcome(work, Reply(OutcomeClass.FAILED))
    await router.turn()
    router.bus.disconnect()
    await owner.bus.want("outcomes", wanted=True)


async def test_the_retry_is_not_let_go_for_a_dispatch_that_waits() -> None:
    """Of what waits nothing but the dispatch comes again, which is settled. r1 gets the retry, then loses its session."""
    stage = Stage()
    r1, r2 = await stage.two_routers()
    agent, work = await ran_on(stage, r1, r2)
    stage.clock.advance(EXPIRED_S)
    await agent.beat()
    r1.desk.fleet.agents["a"].rests_until = stage.clock.monotonic() + RESTS_S
    await r1.turn(2)
    assert "t1" in r1.desk.hands.waiting
    await settled_by(r2, r1, agent, work)
    await stage.pass_time(2)
    assert not stage.ready(), "r1 has the retry too"
    r1.bus.end_session()
    await agent.take_at_once(1)
    await stage.pass_time(20)
    assert stage.end("t1").state is TaskState.SUCCEEDED
    assert stage.answer("t1")["attempt"] == 2, "the failure is known"
    assert stage.unacknowledged() == 0


async def test_the_retry_is_not_let_go_for_what_is_sent_in_the_same_turn() -> None:
    """Whether that goes out nobody knows yet. It does not, and then r1 dies."""
    stage = Stage()
    r1, r2 = await stage.two_routers()
    agent, work = await ran_on(stage, r1, r2)
    stage.clock.advance(EXPIRED_S - 1.5)
    stage.store.away = True
    await settled_by(r2, r1, agent, work)
    stage.clock.advance(1.5)
    await agent.beat()
    await r1.bus.trust("returns")
    r1.bus.fail_next(Fate.REFUSED, to=stage.names.agent("a"))
    await r1.turn()
    assert not stage.ready(), "r1 has both"
    stage.kill(r1)
    stage.store.away = False
    r2.bus.connect()
    await agent.take_at_once(1)
    await stage.pass_time(20)
    assert stage.end("t1").state is TaskState.SUCCEEDED
    assert stage.unacknowledged() == 0


async def test_what_waits_for_another_router_is_handled_again_as_if_it_had_not_been_settled() -> None:
    """r1 died and left no record of its dispatch, whose outcome it gets when it is back. r2 has begun with a copy."""
    stage = Stage()
    r1, r2 = await stage.two_routers()
    agent = await stage.agent("a", script=lambda _: None)
    await r2.bus.want("intake", wanted=False)
    await r2.bus.want(stage.names.outcomes("r1"), wanted=False)
    stage.store.away = True
    recorded = len(stage.store.rows)
    stage.publish("t1")
    await stage.settle()
    stage.kill(r1)
    del stage.store.rows[recorded:]
    stage.store.away = False
    await stage.store.record([Claimed("t1", 0, "r2", stage.clock.utc_us())])
    await agent.end(agent.held[0], Reply(OutcomeClass.RELEASED, started=False))
    r1 = await stage.router("r1", settled=False)
    await r1.turn()
    assert "t1" not in r1.desk.hands.waiting, "it is seen that r2 has it"
    agent.script = succeed
    await stage.pass_time(30)
    assert stage.end("t1").state is TaskState.SUCCEEDED
    assert stage.unacknowledged() == 0
