"""Leases of long runs, as they come back to the routers: parked again while it runs, let go when it is settled, and
given up only when nobody can bring an outcome any more. The task runs once."""

from typing import Any

import pytest

from reach_worker.core.dispatch import DOUBTS, LEASE, lease_headers
from reach_worker.core.duplicates import TaskState
from reach_worker.core.long_run import DOUBT_S, LEASE_S
from reach_worker.core.message import Delivery, Message
from reach_worker.core.outcome import DeadLetterReason, OutcomeClass
from reach_worker.testing import Fate
from tests.services.scripted import ScriptedAgent, Work
from tests.services.stage import Stage

LONG_MS = 600_000
DEAD_S = 40.0
"""Silent for so long, an instance is dead, whatever is left of its connection."""


async def begun(stage: Stage, routers: int = 1, **fields: Any) -> tuple[ScriptedAgent, Work]:
    """A task that runs for long at the agent ``a``, its lease parked, its delivery acknowledged."""
    for number in range(routers):
        await stage.router(f"r{number + 1}")
    agent = await stage.agent("a", script=lambda _: None, capability_timeout_ms=LONG_MS, **fields)
    await agent.take_at_once(1)
    stage.publish("t1")
    await stage.pass_time(3)
    (work,) = agent.held
    if fields:
        await agent.say_started(work)
    await park(stage, agent, work)
    return agent, work


async def park(stage: Stage, agent: ScriptedAgent, work: Work) -> None:
    """As a worker does it."""
    headers = lease_headers(work.dispatch.headers(), agent.instance_id)
    lease = Message(stage.names.retry(int(LEASE_S * 1000)), work.delivery.body, headers)
    await agent.bus.publish([lease])
    await agent.bus.ack([work.delivery])


def leases(stage: Stage) -> list[Delivery]:
    """Those that are parked now."""
    rungs = (stage.names.retry(int(seconds * 1000)) for seconds in (LEASE_S, DOUBT_S))
    return [delivery for rung in rungs for delivery in stage.broker.messages(rung)]


def kinds(stage: Stage) -> list[OutcomeClass]:
    return [row.outcome for row in stage.outcomes("t1")]


async def test_a_task_of_ten_minutes_runs_once_on_one_lease() -> None:
    stage = Stage()
    agent, work = await begun(stage)
    for _ in range(19):
        await stage.pass_time(30)
        (lease,) = leases(stage)
        assert (lease.headers[LEASE], lease.headers[DOUBTS]) == ("1", 0)
        assert stage.unacknowledged() == 0
    await agent.end(work)
    await stage.pass_time(LEASE_S + 1)
    assert stage.answer("t1")["status"] == "succeeded"
    assert agent.ran == {"t1": 1}
    assert kinds(stage) == [OutcomeClass.SUCCEEDED]
    assert stage.at_rest()


async def test_two_routers_park_it_in_turn_and_neither_doubts_it() -> None:
    stage = Stage()
    agent, work = await begun(stage, routers=2)
    await stage.pass_time(90)
    assert len(leases(stage)) == 1
    await agent.end(work)
    await stage.pass_time(LEASE_S + 1)
    assert kinds(stage) == [OutcomeClass.SUCCEEDED]
    assert stage.at_rest()


@pytest.mark.parametrize("routers", [1, 2])
async def test_its_worker_dies_and_it_runs_once_more_elsewhere(routers: int) -> None:
    stage = Stage()
    agent, _ = await begun(stage, routers)
    agent.die()
    await stage.agent("b", capability_cost=5, capability_timeout_ms=LONG_MS)
    await stage.pass_time(2 * LEASE_S + DOUBT_S + 10)
    assert stage.answer("t1")["result"] == {"said": "done"}
    assert stage.answer("t1")["attempt"] == 2
    assert kinds(stage) == [OutcomeClass.UNAVAILABLE, OutcomeClass.SUCCEEDED]
    (lost, _) = stage.outcomes("t1")
    assert (lost.agent_id, lost.instance_id, "died while it ran" in lost.message) == ("a", "1", True)
    await stage.pass_time(LEASE_S)
    assert stage.at_rest()


async def test_what_dies_with_its_process_twice_runs_alone_the_third_time() -> None:
    stage = Stage()
    agent, _ = await begun(stage, routers=2)
    for number, crashes in enumerate([0, 1]):
        other = await stage.agent(
            f"b{number}", script=lambda _: None, capability_cost=5, capability_timeout_ms=LONG_MS
        )
        agent.die()
        await stage.pass_time(2 * LEASE_S + DOUBT_S + 10)
        (work,) = other.held
        assert work.dispatch.envelope.crashes == crashes
        await park(stage, other, work)
        agent = other


async def test_with_side_effects_it_does_not_run_again() -> None:
    stage = Stage()
    agent, _ = await begun(stage, capability_side_effects=True)
    agent.die()
    other = await stage.agent("b", capability_side_effects=True)
    await stage.pass_time(2 * LEASE_S + DOUBT_S + 10)
    assert stage.end("t1").reason is DeadLetterReason.OUTCOME_UNKNOWN
    assert not other.ran
    assert stage.at_rest()


async def test_a_success_that_turns_up_late_resolves_that() -> None:
    stage = Stage()
    agent, work = await begun(stage, capability_side_effects=True)
    agent.bus.disconnect()
    agent.alive = False
    await stage.pass_time(2 * LEASE_S + DOUBT_S + 10)
    assert stage.end("t1").reason is DeadLetterReason.OUTCOME_UNKNOWN
    agent.held.append(work)
    await agent.start()
    await agent.end(work)
    await stage.settle()
    assert [end.state for end in stage.ends("t1")] == [TaskState.DEAD_LETTER, TaskState.SUCCEEDED]


async def test_an_instance_that_is_silent_for_a_while_runs_it_all_the_same() -> None:
    stage = Stage()
    agent, work = await begun(stage)
    agent.alive = False
    await stage.pass_time(DEAD_S - 5)
    agent.alive = True
    await stage.pass_time(60)
    assert len(leases(stage)) == 1
    await agent.end(work)
    await stage.pass_time(LEASE_S + 1)
    assert kinds(stage) == [OutcomeClass.SUCCEEDED]


async def test_an_instance_whose_connection_was_cut_and_comes_back_runs_it_all_the_same() -> None:
    stage = Stage()
    agent, work = await begun(stage)
    agent.alive = False
    agent.bus.disconnect()
    await stage.pass_time(12)
    await agent.start()
    await stage.pass_time(60)
    await agent.end(work)
    await stage.pass_time(LEASE_S + 1)
    assert kinds(stage) == [OutcomeClass.SUCCEEDED]
    assert agent.ran == {"t1": 1}


async def test_one_that_has_said_goodbye_and_goes_on_with_it_is_waited_for() -> None:
    stage = Stage()
    agent, work = await begun(stage)
    await stage.agent("b", capability_cost=5, capability_timeout_ms=LONG_MS)
    for _ in range(40):
        await agent.beat(stopping=True)
        agent.alive = False
        await stage.pass_time(3)
    agent.alive = True
    await agent.end(work)
    await stage.pass_time(LEASE_S + 1)
    assert kinds(stage) == [OutcomeClass.SUCCEEDED]
    assert agent.ran == {"t1": 1}


async def test_one_that_was_killed_after_its_goodbye_is_noticed() -> None:
    stage = Stage()
    agent, _ = await begun(stage)
    await agent.beat(stopping=True)
    agent.die()
    await stage.agent("b", capability_cost=5, capability_timeout_ms=LONG_MS)
    await stage.pass_time(DEAD_S + LEASE_S + 2 * DOUBT_S)
    assert kinds(stage) == [OutcomeClass.UNAVAILABLE, OutcomeClass.SUCCEEDED]


async def test_an_outcome_that_nobody_has_read_yet_is_waited_for() -> None:
    """It was confirmed and is no longer listed; its owner is down, and the other router judges the lease."""
    stage = Stage()
    agent, work = await begun(stage, routers=2)
    (owner,) = [r for r in stage.routers if r.desk.router_id == work.dispatch.owner]
    stage.kill(owner)
    agent.held.remove(work)
    await stage.pass_time(3)
    await stage.pass_time(LEASE_S + 2 * DOUBT_S)
    assert not kinds(stage)
    agent.held.append(work)
    await agent.end(work)
    await stage.pass_time(30)
    assert kinds(stage) == [OutcomeClass.SUCCEEDED]
    assert stage.end("t1").state is TaskState.SUCCEEDED


async def test_what_is_given_up_is_told_behind_the_outcome_that_may_be_there() -> None:
    """Outcome and death in one moment: the outcome comes first, and it is the only one that counts."""
    stage = Stage()
    agent, work = await begun(stage)
    router = stage.r1
    await router.bus.want("outcomes", wanted=False)
    await agent.end(work)
    agent.die()
    other = await stage.agent("b", capability_cost=5, capability_timeout_ms=LONG_MS)
    await stage.pass_time(2 * LEASE_S + DOUBT_S + 10)
    assert len(stage.broker.messages(stage.names.outcomes("r1"))) == 2
    await router.bus.want("outcomes", wanted=True)
    await stage.settle()
    assert stage.end("t1").state is TaskState.SUCCEEDED
    assert [(row.outcome, row.standing.value) for row in stage.outcomes("t1")] == [
        (OutcomeClass.SUCCEEDED, "current"),
        (OutcomeClass.UNAVAILABLE, "stale"),
    ]
    assert not other.ran


async def test_an_outcome_that_never_was_is_given_up_in_the_end() -> None:
    stage = Stage()
    agent, work = await begun(stage)
    agent.held.remove(work)
    await stage.agent("b", capability_cost=5, capability_timeout_ms=LONG_MS)
    await stage.pass_time(DEAD_S)
    assert not kinds(stage)
    await stage.pass_time(3 * DOUBT_S)
    assert kinds(stage) == [OutcomeClass.UNAVAILABLE, OutcomeClass.SUCCEEDED]
    assert "no outcome came" in stage.outcomes("t1")[0].message


async def test_a_router_that_never_heard_of_the_instance_waits_before_it_says_so() -> None:
    stage = Stage()
    agent, work = await begun(stage)
    stage.kill(stage.r1)
    agent.alive = False
    agent.bus.disconnect()
    await stage.router("r1")
    await stage.pass_time(25)
    await agent.start()
    await stage.pass_time(60)
    await agent.end(work)
    await stage.pass_time(LEASE_S + 1)
    assert kinds(stage) == [OutcomeClass.SUCCEEDED]


async def test_a_router_that_starts_anew_does_not_give_it_up_before_its_time() -> None:
    stage = Stage()
    agent, work = await begun(stage)
    stage.kill(stage.r1)
    router = await stage.router("r1")
    assert router.leases == 1
    await stage.pass_time(300)
    assert router.leases == 1, "its slot is taken"
    await agent.end(work)
    await stage.pass_time(LEASE_S + 1)
    assert kinds(stage) == [OutcomeClass.SUCCEEDED]
    assert router.leases == 0
    assert stage.at_rest()


async def test_one_whose_worker_died_while_the_router_was_down_is_found_out() -> None:
    stage = Stage()
    agent, _ = await begun(stage)
    stage.kill(stage.r1)
    agent.die()
    await stage.router("r1")
    await stage.agent("b", capability_cost=5, capability_timeout_ms=LONG_MS)
    await stage.pass_time(LEASE_S + DEAD_S + 3 * DOUBT_S)
    assert kinds(stage) == [OutcomeClass.UNAVAILABLE, OutcomeClass.SUCCEEDED]
    assert stage.at_rest()


async def test_its_time_out_by_the_routers_own_clock_leaves_nothing_behind() -> None:
    stage = Stage()
    await begun(stage)
    await stage.agent("b", capability_cost=5, capability_timeout_ms=LONG_MS)
    await stage.pass_time(LONG_MS / 1000 + 80, step=1.5)
    assert kinds(stage) == [OutcomeClass.TIMEOUT, OutcomeClass.SUCCEEDED]
    await stage.pass_time(LEASE_S + 1)
    assert not leases(stage)


@pytest.mark.parametrize("fate", [Fate.REFUSED, Fate.LOST, Fate.STORED])
async def test_a_lease_that_cannot_be_parked_again_at_once_is_parked_later(fate: Fate) -> None:
    stage = Stage()
    agent, work = await begun(stage)
    stage.r1.bus.fail_next(fate, to="retry.15000")
    await stage.pass_time(LEASE_S + 3)
    assert len(leases(stage)) == (2 if fate is Fate.STORED else 1)
    assert stage.unacknowledged() == 0
    await agent.end(work)
    await stage.pass_time(2 * LEASE_S)
    assert kinds(stage) == [OutcomeClass.SUCCEEDED]
    assert stage.at_rest()


@pytest.mark.parametrize("fate", [Fate.REFUSED, Fate.UNROUTABLE, Fate.LOST, Fate.STORED])
async def test_what_is_given_up_reaches_its_owner_whatever_happens_on_the_way(fate: Fate) -> None:
    stage = Stage()
    agent, _ = await begun(stage)
    agent.die()
    await stage.agent("b", capability_cost=5, capability_timeout_ms=LONG_MS)
    stage.r1.bus.fail_next(fate, to="outcomes")
    await stage.pass_time(2 * LEASE_S + 2 * DOUBT_S + 10)
    assert stage.answer("t1")["attempt"] == 2
    assert stage.end("t1").state is TaskState.SUCCEEDED
    await stage.pass_time(LEASE_S)
    assert stage.at_rest()


async def test_a_lease_of_a_router_that_is_gone_for_good_is_settled_by_another() -> None:
    stage = Stage()
    agent, work = await begun(stage, routers=2)
    (owner,) = [r for r in stage.routers if r.desk.router_id == work.dispatch.owner]
    stage.kill(owner)
    stage.broker.delete_queue(stage.names.outcomes(work.dispatch.owner))
    agent.die()
    await stage.agent("b", capability_cost=5, capability_timeout_ms=LONG_MS)
    await stage.pass_time(2 * LEASE_S + DOUBT_S + 15)
    assert stage.answer("t1")["attempt"] == 2


async def test_two_leases_of_one_run_are_one_verdict() -> None:
    """An acknowledgement was lost behind the first one."""
    stage = Stage()
    agent, work = await begun(stage)
    await park(stage, agent, work)
    await stage.pass_time(40)
    assert len(leases(stage)) == 2
    agent.die()
    other = await stage.agent("b", capability_cost=5, capability_timeout_ms=LONG_MS)
    await stage.pass_time(2 * LEASE_S + DOUBT_S + 10)
    assert other.ran == {"t1": 1}
    assert stage.answer("t1")["attempt"] == 2
    await stage.pass_time(LEASE_S)
    assert stage.at_rest()
