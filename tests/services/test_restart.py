"""A router that starts again: what was out settles once, what it knew it remembers, what is late changes nothing."""

import pytest

from reach_worker.core.backoff import RetryPolicy
from reach_worker.core.breaker import BreakerPolicy, BreakerState
from reach_worker.core.duplicates import TaskState
from reach_worker.core.outcome import OutcomeClass
from reach_worker.ports import Standing
from tests.services.scripted import Reply, always, succeed
from tests.services.stage import Stage, rules


async def test_an_outcome_that_comes_after_the_restart_ends_the_task_once() -> None:
    stage = Stage()
    r1 = await stage.router()
    agent = await stage.agent("a", script=lambda _: None)
    stage.publish("t1")
    await stage.settle()
    stage.kill(r1)
    r1 = await stage.router()
    assert r1.leases == 1
    await agent.end(agent.held[0])
    await stage.settle()
    assert stage.end("t1").state is TaskState.SUCCEEDED
    assert stage.answer("t1")["status"] == "succeeded"
    assert r1.leases == 0


async def test_a_retry_after_the_restart_keeps_caller_history_and_budget() -> None:
    stage = Stage(policies=rules(retry=RetryPolicy(max_retries=2)))
    r1 = await stage.router()
    agent = await stage.agent("a", script=lambda _: None)
    stage.publish("t1", user_id="boss", deadline_ms=600_000)
    for _ in range(3):
        await stage.pass_time(3)
        (work,) = agent.held
        assert work.dispatch.envelope.caller == "boss"
        assert work.dispatch.envelope.deadline is not None
        stage.kill(r1)
        r1 = await stage.router(settled=False)
        await stage.settle()
        await agent.end(work, Reply(OutcomeClass.FAILED))
    await stage.pass_time(5)
    assert agent.ran["t1"] == 3
    assert stage.answer("t1")["reason"] == "attempts_exhausted"
    assert [attempt["attempt"] for attempt in stage.answer("t1")["attempts"]] == [1, 2, 3]


@pytest.mark.parametrize("known", [True, False])
async def test_slots_taken_before_the_restart_stay_taken_until_word_comes_or_time_is_up(known: bool) -> None:
    stage = Stage()
    r1 = await stage.router()
    agent = await stage.agent("a", script=lambda _: None)
    stage.publish("t1")
    await stage.settle()
    stage.kill(r1)
    r1 = await stage.router()
    stage.publish("t2")
    await stage.settle()
    assert len(stage.dispatches("t2")) == 0
    if known:
        await agent.end(agent.held[0])
        await stage.settle()
    else:
        await stage.pass_time(80, step=1)
    assert len(stage.dispatches("t2")) == 1


async def test_it_remembers_statistics_and_manifests_and_forgives_breakers() -> None:
    stage = Stage(breaker=BreakerPolicy(streak=1))
    r1 = await stage.router()
    await stage.agent("a", script=always(OutcomeClass.FAILED))
    stage.publish("t1")
    await stage.settle()
    assert r1.desk.fleet.agents["a"].breaker.state is BreakerState.OPEN
    stage.kill(r1)
    r1 = await stage.router(settled=False)
    assert r1.desk.fleet.agents["a"].breaker.state is BreakerState.CLOSED
    track = r1.desk.fleet.record.of("a", "text.echo")
    assert track is not None
    assert track.success() == 0.0


async def test_a_second_outcome_is_recorded_as_stale_and_changes_nothing() -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a", script=lambda _: None)
    stage.publish("t1")
    await stage.settle()
    (work,) = agent.held
    await agent.end(work)
    await stage.settle()
    await agent.send_outcome(work, Reply(OutcomeClass.FAILED, "too late"))
    await stage.settle()
    current, stale = stage.outcomes("t1")
    assert (current.standing, stale.standing) == (Standing.CURRENT, Standing.STALE)
    assert "settled before" in stale.message
    assert "too late" in stale.message
    assert stage.end("t1").state is TaskState.SUCCEEDED
    assert stage.r1.desk.fleet.agents["a"].breaker.streak == 0
    assert stage.r1.desk.counts.stale_outcomes == 1


async def test_the_same_outcome_twice_in_one_turn_counts_once() -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a", script=lambda _: None)
    for number, kind in enumerate((OutcomeClass.SUCCEEDED, OutcomeClass.FAILED, OutcomeClass.BAD_REQUEST)):
        stage.publish(f"t{number}")
        await stage.settle()
        (work,) = agent.held
        await agent.send_outcome(work, Reply(kind))
        await agent.end(work, Reply(kind))
        agent.script = lambda _: None
        await stage.settle()
    assert [row.standing for row in stage.outcomes("t0")] == [Standing.CURRENT, Standing.STALE]
    assert [row.standing for row in stage.outcomes("t1")] == [Standing.CURRENT, Standing.STALE]
    assert len(stage.answers()) == 2
    assert sum(count for name, count in stage.ready().items() if name.startswith("retry.")) == 1
    assert len(stage.letters()) == 1


async def test_a_late_outcome_of_a_dispatch_that_was_given_up_changes_nothing() -> None:
    stage = Stage()
    await stage.router()
    slow = await stage.agent("a", script=lambda _: None, capability_cost=1)
    await stage.agent("b", script=succeed, capability_cost=5)
    stage.publish("t1")
    await stage.settle()
    (work,) = slow.held
    await stage.pass_time(90, step=3)
    assert stage.answer("t1")["agent"] == "b"
    streak = stage.r1.desk.fleet.agents["a"].breaker.streak
    await slow.end(work)
    await stage.settle()
    assert len(stage.answers()) == 1
    assert stage.outcomes("t1")[-1].standing is Standing.STALE
    assert stage.r1.desk.fleet.agents["a"].breaker.streak == streak


async def test_no_word_from_an_agent_ends_by_the_routers_own_clock() -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a", script=lambda _: None, capability_timeout_ms=5_000)
    stage.publish("t1")
    await stage.pass_time(72, step=1)
    assert not stage.outcomes("t1")
    await stage.pass_time(10, step=1)
    assert stage.outcomes("t1")[0].outcome is OutcomeClass.TIMEOUT
    assert "no word from a" in stage.outcomes("t1")[0].message


async def test_an_outcome_without_its_owners_queue_arrives_by_returns() -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a", script=lambda _: None)
    stage.publish("t1")
    await stage.settle()
    (work,) = agent.held
    await agent.send_outcome(work, Reply(), queue=stage.names.returns)
    await stage.settle()
    assert stage.end("t1").state is TaskState.SUCCEEDED
    assert stage.r1.leases == 0


async def test_a_dispatch_that_nobody_picked_up_comes_back_and_costs_nothing() -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a")
    await agent.take_at_once(0)
    stage.publish("t1")
    await stage.pass_time(59)
    assert stage.ready() == {"agent.a": 1}
    await stage.pass_time(2)
    assert stage.outcomes("t1")[0].outcome is OutcomeClass.RELEASED
    await agent.take_at_once(1)
    await stage.pass_time(3)
    assert stage.answer("t1")["attempt"] == 1


async def test_a_dispatch_that_kills_its_agent_again_and_again_is_poison() -> None:
    stage = Stage(breaker=BreakerPolicy(streak=100, rate_floor=None))
    await stage.router()
    agent = await stage.agent("a", script=lambda _: None)
    stage.publish("t1")
    for _ in range(4 * 25):
        await stage.settle(rounds=3)
        agent.bus.end_session()
        agent.held.clear()
        await agent.introduce()
        await stage.pass_time(0.5)
    await stage.pass_time(20)
    assert stage.letter().reason.value == "poison"
    assert len(stage.letter().envelope.attempts) == 4
    assert {attempt.outcome for attempt in stage.letter().envelope.attempts} == {OutcomeClass.UNAVAILABLE}
