"""Breakers: an agent that fails gets nothing more, its backlog goes elsewhere, one probe finds out whether it is well."""

from collections import Counter

from reach_worker.core.breaker import BreakerPolicy, BreakerState
from reach_worker.core.outcome import OutcomeClass
from reach_worker.ports import BreakerMoved
from tests.services.scripted import Reply, always, succeed
from tests.services.stage import Stage

ONE_FAILURE = BreakerPolicy(streak=1, open_s=30.0)


def state(stage: Stage, agent_id: str = "a") -> BreakerState:
    return stage.r1.desk.fleet.agents[agent_id].breaker.state


async def test_it_opens_after_the_streak_and_the_others_take_over() -> None:
    stage = Stage(breaker=BreakerPolicy(streak=3))
    await stage.router()
    bad = await stage.agent("a", script=always(OutcomeClass.FAILED, "broken"), capability_cost=1)
    await stage.agent("b", script=succeed, capability_cost=5)
    for number in range(10):
        stage.publish(f"t{number}")
        await stage.pass_time(2)
    assert bad.ran.total() == 3
    assert state(stage) is BreakerState.OPEN
    assert [stage.answer(f"t{number}")["agent"] for number in range(10)] == ["b"] * 10
    (moved,) = stage.rows(BreakerMoved)
    assert (moved.agent_id, moved.state) == ("a", "open")
    assert "broken" in moved.reason


async def test_the_backlog_is_taken_back_and_goes_elsewhere_with_no_attempt_spent() -> None:
    stage = Stage(breaker=BreakerPolicy(streak=1))
    await stage.router()
    bad = await stage.agent("a", slots=10, script=lambda _: None, capability_cost=1)
    await bad.take_at_once(0)
    for number in range(10):
        stage.publish(f"t{number}")
    await stage.settle()
    assert stage.ready()["agent.a"] == 10
    await stage.agent("b", slots=10, script=succeed, capability_cost=5)
    await bad.take_at_once(1)
    await stage.settle()
    (work,) = bad.held
    await bad.take_at_once(0)
    await bad.end(work, Reply(OutcomeClass.FAILED))
    await stage.pass_time(2)
    attempts = {f"t{number}": stage.answer(f"t{number}")["attempt"] for number in range(1, 10)}
    agents = Counter(stage.answer(f"t{number}")["agent"] for number in range(1, 10))
    others = [name for name in attempts if name not in bad.ran]
    assert agents == {"b": 9}
    assert {attempts[name] for name in others} == {1}
    assert not stage.letters()


async def test_with_every_breaker_open_tasks_wait_and_lose_nothing() -> None:
    stage = Stage(breaker=ONE_FAILURE)
    await stage.router()
    agent = await stage.agent("a", slots=5, script=always(OutcomeClass.FAILED))
    stage.publish("first")
    await stage.settle()
    agent.script = succeed
    for number in range(50):
        stage.publish(f"t{number}")
    await stage.pass_time(29)
    assert agent.ran == {"first": 1}
    assert not stage.letters()
    await stage.pass_time(30)
    assert [stage.answer(f"t{number}")["attempt"] for number in range(50)] == [1] * 50


async def test_half_open_one_of_a_hundred_goes() -> None:
    stage = Stage(breaker=ONE_FAILURE)
    await stage.router()
    agent = await stage.agent("a", slots=50, script=always(OutcomeClass.FAILED))
    stage.publish("first")
    await stage.settle()
    agent.script = lambda _: None
    for number in range(100):
        stage.publish(f"t{number}")
    await stage.pass_time(28)
    assert agent.ran.total() == 1
    await stage.pass_time(20)
    assert len(agent.held) == 1
    assert agent.ran.total() == 2
    assert stage.r1.leases == 1
    agent.script = succeed
    await agent.end(agent.held[0])
    await stage.pass_time(5)
    assert agent.ran.total() == 102
    assert [count for task_id, count in agent.ran.items() if task_id != "first"] == [1] * 100


async def test_a_probe_that_is_not_picked_up_yet_is_left_alone() -> None:
    stage = Stage(breaker=ONE_FAILURE)
    await stage.router()
    agent = await stage.agent("a", script=always(OutcomeClass.FAILED))
    stage.publish("first")
    await stage.settle()
    await agent.take_at_once(0)
    agent.script = succeed
    await stage.pass_time(40)
    assert state(stage) is BreakerState.HALF_OPEN
    assert len(stage.dispatches("first")) == 2
    await agent.take_at_once(1)
    await stage.settle()
    assert state(stage) is BreakerState.CLOSED
    assert stage.answer("first")["attempt"] == 2


async def test_a_failed_probe_opens_it_again_and_longer() -> None:
    stage = Stage(breaker=BreakerPolicy(streak=1, open_s=30.0, growth=4.0))
    await stage.router()
    agent = await stage.agent("a", script=always(OutcomeClass.FAILED))
    stage.publish("t1")
    await stage.pass_time(32)
    assert agent.ran.total() == 2
    await stage.pass_time(32)
    assert agent.ran.total() == 2
    assert state(stage) is BreakerState.OPEN


async def test_a_probe_that_comes_back_unrun_is_free_again() -> None:
    stage = Stage(breaker=ONE_FAILURE)
    await stage.router()
    replies = [Reply(OutcomeClass.FAILED), Reply(OutcomeClass.RELEASED, started=False)]
    agent = await stage.agent("a", script=lambda _: replies.pop(0) if replies else Reply())
    stage.publish("t1")
    await stage.pass_time(34)
    assert agent.ran.total() == 3
    assert state(stage) is BreakerState.CLOSED


async def test_tasks_in_the_lane_keep_their_order_through_the_probe() -> None:
    stage = Stage(breaker=ONE_FAILURE)
    await stage.router()
    agent = await stage.agent("a", slots=5, script=always(OutcomeClass.FAILED))
    stage.publish("first")
    await stage.settle()
    await stage.pass_time(1)
    for number in range(20):
        stage.publish(f"t{number:02}")
    agent.ran.clear()
    agent.script = succeed
    await stage.pass_time(28)
    assert not agent.ran
    await stage.pass_time(30)
    assert [task_id for task_id in agent.ran if task_id != "first"] == [
        f"t{number:02}" for number in range(20)
    ]


async def test_the_callers_own_too_short_time_does_not_touch_the_breaker() -> None:
    stage = Stage(breaker=ONE_FAILURE)
    await stage.router()
    await stage.agent("a", script=always(OutcomeClass.TIMEOUT), capability_timeout_ms=8_000)
    stage.publish("t1", deadline_ms=2_000)
    await stage.pass_time(5)
    assert state(stage) is BreakerState.CLOSED
    assert stage.answer("t1")["reason"] == "expired"


async def test_a_bad_payload_does_not_touch_the_breaker() -> None:
    stage = Stage(breaker=ONE_FAILURE)
    await stage.router()
    await stage.agent("a", script=always(OutcomeClass.BAD_REQUEST))
    stage.publish("t1")
    await stage.settle()
    assert state(stage) is BreakerState.CLOSED


async def test_one_agent_alone_is_guarded_too() -> None:
    stage = Stage(breaker=BreakerPolicy(streak=3))
    await stage.router()
    agent = await stage.agent("a", script=always(OutcomeClass.FAILED))
    for number in range(20):
        stage.publish(f"t{number}")
    await stage.pass_time(20)
    assert agent.ran.total() == 3
    assert not stage.letters()
