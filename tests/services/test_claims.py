"""The same task id at two routers in the same moment: one of them begins, everybody gets the one answer."""

import pytest

from reach_worker.core.outcome import OutcomeClass
from reach_worker.ports import Claimed, Unclaimed
from tests.services.scripted import ScriptedAgent, always, succeed
from tests.services.stage import Stage

HEADERS = {"x-reach-task": "t1", "x-reach-first-seen": 1, "x-reach-capability": "text.echo"}


async def blocked(stage: Stage) -> ScriptedAgent:
    """An agent whose one slot is taken, so that whatever comes now waits in a router's window."""
    agent = await stage.agent("a", script=lambda _: None)
    stage.publish("busy")
    await stage.settle()
    return agent


async def both_blocked(stage: Stage) -> ScriptedAgent:
    """The same at each of two routers."""
    agent = await stage.agent("a", slots=2, script=lambda _: None)
    for number in range(4):
        stage.publish(f"busy{number}", correlation_id="busy")
        await stage.settle()
    return agent


async def four_times(stage: Stage) -> set[str]:
    """The one task from four publishers, one after the other; how they are told apart."""
    names = {f"c{number}" for number in range(4)}
    for name in names:
        stage.publish("t1", correlation_id=name)
        await stage.settle()
    return names


def told(stage: Stage) -> set[str | None]:
    return {delivery.correlation_id for delivery in stage.broker.messages("caller")} - {"busy"}


async def free(stage: Stage, agent: ScriptedAgent) -> None:
    agent.script = succeed
    await agent.end(agent.held[0])
    await stage.pass_time(3)


async def test_both_get_it_at_once() -> None:
    stage = Stage()
    await stage.two_routers()
    agent = await stage.agent("a", slots=4)
    for number in range(20):
        for name in ("first", "second"):
            stage.publish(f"t{number}", correlation_id=f"{name}{number}")
    await stage.pass_time(3)
    assert set(agent.ran.values()) == {1}
    assert told(stage) == {f"{name}{number}" for name in ("first", "second") for number in range(20)}
    assert all(len(stage.ends(f"t{number}")) == 1 for number in range(20))


async def test_one_waits_in_the_window_of_the_other() -> None:
    stage = Stage()
    await stage.two_routers()
    agent = await blocked(stage)
    for number in range(4):
        stage.publish("t1", correlation_id=f"c{number}")
        await stage.settle()
    await free(stage, agent)
    assert agent.ran["t1"] == 1
    assert told(stage) == {"c0", "c1", "c2", "c3"}


async def test_what_waited_before_the_other_router_came_is_claimed_when_it_comes() -> None:
    stage = Stage()
    await stage.router("r1")
    agent = await blocked(stage)
    stage.publish("t1", correlation_id="first")
    await stage.settle()
    assert not stage.rows(Claimed), "a router alone has nobody to tell"
    await stage.router("r2")
    await stage.pass_time(4)
    for number in range(3):
        stage.publish("t1", correlation_id=f"c{number}")
        await stage.settle()
    await free(stage, agent)
    assert agent.ran["t1"] == 1
    assert told(stage) == {"first", "c0", "c1", "c2"}


async def test_the_one_that_had_it_dies() -> None:
    """Its message comes again, and with it the right to begin; the other publishers have joined and are answered."""
    stage = Stage()
    await stage.two_routers()
    agent = await blocked(stage)
    for name in ("first", "second"):
        stage.publish("t1", correlation_id=name)
    await stage.settle()
    (holder,) = [router for router in stage.routers if "t1" in router.desk.hands.waiting]
    stage.kill(holder)
    await stage.pass_time(15)
    await free(stage, agent)
    assert agent.ran["t1"] == 1
    assert told(stage) == {"first", "second"}
    assert len(stage.ends("t1")) == 1


async def test_the_one_that_had_it_loses_its_session() -> None:
    """It says so in the store, so that nobody waits for it."""
    stage = Stage()
    await stage.two_routers()
    agent = await blocked(stage)
    for name in ("first", "second"):
        stage.publish("t1", correlation_id=name)
    await stage.settle()
    (holder,) = [router for router in stage.routers if "t1" in router.desk.hands.waiting]
    holder.bus.end_session()
    await stage.pass_time(3)
    assert {row.router for row in stage.rows(Unclaimed)} >= {holder.desk.router_id}
    await free(stage, agent)
    assert agent.ran["t1"] == 1
    assert told(stage) == {"first", "second"}


async def test_a_claim_of_a_router_that_is_gone_for_good_holds_up_nobody() -> None:
    stage = Stage()
    await stage.store.record([Claimed("t1", 0, "r9", stage.clock.utc_us())])
    await stage.two_routers()
    agent = await stage.agent("a")
    stage.publish("t1")
    await stage.settle()
    assert agent.ran["t1"] == 1


async def test_a_claim_that_nothing_came_of_is_void_in_the_end() -> None:
    """Its router lives and has forgotten it: what it recorded last may have been lost with its store file."""
    stage = Stage()
    await stage.two_routers()
    agent = await stage.agent("a")
    await stage.store.record([Claimed("t1", 0, "r2", stage.clock.utc_us() + 1), Claimed("t1", 0, "r1", 0)])
    stage.broker.put_message(stage.names.returns, b'{"capability": "text.echo"}', HEADERS)
    await stage.pass_time(30)
    assert not agent.ran["t1"] or stage.dispatches("t1")[0].router == "r2"
    await stage.pass_time(35)
    assert agent.ran["t1"] == 1


@pytest.mark.parametrize("away", [False, True])
async def test_two_copies_of_one_replay_run_once(away: bool) -> None:
    """A replay that dies between sending and removing sends the letter twice, and the copies may meet two routers."""
    stage = Stage()
    await stage.two_routers()
    agent = await stage.agent("a", slots=4, script=always(OutcomeClass.BAD_REQUEST))
    stage.publish("t1")
    await stage.pass_time(2)
    agent.script = succeed
    (letter,) = stage.broker.messages(stage.names.dlq)
    headers = {**letter.headers, "x-reach-life": 1, "x-reach-replays": 1}
    stage.store.away = away
    for _ in range(2):
        stage.broker.put_message(stage.names.returns, letter.body, headers)
    await stage.settle()
    stage.store.away = False
    await stage.pass_time(3)
    assert agent.ran["t1"] in ((2,) if not away else (2, 3)), "without a store nobody can know"


async def test_a_router_that_comes_again_does_not_wait_for_itself() -> None:
    """It was killed with tasks in its window; under its name it lives again, and nobody holds what it had claimed."""
    stage = Stage()
    first, second = await stage.two_routers()
    agent = await blocked(stage)
    for number in range(6):
        stage.publish(f"t{number}")
        await stage.settle()
    for router in (first, second):
        stage.kill(router)
    await stage.router("r1")
    await stage.router("r2")
    agent.script = succeed
    await agent.end(agent.held[0])
    await stage.pass_time(8)
    assert set(agent.ran.values()) == {1}
    assert len(stage.answers()) == 7


async def test_two_that_each_believed_to_be_alone_find_out_in_time() -> None:
    """Both have it in their windows, unclaimed, when they hear of each other."""
    stage = Stage()
    first, second = await stage.two_routers()
    agent = await both_blocked(stage)
    for router in (first, second):
        router.desk.alone = lambda: True
    names = await four_times(stage)
    assert all("t1" in router.desk.hands.waiting for router in (first, second))
    for router in (first, second):
        router.desk.alone = router.router.watch.alone
    await stage.pass_time(2)
    assert sum("t1" in router.desk.hands.waiting for router in (first, second)) == 1
    agent.script = succeed
    for work in list(agent.held):
        await agent.end(work)
    await stage.pass_time(3)
    assert agent.ran["t1"] == 1
    assert told(stage) == names


async def test_what_was_begun_while_the_store_was_away_is_claimed_when_it_is_back() -> None:
    stage = Stage()
    first, second = await stage.two_routers()
    agent = await both_blocked(stage)
    stage.store.away = True
    names = await four_times(stage)
    assert all("t1" in router.desk.hands.waiting for router in (first, second)), "nobody could know"
    stage.store.away = False
    for number in range(4, 8):
        stage.publish(f"busy{number}", correlation_id="busy")
        await stage.pass_time(1)
    assert sum("t1" in router.desk.hands.waiting for router in (first, second)) <= 1
    agent.script = succeed
    for work in list(agent.held):
        await agent.end(work)
    await stage.pass_time(35)
    assert agent.ran["t1"] == 1
    assert told(stage) == names


async def test_who_was_away_itself_takes_nothing_over_from_one_that_it_could_not_hear() -> None:
    """Both lost the broker. The first thing that r1 gets afterwards is a task that r2 has begun with a moment ago."""
    stage = Stage()
    r1, r2 = await stage.two_routers()
    agent = await blocked(stage)
    r1.bus.disconnect()
    await stage.pass_time(10)
    stage.publish("also busy")
    r2.bus.end_session()
    stage.publish("t1", correlation_id="first")
    await r2.turn(3)
    assert "t1" in r2.desk.hands.waiting
    await r2.bus.want("intake", wanted=False)
    stage.publish("t1", correlation_id="second")
    r1.bus.connect()
    await r1.turn(2)
    assert "intake" not in stage.ready()
    assert "t1" not in r1.desk.hands.waiting
    agent.script = succeed
    for work in list(agent.held):
        await agent.end(work)
    await stage.pass_time(3)
    assert agent.ran["t1"] == 1
    assert told(stage) >= {"first", "second"}
