"""A task is bound when somebody has a free slot; until then it waits where it holds up nobody."""

import pytest

from reach_worker.core.breaker import BreakerPolicy
from reach_worker.core.outcome import DeadLetterReason, OutcomeClass
from reach_worker.core.slots import SlotPolicy
from reach_worker.core.token_bucket import IntakePolicy
from reach_worker.ports import Decided
from tests.services.scripted import Reply, ScriptedAgent, always, hold, manifest, succeed
from tests.services.stage import Stage, rules

SMALL = rules(intake=IntakePolicy(prefetch=20))


async def test_no_agent_gets_more_than_it_has_slots() -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a", slots=3, script=hold)
    for number in range(10):
        stage.publish(f"t{number}")
    await stage.settle()
    assert [work.task_id for work in agent.held] == ["t0", "t1", "t2"]
    assert stage.r1.leases == 3
    assert "agent.a" not in stage.ready()
    await agent.end(agent.held[0])
    await stage.settle()
    assert [work.task_id for work in agent.held] == ["t1", "t2", "t3"]


async def test_a_task_that_waits_is_not_acknowledged_and_goes_as_soon_as_a_slot_is_free() -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a", script=hold)
    stage.publish("t1")
    stage.publish("t2")
    await stage.settle()
    assert stage.r1.bus.unacked == 1
    assert stage.ready() == {}
    await agent.end(agent.held[0])
    await stage.settle()
    assert [work.task_id for work in agent.held] == ["t2"]
    assert stage.r1.bus.unacked == 0


async def test_what_is_wrong_is_known_at_once_however_many_wait_ahead_of_it() -> None:
    schema = {"type": "object", "required": ["text"]}
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a", script=hold, callable_by=["ann"], capability_input_schema=schema)
    for number in range(5):
        stage.publish(f"t{number}", user_id="ann", payload={"text": "x"})
    stage.publish("wrong", user_id="ann")
    stage.publish("strange", "text.dance", user_id="ann")
    stage.publish("forbidden", user_id="bob", payload={"text": "x"})
    stage.publish("last", user_id="ann", payload={"text": "x"})
    await stage.settle()
    assert stage.letter().reason is DeadLetterReason.PAYLOAD_REFUSED
    assert {answer["task_id"]: answer["status"] for answer in stage.answers()} == {
        "wrong": "dead_letter",
        "strange": "unmatched",
        "forbidden": "unmatched",
    }
    waiting = stage.r1.desk.hands.waiting
    assert list(waiting) == ["t1", "t2", "t3", "t4", "last"]
    assert {one.reason for one in waiting.values()} == {"a: at max concurrency 1/1"}
    agent.script = succeed
    await agent.end(agent.held[0])
    await stage.settle()
    assert list(agent.ran) == ["t0", "t1", "t2", "t3", "t4", "last"]


async def test_what_is_held_long_moves_to_its_lane_and_comes_back_in_order() -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a", script=hold)
    for number in range(5):
        stage.publish(f"t{number}")
    await stage.pass_time(29)
    assert not stage.lane()
    await stage.pass_time(3)
    assert [d.headers["x-reach-task"] for d in stage.lane()] == ["t1", "t2", "t3", "t4"]
    assert stage.r1.bus.unacked == 0
    agent.script = succeed
    await agent.end(agent.held[0])
    await stage.pass_time(10)
    assert list(agent.ran) == [f"t{number}" for number in range(5)]
    assert [stage.answer(f"t{number}")["attempt"] for number in range(5)] == [1] * 5
    assert stage.r1.desk.counts.spilled == 4


async def test_newcomers_do_not_overtake_the_lane() -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a", script=hold)
    for number in range(4):
        stage.publish(f"old{number}")
    await stage.pass_time(32)
    assert len(stage.lane()) == 3
    stage.publish("new")
    agent.script = succeed
    await agent.end(agent.held[0])
    await stage.pass_time(5)
    assert list(agent.ran) == ["old0", "old1", "old2", "old3", "new"]


async def test_one_saturated_capability_does_not_hold_up_another() -> None:
    stage = Stage(policies=SMALL)
    await stage.router()
    await stage.agent("slow", "text.slow", script=hold)
    fast = await stage.agent("fast", "text.fast")
    for number in range(100):
        stage.publish(f"s{number}", "text.slow")
    stage.publish("f1", "text.fast")
    await stage.settle(rounds=30)
    assert fast.ran["f1"] == 1
    assert len(stage.lane("text.slow")) > 50


async def test_lanes_of_capabilities_that_share_an_agent_take_turns() -> None:
    stage = Stage(policies=SMALL)
    await stage.router()
    agent = await stage.agent("a", "text.many", "text.few", script=hold)
    await stage.agent("idle", "text.other")
    for number in range(100):
        stage.publish(f"m{number:02}", "text.many")
    await stage.settle(rounds=30)
    for number in range(5):
        stage.publish(f"f{number}", "text.few")
    await stage.pass_time(35)
    assert (len(stage.lane("text.many")) > 50, len(stage.lane("text.few"))) == (True, 5)
    agent.script = succeed
    await agent.end(agent.held[0])
    await stage.settle(rounds=40)
    order = list(agent.ran)
    assert {f"f{number}" for number in range(5)} <= set(order[:20])
    assert [task_id for task_id in order if task_id[0] == "m"] == sorted(t for t in order if t[0] == "m")


async def test_a_full_window_of_one_capability_is_not_spilled_while_nobody_else_could_work() -> None:
    stage = Stage(policies=SMALL)
    await stage.router()
    await stage.agent("slow", "text.slow", script=hold)
    for number in range(30):
        stage.publish(f"s{number}", "text.slow")
    await stage.settle(rounds=10)
    assert stage.lane("text.slow") == []
    assert stage.ready() == {"intake": 9}


async def test_a_fleet_that_keeps_up_never_pays_the_extra_hop() -> None:
    stage = Stage(policies=SMALL)
    await stage.router()
    await stage.agent("a", slots=2)
    for number in range(200):
        stage.publish(f"t{number}")
    await stage.settle(rounds=120)
    assert len(stage.answers()) == 200
    assert stage.r1.desk.counts.spilled == 0


@pytest.mark.parametrize("waits_for", ["text.nobody-there", "text.slow"])
async def test_the_first_task_of_a_session_holds_up_nobody(waits_for: str) -> None:
    stage = Stage()
    away = manifest("away", "text.nobody-there")
    await stage.router(manifests=[away])
    await stage.agent("slow", "text.slow", script=hold)
    fast = await stage.agent("fast", "text.fast")
    stage.publish("s0", "text.slow")
    await stage.settle()
    stage.r1.bus.end_session()
    stage.publish("w1", waits_for)
    stage.publish("f1", "text.fast")
    await stage.pass_time(2)
    assert fast.ran["f1"] == 1


async def test_one_in_the_lane_that_no_free_agent_may_have_steps_aside() -> None:
    stage = Stage()
    await stage.router()
    first = await stage.agent("a", script=hold, permission_domains=["red"])
    second = await stage.agent("b", script=hold, permission_domains=["blue"])
    stage.publish("r0", domain="red")
    stage.publish("b0", domain="blue")
    await stage.settle()
    for number in range(1, 4):
        stage.publish(f"r{number}", domain="red")
        stage.publish(f"b{number}", domain="blue")
    await stage.pass_time(32)
    assert len(stage.lane()) == 6
    second.script = succeed
    await second.end(second.held[0])
    await stage.pass_time(20)
    assert list(second.ran) == ["b0", "b1", "b2", "b3"]
    assert list(first.ran) == ["r0"]
    assert not stage.letters()
    first.script = succeed
    await first.end(first.held[0])
    await stage.pass_time(10)
    assert sorted(first.ran) == ["r0", "r1", "r2", "r3"]
    assert {row.attempt for row in stage.dispatches("r3")} == {1}


async def test_the_lane_keeps_its_order_while_a_breaker_is_half_open() -> None:
    stage = Stage(breaker=BreakerPolicy(streak=1, open_s=60.0))
    await stage.router()
    agent = await stage.agent("a", slots=5, script=always(OutcomeClass.FAILED))
    stage.publish("first")
    await stage.pass_time(2)
    for number in range(20):
        stage.publish(f"t{number:02}")
    await stage.pass_time(40)
    assert len(stage.lane()) >= 20
    agent.script = hold
    await stage.pass_time(22)
    assert len(agent.held) == 1
    assert len(stage.lane()) >= 19
    agent.script = succeed
    await agent.end(agent.held[0])
    await stage.pass_time(20)
    ran = [task_id for task_id in agent.ran if task_id != "first"]
    assert ran == [f"t{number:02}" for number in range(20)]


async def test_waiting_ends_at_the_deadline_in_the_window() -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a", script=hold)
    stage.publish("t1")
    stage.publish("t2", deadline_ms=5_000)
    await stage.pass_time(4)
    assert not stage.answers()
    await stage.pass_time(2)
    assert stage.answer("t2")["reason"] == "expired"
    assert stage.end("t2").reason is DeadLetterReason.EXPIRED
    assert "at max concurrency 1/1" in stage.answer("t2")["error"]


async def test_waiting_ends_at_the_deadline_in_the_lane() -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a", script=hold)
    stage.publish("t1")
    stage.publish("t2", deadline_ms=40_000)
    await stage.pass_time(32)
    assert len(stage.lane()) == 1
    await stage.pass_time(10)
    assert stage.answer("t2")["reason"] == "expired"
    assert agent.ran["t2"] == 0
    assert not stage.lane()


async def test_without_a_deadline_it_waits_without_end() -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a", script=hold, capability_timeout_ms=3_600_000)
    stage.publish("t1")
    stage.publish("t2")
    await stage.pass_time(600)
    assert not stage.answers()
    assert len(stage.lane()) == 1
    await agent.end(agent.held[0])
    await stage.pass_time(3)
    assert agent.ran["t2"] == 1


async def test_a_deadline_bounds_the_attempt() -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a", script=hold, capability_timeout_ms=8_000)
    stage.publish("t1", deadline_ms=3_000)
    await stage.settle()
    assert agent.held[0].dispatch.timeout_ms == 3_000


async def test_in_flight_is_bounded_over_all_agents() -> None:
    stage = Stage(slots=SlotPolicy(in_flight=5))
    await stage.router()
    for name in "abc":
        await stage.agent(name, slots=10, script=hold)
    for number in range(20):
        stage.publish(f"t{number}")
    await stage.settle()
    assert stage.r1.leases == 5


async def test_per_agent_is_bounded_too() -> None:
    stage = Stage(slots=SlotPolicy(per_agent=4))
    await stage.router()
    agent = await stage.agent("a", slots=10, script=hold)
    for number in range(20):
        stage.publish(f"t{number}")
    await stage.settle()
    assert len(agent.held) == 4


async def test_a_quick_agent_is_sent_a_little_ahead() -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a", script=always(OutcomeClass.SUCCEEDED, duration_ms=25.0))
    stage.publish("t0")
    await stage.settle()
    agent.script = hold
    for number in range(1, 10):
        stage.publish(f"t{number}")
    await stage.settle()
    assert stage.r1.leases == 3
    assert stage.ready() == {"agent.a": 2, "caller": 1}


async def test_the_wait_is_explained() -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a", script=hold)
    await stage.agent("b", script=hold, callable_by=["boss"])
    stage.publish("t1")
    stage.publish("t2")
    await stage.pass_time(31)
    decided = [row.decision for row in stage.rows(Decided) if row.task_id == "t2"]
    assert decided[-1]["verdict"] == "wait"
    gates = {candidate["agent"]: candidate["gates"] for candidate in decided[-1]["candidates"]}
    assert gates["a"]["slots"] == "at max concurrency 1/1"
    assert "not callable by anonymous" in gates["b"]["caller"]


async def test_a_lane_that_somebody_else_filled_is_looked_into() -> None:
    stage = Stage()
    r1 = await stage.router()
    agent = await stage.agent("a", script=hold)
    stage.publish("t1")
    stage.publish("t2")
    await stage.pass_time(32)
    assert len(stage.lane()) == 1
    stage.kill(r1)
    agent.script = succeed
    await agent.end(agent.held[0])
    await stage.router()
    await stage.pass_time(3)
    assert stage.answer("t2")["status"] == "succeeded"
    assert stage.answer("t1")["status"] == "succeeded"


async def test_a_second_instance_takes_what_the_first_has_no_slot_for() -> None:
    stage = Stage()
    await stage.router()
    first = await stage.agent("a", script=hold)
    stage.publish("t1")
    stage.publish("t2")
    await stage.settle()
    second = ScriptedAgent(stage.broker, first.manifest, lambda _: Reply(), "2")
    stage.agents.append(second)
    await second.start()
    await stage.settle()
    assert second.ran == {"t2": 1}
