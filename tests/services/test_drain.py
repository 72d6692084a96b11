"""Stopping: take no more, hand back what waits, wait for what is out; no attempt spent, nothing lost."""

import asyncio
from collections.abc import Callable

from reach_worker.core.duplicates import TaskState
from reach_worker.core.outcome import OutcomeClass
from reach_worker.core.token_bucket import IntakePolicy
from tests.services.scripted import Reply, succeed
from tests.services.stage import OnStage, Stage, rules

LIMIT_S = 5.0


async def drained(stage: Stage, router: OnStage, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Drain a router while the agents work and, at the end, the grace period passes."""
    stage.routers.remove(router)
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
        draining = group.create_task(router.router.drain())
        router.bus.inbox.arrived.set()
        meanwhile()
        while not draining.done():
            await stage.settle(rounds=1)
            stage.clock.advance(1)
            router.bus.inbox.arrived.set()
            await asyncio.wait([draining], timeout=0.01)
    router.bus.disconnect()


async def test_what_waits_is_handed_back_and_the_next_router_does_it() -> None:
    stage = Stage()
    r1 = await stage.router()
    agent = await stage.agent("a", script=lambda _: None)
    for number in range(5):
        stage.publish(f"t{number}")
    await stage.settle()
    await drained(stage, r1)
    assert stage.ready() == {"returns": 4}
    assert {d.redelivered for d in stage.broker.messages(stage.names.returns)} == {False}
    agent.script = succeed
    await agent.end(agent.held[0])
    await stage.router()
    await stage.pass_time(5)
    assert [stage.answer(f"t{number}")["attempt"] for number in range(5)] == [1] * 5
    assert agent.ran == {f"t{number}": 1 for number in range(5)}


async def test_what_is_out_is_waited_for() -> None:
    stage = Stage()
    r1 = await stage.router()
    agent = await stage.agent("a", slots=3, script=lambda _: None)
    for number in range(3):
        stage.publish(f"t{number}")
    await stage.settle()

    async def end_all() -> None:
        for work in list(agent.held):
            await agent.end(work)

    async with asyncio.TaskGroup() as group:
        group.create_task(drained(stage, r1))
        group.create_task(end_all())
    assert [stage.answer(f"t{number}")["status"] for number in range(3)] == ["succeeded"] * 3
    assert r1.leases == 0
    assert stage.ready() == {"caller": 3}


async def test_what_is_out_longer_than_the_grace_period_is_settled_by_the_next_router() -> None:
    stage = Stage()
    r1 = await stage.router()
    agent = await stage.agent("a", script=lambda _: None)
    stage.publish("t1")
    await stage.settle()
    await drained(stage, r1)
    await agent.end(agent.held[0])
    await stage.router()
    await stage.settle()
    assert stage.end("t1").state is TaskState.SUCCEEDED
    assert agent.ran["t1"] == 1


async def test_nothing_new_is_started_while_it_stops() -> None:
    stage = Stage()
    r1 = await stage.router()
    agent = await stage.agent("a", slots=5, script=lambda _: None)
    stage.publish("t1")
    await stage.settle()
    (work,) = agent.held
    stage.publish("t2")
    assert len(r1.bus.inbox.waiting["intake"]) == 1
    stage.broker.put_message(
        stage.names.returns,
        b'{"capability": "text.echo"}',
        {**work.dispatch.envelope.headers(), "x-reach-task": "t3"},
    )

    async def reject() -> None:
        await agent.end(work, Reply(OutcomeClass.RELEASED, started=False))

    async with asyncio.TaskGroup() as group:
        group.create_task(reject())
        group.create_task(drained(stage, r1))
    assert agent.ran == {"t1": 1}
    assert stage.ready() == {"returns": 3}
    assert all(not d.redelivered for d in stage.broker.messages(stage.names.returns))


async def test_an_idle_router_is_out_at_once() -> None:
    stage = Stage()
    r1 = await stage.router()
    await stage.agent("a")
    began = stage.clock.monotonic()
    async with asyncio.timeout(LIMIT_S):
        await r1.router.drain()
    assert stage.clock.monotonic() == began


async def test_a_router_that_runs_drains_when_it_is_asked_to() -> None:
    stage = Stage(policies=rules(intake=IntakePolicy(rate=100.0)))
    r1 = await stage.router()
    agent = await stage.agent("a")
    stage.routers.remove(r1)
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
        running = group.create_task(r1.router.run())
        stage.publish("t1")
        while not stage.answers():
            await agent.step()
            await asyncio.wait([running], timeout=0.01)
        r1.router.stop_asked.set()
        r1.bus.inbox.arrived.set()
    assert stage.answer("t1")["status"] == "succeeded"
    assert ("stop", "intake") in r1.bus.journal
