"""Several routers on one broker: each owns what it dispatched, and stands in for one that is gone."""

from collections import Counter

import pytest

from reach_worker.core.duplicates import TaskState
from reach_worker.core.outcome import DeadLetterReason, OutcomeClass
from reach_worker.ports import OutcomeSeen, Standing
from reach_worker.testing import Fate, Moment
from tests.services.scripted import Reply, always, succeed
from tests.services.stage import Killed, OnStage, Stage, die


async def test_each_binds_half_of_the_slots() -> None:
    stage = Stage()
    r1, r2 = await stage.two_routers()
    await stage.agent("a", slots=8, script=lambda _: None)
    for number in range(20):
        stage.publish(f"t{number}")
        await stage.settle()
    assert (r1.leases, r2.leases) == (4, 4)


async def test_an_odd_slot_is_rounded_up_and_one_slot_is_at_least_one() -> None:
    stage = Stage()
    r1, r2 = await stage.two_routers()
    await stage.agent("a", "text.a", slots=5, script=lambda _: None)
    await stage.agent("b", "text.b", slots=1, script=lambda _: None)
    for capability in ("a", "b"):
        for number in range(20):
            stage.publish(f"{capability}{number}", f"text.{capability}")
            await stage.settle()
    held = {agent: [r.desk.fleet.leases.held(agent) for r in (r1, r2)] for agent in ("a", "b")}
    assert held == {"a": [3, 3], "b": [1, 1]}


async def test_one_that_says_goodbye_leaves_all_slots_to_the_other() -> None:
    stage = Stage()
    r1, r2 = await stage.two_routers()
    await r2.router.drain()
    stage.kill(r2)
    await stage.settle()
    assert r1.desk.fleet.routers == 1


async def test_one_that_is_killed_is_counted_out_after_its_silence() -> None:
    stage = Stage()
    r1, r2 = await stage.two_routers()
    assert r1.desk.fleet.routers == 2
    stage.kill(r2)
    await stage.pass_time(14)
    assert r1.desk.fleet.routers == 1


async def test_a_fleet_and_two_routers_do_every_task_once() -> None:
    stage = Stage()
    await stage.two_routers()
    a = await stage.agent("a", slots=3)
    b = await stage.agent("b", slots=3)
    for number in range(60):
        stage.publish(f"t{number}")
    await stage.pass_time(5)
    assert set((a.ran + b.ran).values()) == {1}
    assert len(stage.answers()) == 60
    owners = Counter(row.router for number in range(60) for row in stage.dispatches(f"t{number}"))
    assert set(owners) == {"r1", "r2"}


async def test_a_duplicate_at_the_other_router_gets_the_one_answer() -> None:
    stage = Stage()
    r1, r2 = await stage.two_routers()
    agent = await stage.agent("a", slots=4, script=lambda _: None)
    await r2.bus.want("intake", wanted=False)
    stage.publish("t1", correlation_id="first")
    await stage.settle()
    await r2.bus.want("intake", wanted=True)
    await r1.bus.want("intake", wanted=False)
    stage.publish("t1", correlation_id="second")
    await stage.settle()
    assert stage.ready() == {}
    await agent.end(agent.held[0])
    await stage.settle()
    assert {d.correlation_id for d in stage.broker.messages("caller")} == {"first", "second"}
    assert agent.ran["t1"] == 1


async def test_what_comes_back_goes_to_its_owner() -> None:
    stage = Stage()
    r1, r2 = await stage.two_routers()
    agent = await stage.agent("a", slots=2, script=lambda _: None)
    await agent.take_at_once(0)
    await r2.bus.want("intake", wanted=False)
    stage.publish("t1")
    await stage.settle()
    assert r1.leases == 1
    await r1.bus.want("returns", wanted=False)
    stage.clock.advance(61)
    await stage.settle(rounds=10)
    (row,) = stage.rows(OutcomeSeen)
    assert (row.outcome, row.standing) == (OutcomeClass.RELEASED, Standing.CURRENT)
    assert {sent.router for sent in stage.dispatches("t1")} == {"r1"}


async def test_what_comes_back_of_a_router_that_never_returns_is_adopted() -> None:
    stage = Stage()
    r1 = await stage.router("r1")
    agent = await stage.agent("a", script=lambda _: None)
    await agent.take_at_once(0)
    stage.publish("t1")
    await stage.settle()
    stage.kill(r1)
    stage.broker.delete_queue(stage.names.outcomes("r1"))
    r2 = await stage.router("r2")
    await stage.pass_time(61)
    assert r2.desk.fleet.agents
    await agent.take_at_once(1)
    agent.script = succeed
    await stage.pass_time(10)
    assert stage.answer("t1")["status"] == "succeeded"
    routers = [row.router for row in stage.dispatches("t1")]
    assert (routers[0], routers[-1]) == ("r1", "r2")


async def test_outcomes_of_a_router_that_is_down_are_settled_by_the_other() -> None:
    stage = Stage()
    r1, r2 = await stage.two_routers()
    agent = await stage.agent("a", slots=2, script=lambda _: None)
    await r2.bus.want("intake", wanted=False)
    stage.publish("t1")
    await stage.settle()
    assert r1.leases == 1
    stage.kill(r1)
    await agent.end(agent.held[0])
    await stage.settle()
    assert stage.end("t1").state is TaskState.SUCCEEDED
    assert r2.leases == 0


async def test_an_owner_that_is_back_gets_its_outcomes_itself() -> None:
    stage = Stage()
    r1, r2 = await stage.two_routers()
    agent = await stage.agent("a", slots=4, script=lambda _: None)
    stage.kill(r1)
    await stage.settle()
    r1 = await stage.router("r1", settled=False)
    await stage.pass_time(4)
    await r2.bus.want("intake", wanted=False)
    for number in range(2):
        stage.publish(f"t{number}")
    await stage.settle()
    for work in list(agent.held):
        await agent.end(work)
        await stage.pass_time(1)
    await stage.pass_time(2)
    agent.script = succeed
    stage.publish("t2")
    await stage.pass_time(2)
    assert [stage.end(f"t{number}").state for number in range(3)] == [TaskState.SUCCEEDED] * 3
    assert r1.desk.counts.succeeded >= 1
    await stage.pass_time(120, step=3)
    assert [router.leases for router in stage.routers] == [0, 0]
    assert all(len(stage.ends(f"t{number}")) == 1 for number in range(3))
    assert agent.ran.total() == 3


async def test_what_another_router_settled_is_not_given_up_a_second_time() -> None:
    stage = Stage()
    r1, r2 = await stage.two_routers()
    agent = await stage.agent("a", slots=4, script=lambda _: None)
    await r2.bus.want("intake", wanted=False)
    stage.publish("t1")
    await stage.settle()
    assert r1.leases == 1
    await r1.bus.want("outcomes", wanted=False)
    await agent.end(agent.held[0], Reply(OutcomeClass.SUCCEEDED))
    await stage.settle()
    assert stage.end("t1").state is TaskState.SUCCEEDED
    await stage.pass_time(120, step=3)
    assert len(stage.ends("t1")) == 1
    assert agent.ran["t1"] == 1
    assert r1.leases == 0
    assert r1.desk.fleet.agents["a"].breaker.streak == 0


async def test_a_retry_may_be_done_by_either_and_counts_on() -> None:
    stage = Stage()
    r1, r2 = await stage.two_routers()
    await stage.agent("a", slots=2, script=always(OutcomeClass.FAILED))
    await r2.bus.want("intake", wanted=False)
    stage.publish("t1")
    await stage.settle()
    await r1.bus.want("returns", wanted=False)
    await stage.pass_time(40)
    assert {row.attempt for row in stage.dispatches("t1")} == {1, 2, 3, 4}
    assert {row.router for row in stage.dispatches("t1")} == {"r1", "r2"}
    assert stage.end("t1").state is TaskState.DEAD_LETTER


async def test_a_task_with_side_effects_whose_sender_died_in_between_is_for_a_person() -> None:
    stage = Stage()
    r1, r2 = await stage.two_routers()
    agent = await stage.agent("a", slots=2, capability_side_effects=True)
    await r2.bus.want("intake", wanted=False)
    r1.bus.once(Moment.BEFORE_PUBLISH, die)
    stage.publish("t1")
    with pytest.raises(Killed):
        await r1.router.turn()
    stage.kill(r1)
    await r2.bus.want("intake", wanted=True)
    await stage.settle()
    assert not stage.ends("t1")
    await stage.pass_time(15)
    assert stage.end("t1").reason is DeadLetterReason.OUTCOME_UNKNOWN
    assert agent.ran.total() == 0


async def test_while_its_sender_lives_the_word_of_the_sender_counts() -> None:
    stage = Stage()
    r1, r2 = await stage.two_routers()
    agent = await stage.agent("a", slots=2, capability_side_effects=True, script=lambda _: None)
    r1.bus.once(Moment.BEFORE_ACK, r1.bus.end_session)
    stage.publish("t1")
    await stage.settle()
    assert r2.bus.unacked + r1.bus.unacked <= 1
    await stage.pass_time(20)
    assert not stage.ends("t1")
    await agent.end(agent.held[0])
    await stage.pass_time(3)
    assert stage.end("t1").state is TaskState.SUCCEEDED
    assert agent.ran["t1"] == 1
    assert stage.unacknowledged() == 0


async def test_who_was_away_itself_gives_the_sender_the_time_to_say_that_it_lives() -> None:
    stage = Stage()
    r1, r2 = await stage.two_routers()
    agent = await stage.agent("a", slots=2, capability_side_effects=True, script=lambda _: None)
    r2.bus.disconnect()
    await stage.pass_time(10)
    r1.bus.once(Moment.BEFORE_ACK, r1.bus.disconnect)
    stage.publish("t1")
    await stage.settle()
    r2.bus.connect()
    await stage.settle()
    assert "intake" not in stage.ready()
    assert not stage.ends("t1"), "r2 has heard nobody yet"
    r1.bus.connect()
    await stage.pass_time(10)
    await agent.end(agent.held[0])
    await stage.pass_time(3)
    assert stage.end("t1").state is TaskState.SUCCEEDED
    assert agent.ran["t1"] == 1


async def test_a_retry_that_another_router_sent_for_us_is_not_taken_for_a_copy() -> None:
    stage = Stage()
    r1, r2 = await stage.two_routers()
    agent = await stage.agent("a", slots=2, script=lambda _: None)
    await r2.bus.want("intake", wanted=False)
    stage.publish("t1")
    await stage.settle()
    assert r1.leases == 1
    await r1.bus.want("outcomes", wanted=False)
    agent.script = succeed
    await agent.end(agent.held[0], Reply(OutcomeClass.FAILED))
    await r2.bus.want("returns", wanted=False)
    await stage.settle()
    await r1.bus.want("outcomes", wanted=True)
    await stage.pass_time(3)
    assert stage.answer("t1")["attempt"] == 2
    assert [row.standing for row in stage.outcomes("t1")] == [Standing.CURRENT] * 2
    await stage.pass_time(3)
    assert (r1.leases, r2.leases) == (0, 0)


async def unheard_of(stage: Stage, *, settled: bool) -> OnStage:
    """A router that was cut off, and the store away since; its dispatch was settled meanwhile by the other, or not."""
    r1, r2 = await stage.two_routers()
    agent = await stage.agent("a", slots=2, script=lambda _: None, capability_timeout_ms=5_000)
    await r2.bus.want("intake", wanted=False)
    stage.publish("t1")
    await stage.settle()
    assert r1.leases == 1
    r1.bus.disconnect()
    if settled:
        await agent.end(agent.held[0])
        await stage.settle()
        assert stage.end("t1").state is TaskState.SUCCEEDED
    else:
        stage.broker.delete_queue(stage.names.agent("a"))
        agent.die()
    stage.store.away = True
    r1.bus.connect()
    return r1


@pytest.mark.parametrize("stopped", [False, True])
async def test_what_another_router_may_have_settled_is_not_given_up_while_the_store_cannot_tell(
    stopped: bool,
) -> None:
    """``stopped``: that one, since."""
    stage = Stage()
    r1 = await unheard_of(stage, settled=True)
    if stopped:
        stage.kill(next(router for router in stage.routers if router is not r1))
    await stage.pass_time(100, step=1)
    stage.store.away = False
    await stage.come_to_rest()
    assert len(stage.ends("t1")) == 1
    assert len(stage.outcomes("t1")) == 1
    assert r1.leases == 0


async def test_but_not_for_ever() -> None:
    stage = Stage()
    await unheard_of(stage, settled=False)
    await stage.agent("b")
    await stage.pass_time(100, step=1)
    assert stage.answers() == []
    await stage.pass_time(100, step=1)
    assert stage.answer("t1")["status"] == "succeeded"


async def test_a_dispatch_that_was_never_recorded_waits_for_no_word_of_the_store() -> None:
    """Its confirm was lost with the session, and another router has done the task since; the store is well."""
    stage = Stage()
    r1, r2 = await stage.two_routers()
    await stage.agent("a", slots=2, capability_timeout_ms=5_000)
    await r2.bus.want("intake", wanted=False)
    r1.bus.fail_next(Fate.LOST, to=stage.names.agent("a"))
    stage.publish("t1")
    await r1.turn()
    r1.bus.disconnect()
    await r2.bus.want("intake", wanted=True)
    await stage.settle()
    assert stage.answer("t1")["status"] == "succeeded"
    r1.bus.connect()
    assert r1.leases == 1
    timeouts = stage.policies.timeouts
    await stage.pass_time(timeouts.pickup_s + 5 + timeouts.backstop_s + 5, step=1)
    assert r1.leases == 0
    assert len(stage.ends("t1")) == 1
