"""Every fault at the push of a button, and routers and workers that live through it."""

from collections.abc import Callable

import pytest

from reach_worker import Agent
from reach_worker.core.breaker import BreakerState
from reach_worker.testing import World
from tests.kit.agents import SHOUT, napper, shouter

BREAKS: dict[str, Callable[[World], object]] = {
    "intake twice": lambda world: world.faults.duplicate("intake"),
    "dispatch twice": lambda world: world.faults.duplicate("agent.napper", times=2),
    "outcome twice": lambda world: world.faults.duplicate("outcomes"),
    "dispatches out of order": lambda world: world.faults.reorder("agent.napper", count=3),
    "outcomes out of order": lambda world: world.faults.reorder("outcomes", count=2),
    "worker's ack lost": lambda world: world.faults.drop_before_ack("agent.napper"),
    "router's ack of a task lost": lambda world: world.faults.drop_before_ack("intake"),
    "router's ack of an outcome lost": lambda world: world.faults.drop_before_ack("outcomes"),
    "agent's queue not found": lambda world: world.faults.unroutable("agent.napper"),
    "owner's queue not found": lambda world: world.faults.unroutable("outcomes"),
    "dispatch refused": lambda world: world.faults.refuse("agent.napper", times=2),
    "outcome refused": lambda world: world.faults.refuse("outcomes", times=2),
    "dispatch arrived, confirm lost": lambda world: world.faults.uncertain("agent.napper"),
    "dispatch lost, confirm too": lambda world: world.faults.uncertain("agent.napper", arrives=False),
    "outcome arrived, confirm lost": lambda world: world.faults.uncertain("outcomes"),
    "outcome lost, confirm too": lambda world: world.faults.uncertain("outcomes", arrives=False),
    "slow confirm of a dispatch": lambda world: world.faults.slow_confirm("agent.napper", 4),
    "confirm of an outcome that never comes": lambda world: world.faults.slow_confirm("outcomes", 60),
}


@pytest.mark.parametrize("fault", BREAKS.values(), ids=BREAKS)
async def test_whatever_breaks_each_task_is_answered_once_and_nothing_is_left(
    fault: Callable[[World], object],
) -> None:
    async with World([napper()]) as world:
        fault(world)
        tasks = [world.publish("nap", {"seconds": 1 + n % 2, "n": n}, task_id=f"t{n}") for n in range(6)]
        assert [(await world.answer(task)).result["n"] for task in tasks] == list(range(6))
        assert world.faults.waiting == []
        await world.advance(300)
        assert [len(world.answers(task)) for task in tasks] == [1] * 6
        assert world.dead_letters() == []
        assert [name for name, queue in world.broker.queues.items() if queue.ready] == []


@pytest.mark.parametrize("queue", ["intake", "agent.napper", "outcomes"])
async def test_consumers_that_the_broker_cancels_come_back(queue: str) -> None:
    async with World([napper()]) as world:
        world.publish("nap", {"seconds": 5}, task_id="t1")
        await world.advance(1)
        name = queue if queue != "outcomes" else "outcomes.r1"
        assert world.faults.cancel_consumers(name) == 1
        assert (await world.answer("t1")).succeeded
        assert (await world.call("nap", {"seconds": 1})).succeeded


@pytest.mark.parametrize("client", ["", "router", "agent"])
async def test_connections_that_are_cut_in_the_middle_of_a_task(client: str) -> None:
    async with World([napper()], routers=2) as world:
        task_id = world.publish("nap", {"seconds": 5})
        await world.advance(2)
        assert world.faults.end_sessions(client) == {"": 4, "router": 2, "agent": 1}[client]
        if client:
            assert (await world.answer(task_id)).succeeded
        else:
            await world.advance(30)
            assert [one.outcome for one in world.attempts(task_id)] == ["succeeded"]


async def test_a_worker_that_dies_after_the_work_and_before_its_ack_costs_no_second_answer() -> None:
    """Its outcome is confirmed: what comes again is known to be done."""
    agent = shouter()
    async with World([agent, agent]) as world:
        world.faults.drop_before_ack("agent.solid", dies=True)
        answer = await world.call(SHOUT, {"text": "x"})
        assert answer.succeeded
        await world.advance(120)
        assert len([one for one in world.crew.instances if one.alive]) == 1
        assert len(world.answers(answer.task_id)) == 1
        assert (await world.call(SHOUT, {"text": "y"})).succeeded


async def test_a_router_that_dies_before_its_ack_leaves_the_task_to_the_next() -> None:
    async with World([shouter()], routers=2) as world:
        world.faults.drop_before_ack("intake", dies=True)
        answer = await world.call(SHOUT, {"text": "x"})
        await world.advance(120)
        assert answer.succeeded
        assert len(world.answers(answer.task_id)) == 1
        assert len([router for router in world.crew.routers.values() if router.alive]) == 1


@pytest.mark.parametrize("dies", [False, True])
async def test_what_is_delivered_again_after_its_outcome_does_not_run_again_in_a_worker_that_lives(
    dies: bool,
) -> None:
    ran: list[str] = []
    agent = Agent("counter")
    agent.capability("count")(lambda _payload, context: ran.append(context.dispatch_id))
    async with World([agent, agent] if dies else [agent]) as world:
        world.faults.duplicate("agent.counter")
        world.faults.drop_before_ack("agent.counter", dies=dies)
        answer = await world.call("count")
        await world.advance(120)
        assert (answer.status, len(world.answers(answer.task_id))) == ("succeeded", 1)
        assert set(ran) == {ran[0]}
        assert len(ran) <= (2 if dies else 1)


async def test_faults_of_the_broker_are_not_held_against_the_agent() -> None:
    async with World([shouter()], breaker={"streak": 1}) as world:
        world.faults.refuse("agent.solid", times=3)
        world.faults.unroutable("agent.solid", times=2)
        assert (await world.call(SHOUT, {"text": "x"})).succeeded
        assert world.breaker("solid").state is BreakerState.CLOSED


async def test_what_has_not_gone_wrong_yet_can_be_seen() -> None:
    async with World([shouter()]) as world:
        world.faults.duplicate("agent.solid", times=2)
        await world.call(SHOUT, {"text": "x"})
        assert world.faults.waiting == ["duplicate at agent.solid, 1 times"]
