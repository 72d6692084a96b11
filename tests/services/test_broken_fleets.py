"""Breakers seen over a whole fleet: how many may be open, how work comes back, and one that only observes."""

import logging

import pytest

from reach_worker.core.breaker import BreakerPolicy, BreakerState
from reach_worker.core.outcome import OutcomeClass
from reach_worker.core.policy import RoutingPolicy
from reach_worker.ports import BreakerMoved
from reach_worker.testing import Fate
from tests.services.scripted import Reply, Script, ScriptedAgent, always, succeed
from tests.services.stage import Stage, rules

ONE_FAILURE = BreakerPolicy(streak=1, open_s=30.0)
BY_RATE = BreakerPolicy(streak=1000, open_s=300.0, min_samples=4.0)


def state(stage: Stage, agent_id: str = "a") -> BreakerState:
    return stage.r1.desk.fleet.agents[agent_id].breaker.state


async def test_at_most_half_are_open_by_rate_and_the_log_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    spread = rules(routing=RoutingPolicy(preset="declared", tie_break="spread"))
    stage = Stage(breaker=BY_RATE, policies=spread)
    await stage.router()
    for name in "abcd":
        await stage.agent(name, slots=4, script=always(OutcomeClass.FAILED))
    with caplog.at_level(logging.WARNING):
        for number in range(40):
            stage.publish(f"t{number}")
            await stage.pass_time(1)
    opened = [name for name in "abcd" if state(stage, name) is BreakerState.OPEN]
    assert len(opened) == 2
    assert sorted(row.agent_id for row in stage.rows(BreakerMoved)) == opened
    said = [record.getMessage() for record in caplog.records if "succeeds too rarely" in record.getMessage()]
    assert sorted(text[0] for text in said) == sorted(set("abcd") - set(opened))


async def test_with_all_open_tasks_wait_for_the_first_probe_and_say_for_which() -> None:
    stage = Stage(breaker=ONE_FAILURE)
    await stage.router()
    agents = [await stage.agent(name, script=always(OutcomeClass.FAILED)) for name in "ab"]
    stage.publish("t1")
    await stage.pass_time(6)
    assert [state(stage, name) for name in "ab"] == [BreakerState.OPEN] * 2
    for agent in agents:
        agent.script = succeed
    stage.publish("t2")
    await stage.settle()
    waiting = stage.r1.desk.hands.waiting["t2"]
    assert waiting.reason.startswith("all 2 breakers are open, a is asked first, in 2")
    await stage.pass_time(28)
    assert (stage.answer("t2")["agent"], stage.answer("t2")["attempt"]) == ("a", 1)


# ---------------------------------------------------------------- in steps


async def broken_and_closed(stage: Stage, slots: int) -> ScriptedAgent:
    """An agent whose breaker has just been closed by its probe. It holds what it gets from now on."""
    await stage.router()
    agent = await stage.agent("a", slots=slots, script=always(OutcomeClass.FAILED))
    stage.publish("first")
    await stage.settle()
    agent.script = succeed
    await stage.pass_time(34)
    assert state(stage) is BreakerState.CLOSED
    agent.script = lambda _: None
    return agent


async def end_some(stage: Stage, agent: ScriptedAgent, count: int, reply: Reply | None = None) -> None:
    for _ in range(count):
        await agent.end(agent.held[0], reply)
        await stage.settle()


async def test_slots_come_back_in_steps() -> None:
    stage = Stage(breaker=ONE_FAILURE)
    agent = await broken_and_closed(stage, slots=8)
    for number in range(30):
        stage.publish(f"t{number}")
    await stage.settle()
    seen = [len(agent.held)]
    for _ in range(3):
        await end_some(stage, agent, 5)
        seen.append(len(agent.held))
    assert seen == [1, 2, 4, 8]


async def test_a_task_that_waits_for_a_step_says_so() -> None:
    stage = Stage(breaker=ONE_FAILURE)
    agent = await broken_and_closed(stage, slots=8)
    for number in range(20):
        stage.publish(f"t{number}")
    await stage.settle()
    await end_some(stage, agent, 5)
    stage.publish("late")
    await stage.settle()
    decision = stage.r1.desk.hands.waiting
    assert {one.reason for one in decision.values()} <= {
        "a: slots come back in steps, 2 of 8 now",
        "a: slots come back in steps, 1 of 8 now",
        "others of its capability are ahead",
    }
    assert "a: slots come back in steps, 1 of 8 now" in {one.reason for one in decision.values()}


async def test_a_failure_on_the_way_up_opens_by_the_same_rules() -> None:
    stage = Stage(breaker=BreakerPolicy(streak=2, open_s=30.0))
    await stage.router()
    agent = await stage.agent("a", slots=8, script=always(OutcomeClass.FAILED))
    for number in range(2):
        stage.publish(f"first{number}")
    await stage.settle()
    agent.script = succeed
    await stage.pass_time(40)
    agent.script = lambda _: None
    for number in range(4):
        stage.publish(f"t{number}")
    await stage.settle()
    await end_some(stage, agent, 1, Reply(OutcomeClass.FAILED))
    assert state(stage) is BreakerState.CLOSED
    await end_some(stage, agent, 1, Reply(OutcomeClass.FAILED))
    assert state(stage) is BreakerState.OPEN


# ------------------------------------------------------------- observing


async def test_one_that_observes_takes_nothing_away_and_records_what_it_would_have_done() -> None:
    stage = Stage(breaker=BreakerPolicy(streak=2, open_s=30.0, mode="observe"))
    await stage.router()
    agent = await stage.agent("a", slots=8, script=always(OutcomeClass.FAILED, "broken"))
    for number in range(4):
        stage.publish(f"t{number}")
    await stage.settle()
    assert agent.ran.total() == 4
    agent.script = lambda _: None
    for number in range(8):
        stage.publish(f"u{number}")
    await stage.pass_time(3)
    assert len(agent.held) == 8
    agent.script = succeed
    for work in list(agent.held):
        await agent.end(work)
    await stage.pass_time(31)
    stage.publish("probe")
    await stage.settle()
    assert [(row.agent_id, row.state) for row in stage.rows(BreakerMoved)] == [
        ("a", "open (observed)"),
        ("a", "closed (observed)"),
    ]
    assert "broken" in stage.rows(BreakerMoved)[0].reason


# ------------------------------------------------------- released dispatches


@pytest.mark.parametrize("kind", [OutcomeClass.RELEASED, OutcomeClass.CANCELLED])
async def test_a_probe_that_was_not_run_gives_back_slot_and_probe_and_counts_as_nothing(
    kind: OutcomeClass,
) -> None:
    stage = Stage(breaker=ONE_FAILURE)
    await stage.router()
    agent = await stage.agent("a", slots=2, script=always(OutcomeClass.FAILED))
    stage.publish("first")
    await stage.settle()
    agent.script = lambda _: None
    await stage.pass_time(34)
    breaker = stage.r1.desk.fleet.agents["a"].breaker
    record = stage.r1.desk.fleet.record.touch("a", "text.echo")
    before = (record.slow.tries, record.rejections.tries, breaker.failed_probes)
    (probe,) = agent.held
    assert breaker.probe == probe.dispatch.dispatch_id
    stage.publish("next")
    await stage.settle()
    assert len(agent.held) == 1
    await agent.end(probe, Reply(kind, started=False))
    await stage.settle()
    assert breaker.state is BreakerState.HALF_OPEN
    assert breaker.probe == agent.held[0].dispatch.dispatch_id != probe.dispatch.dispatch_id
    assert stage.r1.leases == 1
    assert (record.slow.tries, record.rejections.tries, breaker.failed_probes) == before


async def test_a_probe_that_the_broker_did_not_take_is_free_at_once() -> None:
    stage = Stage(breaker=ONE_FAILURE)
    await stage.router()
    agent = await stage.agent("a", script=_first_fails())
    stage.publish("first")
    await stage.pass_time(29)
    stage.r1.bus.fail_next(Fate.REFUSED, to="agent.a")
    await stage.pass_time(4)
    assert stage.answer("first")["status"] == "succeeded"
    assert agent.ran["first"] == 2
    assert stage.r1.leases == 0


def _first_fails() -> Script:
    replies = [Reply(OutcomeClass.FAILED)]
    return lambda _: replies.pop() if replies else Reply()
