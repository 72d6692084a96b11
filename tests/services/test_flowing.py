"""A router that decides while what it decided before is still on its way to the broker and the store."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from reach_worker.core.envelope import GROUP
from reach_worker.core.message import Delivery
from reach_worker.ports import Dispatched, Ended
from reach_worker.services.conveyor import Conveyor
from reach_worker.services.effects import Step
from reach_worker.testing import Fate
from tests.services.flowing import FlowingBus, FlowingStage, rounds
from tests.store.sample import accepted


@pytest.fixture
async def stage() -> AsyncIterator[FlowingStage]:
    made = FlowingStage(delays=[0], slow_start=False)
    await made.router()
    try:
        yield made
    finally:
        await made.all_over()


def bus_of(stage: FlowingStage) -> FlowingBus:
    bus = stage.r1.bus
    assert isinstance(bus, FlowingBus)
    return bus


async def test_the_next_task_does_not_wait_for_the_confirms_of_the_one_before(stage: FlowingStage) -> None:
    agent = await stage.agent("a", slots=2, script=lambda _: None)
    bus_of(stage).held.clear()
    stage.publish("t1")
    await stage.settle()
    stage.publish("t2")
    await stage.settle()
    assert [work.task_id for work in agent.held] == ["t1", "t2"]
    assert bus_of(stage).sending == 2
    assert stage.rows(Dispatched) == []
    bus_of(stage).held.set()
    await stage.settle()
    assert [row.task_id for row in stage.rows(Dispatched)] == ["t1", "t2"]


async def test_an_outcome_that_comes_before_its_confirm_waits_for_it(stage: FlowingStage) -> None:
    agent = await stage.agent("a")
    bus_of(stage).held.clear()
    stage.publish("t1")
    await stage.serving["r1"].turn()
    await agent.step()
    await agent.step()
    assert agent.ran == {"t1": 1}
    bus_of(stage).inbox.arrived.set()
    turn = stage.serving["r1"].begin()
    await rounds(20)
    assert not turn.done()
    assert stage.rows(Ended) == []
    bus_of(stage).held.set()
    await turn
    await stage.settle()
    assert stage.answer("t1")["status"] == "succeeded"
    assert len(stage.ends("t1")) == 1


async def test_who_publishes_a_task_again_while_it_is_sent_joins_it(stage: FlowingStage) -> None:
    agent = await stage.agent("a")
    bus_of(stage).held.clear()
    stage.publish("t1", correlation_id="first")
    await stage.serving["r1"].turn()
    stage.publish("t1", correlation_id="second")
    turn = stage.serving["r1"].begin()
    await rounds(20)
    assert not turn.done()
    bus_of(stage).held.set()
    await turn
    await stage.settle()
    assert agent.ran == {"t1": 1}
    told = [delivery.correlation_id for delivery in stage.broker.messages("caller")]
    assert sorted(map(str, told)) == ["first", "second"]


async def test_what_the_broker_did_not_take_is_decided_anew(stage: FlowingStage) -> None:
    agent = await stage.agent("a", slots=2, script=lambda _: None)
    bus_of(stage).held.clear()
    bus_of(stage).fail_next(Fate.REFUSED)
    stage.publish("t1")
    await stage.settle()
    stage.publish("t2")
    await stage.settle()
    assert [work.task_id for work in agent.held] == ["t2"]
    bus_of(stage).held.set()
    await stage.settle()
    assert [work.task_id for work in agent.held] == ["t2", "t1"]


async def test_a_session_that_ends_meanwhile_loses_nothing(stage: FlowingStage) -> None:
    agent = await stage.agent("a", slots=4, script=lambda _: None)
    bus_of(stage).held.clear()
    for number in range(3):
        stage.publish(f"t{number}")
        await stage.settle()
    bus_of(stage).end_session()
    bus_of(stage).held.set()
    await stage.settle()
    for work in list(agent.held):
        await agent.end(work)
    await stage.come_to_rest()
    assert [stage.answer(f"t{number}")["status"] for number in range(3)] == ["succeeded"] * 3


async def test_nothing_is_acknowledged_before_it_is_recorded(stage: FlowingStage) -> None:
    await stage.agent("a")
    stage.store.committed.clear()
    stage.publish("t1")
    await stage.settle()
    assert stage.answer("t1")["status"] == "succeeded"
    ours = (stage.names.intake, stage.names.outcomes("r1"))
    assert not any(("ack", queue) in stage.r1.bus.journal for queue in ours)
    stage.store.committed.set()
    await stage.settle()
    assert stage.at_rest()


async def test_side_effects_are_recorded_before_they_are_sent_here_too(stage: FlowingStage) -> None:
    agent = await stage.agent("a", capability_side_effects=True)
    stage.store.committed.clear()
    stage.publish("t1")
    turn = stage.serving["r1"].begin()
    await rounds(20)
    assert [row.task_id for row in stage.rows(Dispatched)] == ["t1"]
    assert ("publish", stage.names.agent("a")) not in stage.r1.bus.journal
    stage.store.committed.set()
    await turn
    await stage.settle()
    assert agent.ran == {"t1": 1}


async def test_what_is_on_its_way_when_the_router_stops_is_carried_out() -> None:
    stage = FlowingStage(delays=[7])
    r1 = await stage.router()
    await stage.agent("a")
    stage.publish("t1")
    await stage.serving["r1"].turn()
    await stage.serving["r1"].stop()
    assert [row.task_id for row in stage.rows(Dispatched)] == ["t1"]
    assert r1.bus.unacked == 0
    await stage.all_over()


async def test_what_comes_while_an_ordinary_turn_waits_is_not_taken_for_ordinary(stage: FlowingStage) -> None:
    await stage.agent("a", slots=1, script=lambda _: None)
    stage.publish("t1")
    stage.publish("waits")
    await stage.settle()
    leg = Delivery(stage.names.outcomes("r1"), b"{}", None, {GROUP: "race"})
    bus_of(stage).meanwhile.append(leg)
    await stage.serving["r1"].turn()
    assert list(bus_of(stage).inbox.waiting["outcomes"]) == [leg]
    assert not stage.letters()


async def test_the_store_is_never_further_behind_than_is_allowed(stage: FlowingStage) -> None:
    conveyor = Conveyor(stage.r1.bus, stage.store, lambda: None, lambda _steps, _recorded: None)
    stage.store.committed.clear()
    async with conveyor.running(), asyncio.TaskGroup() as group:
        for number in range(3):
            conveyor.put([Step(rows=[accepted(f"t{number}")]) for _ in range(4)], patient=True)
        await conveyor.recorded_but(3)
        await conveyor.recorded_but_steps(12)
        waiting = [
            group.create_task(conveyor.recorded_but(2)),
            group.create_task(conveyor.recorded_but_steps(11)),
        ]
        await rounds(50)
        assert not any(one.done() for one in waiting)
        stage.store.committed.set()
