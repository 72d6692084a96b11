"""A fan-out: every agent that may have the task, one answer, and a word on each that is missing from it."""

from typing import Any

import orjson
import pytest

from reach_worker.core.cancel import CancelRequest
from reach_worker.core.duplicates import TaskState
from reach_worker.core.group import ROUND
from reach_worker.core.message import Message
from reach_worker.core.outcome import DeadLetterReason, OutcomeClass
from reach_worker.core.presence import PresencePolicy
from reach_worker.core.token_bucket import IntakePolicy
from reach_worker.ports import AnswerLost
from reach_worker.services.router.longest_out import DOUBT_S
from reach_worker.testing import Fate
from tests.services.scripted import Reply, always, hold, leg, succeed
from tests.services.stage import CALLER, Stage, rules
from tests.services.test_cancels import cancel


def saying(result: bytes) -> Any:
    return lambda _: Reply(result=result)


def by_name(told: list[dict[str, Any]], field: str) -> dict[str, Any]:
    return {one["agent"]: one[field] for one in told}


async def test_all_capable_agents_answer_and_one_answer_holds_them_all() -> None:
    stage = Stage()
    await stage.router()
    for name in ("a", "b", "c"):
        await stage.agent(name, script=saying(f'"from {name}"'.encode()))
    await stage.agent("other", "text.other")
    stage.publish("t", mode="fanout")
    await stage.settle()

    told = stage.answer("t")
    assert told["status"] == "succeeded"
    assert told["result"] == {name: f"from {name}" for name in ("a", "b", "c")}
    assert (told["failed"], told["missing"]) == ([], [])
    await stage.come_to_rest()
    assert len(stage.answers()) == 1
    assert [stage.end(f"t~0.1.{name}").state for name in ("a", "b", "c")] == [TaskState.SUCCEEDED] * 3


async def test_the_answer_waits_for_the_slowest() -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a")
    slow = await stage.agent("b", script=hold)
    stage.publish("t", mode="fanout")
    await stage.pass_time(5)
    assert stage.answers() == []
    await slow.end(leg(slow))
    await stage.settle()
    assert set(stage.answer("t")["result"]) == {"a", "b"}


@pytest.mark.parametrize(("deadline", "waits_s"), [(4000, 4), (None, 30)])
async def test_until_its_deadline_and_says_who_is_missing(deadline: int | None, waits_s: int) -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a")
    await stage.agent("b", script=hold)
    given: dict[str, Any] = {} if deadline is None else {"deadline_ms": deadline}
    stage.publish("t", mode="fanout", **given)
    await stage.pass_time(waits_s - 1)
    assert stage.answers() == []
    await stage.pass_time(2)
    told = stage.answer("t")
    assert set(told["result"]) == {"a"}
    assert by_name(told["missing"], "why") == {"b": "no answer in time"}


@pytest.mark.parametrize("taken_back", [False, True])
async def test_what_ends_it_while_the_broker_is_away_is_told_when_it_is_back(*, taken_back: bool) -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a")
    await stage.agent("b", script=hold)
    stage.publish("t", mode="fanout", deadline_ms=20_000)
    await stage.settle()
    stage.r1.bus.disconnect()
    if taken_back:
        stage.r1.desk.hands.cancel("t", CancelRequest(None, 0, 0.0))
    await stage.pass_time(5 if taken_back else 25)
    assert stage.ends("t") == []

    stage.r1.bus.connect()
    await stage.come_to_rest()
    assert stage.answer("t")["status"] == ("cancelled" if taken_back else "succeeded")
    assert len(stage.ends("t")) == 1
    assert stage.rows(AnswerLost) == []


async def test_where_time_ends_it_and_its_caller_takes_no_answer_it_ends_all_the_same() -> None:
    """A queue that is full refuses every look again: it would never end, and each look would write a dead letter."""
    stage = Stage()
    r1 = await stage.router()
    await stage.agent("a", script=hold)
    await stage.agent("b", script=hold)
    stage.publish("t", mode="fanout")
    await stage.settle()
    r1.bus.fail_next(*[Fate.REFUSED] * 50, to=CALLER)
    await stage.pass_time(stage.policies.timeouts.fanout_s + 5)
    assert [end.state for end in stage.ends("t")] == [TaskState.DEAD_LETTER]
    assert [letter.envelope.task_id for letter in stage.letters()].count("t") == 1
    assert len(stage.rows(AnswerLost)) == 1


@pytest.mark.parametrize("away", [False, True])
async def test_a_router_that_was_frozen_does_not_end_what_another_one_has_ended(away: bool) -> None:
    """``away``: the store, when it comes back; it waits for its word."""
    stage = Stage()
    await stage.two_routers()
    a = await stage.agent("a", script=hold)
    await stage.agent("b", script=hold)
    stage.publish("t", mode="fanout", deadline_ms=60_000)
    await stage.settle()
    owner = leg(a).dispatch.envelope.group_owner
    (frozen,) = [router for router in stage.routers if router.desk.router_id == owner]
    stage.routers.remove(frozen)
    frozen.bus.disconnect()
    await a.end(leg(a))
    await stage.pass_time(65)
    assert [end.state for end in stage.ends("t")] == [TaskState.SUCCEEDED]

    stage.routers.append(frozen)
    stage.store.away = away
    frozen.bus.connect()
    await stage.pass_time(20)
    stage.store.away = False
    await stage.come_to_rest()
    assert [end.state for end in stage.ends("t")] == [TaskState.SUCCEEDED]
    assert [told["status"] for told in stage.answers()] == ["succeeded"]
    assert stage.letters() == []


@pytest.mark.parametrize("mode", ["fanout", "race"])
async def test_a_result_that_is_too_deep_stops_no_router(mode: str) -> None:
    stage = Stage()
    await stage.router()
    for name in ("a", "b"):
        await stage.agent(name, script=saying(b"[" * 600 + b"]" * 600))
    stage.publish("deep", mode=mode)
    await stage.pass_time(60)
    assert stage.answer("deep")["status"] == "dead_letter"
    assert "its result is nested too deep" in stage.answer("deep")["error"]
    stage.publish("t")
    await stage.settle()
    assert stage.answer("t")["status"] == "succeeded"


@pytest.mark.parametrize("mode", ["fanout", "race"])
@pytest.mark.parametrize("taken_back", [False, True])
async def test_a_router_that_stood_still_in_its_session_and_who_stood_in_for_it_end_nothing_twice(
    mode: str, *, taken_back: bool
) -> None:
    """It is missed before the watches come round; some of the legs are the other's. In the end the store is away."""
    stage = Stage(presence=PresencePolicy(newcomers_s=0, heartbeat_s=0.5, suspect_s=3.2))
    await stage.two_routers()
    agents = [await stage.agent(name, script=hold, slots=60) for name in "ab"]
    tasks = [f"t{number:02}" for number in range(24)]
    for task_id in tasks:
        stage.publish(task_id, mode=mode, deadline_ms=120_000)
    await stage.settle()
    frozen = stage.routers.pop(0)
    await stage.pass_time(20)
    if not taken_back:
        for agent in agents:
            for work in list(agent.held):
                await agent.end(work)
        await stage.pass_time(10)
        if mode == "race":
            assert sum(len(stage.ends(task_id)) for task_id in tasks) > 6, "those whose watch came to it"
    stage.routers.append(frozen)
    if taken_back:
        for task_id in tasks:
            await cancel(stage, task_id)
    await stage.pass_time(1)
    stage.store.away = True
    await stage.pass_time(125)
    stage.store.away = False
    await stage.come_to_rest()
    assert [(task_id, len(stage.ends(task_id))) for task_id in tasks] == [(task_id, 1) for task_id in tasks]
    assert sorted(told["task_id"] for told in stage.answers()) == tasks
    assert stage.letters() == []


async def test_what_another_router_led_is_not_ended_while_the_store_cannot_tell_whether_it_has_ended() -> (
    None
):
    """Its leader ended it, and died before it let go of the watch."""
    stage = Stage()
    await stage.two_routers()
    a, b = await stage.agent("a", script=hold), await stage.agent("b", script=hold)
    stage.publish("t", mode="fanout", deadline_ms=30_000)
    await stage.settle()
    owner = leg(a).dispatch.envelope.group_owner
    (watch,) = (
        d for queue in stage.broker.queues for d in stage.broker.messages(queue) if ROUND in d.headers
    )
    for agent in (a, b):
        await agent.end(leg(agent))
    await stage.settle()
    assert stage.answer("t")["status"] == "succeeded"

    stage.kill(next(router for router in stage.routers if router.desk.router_id == owner))
    stage.broker.publish(Message(watch.queue, watch.body, watch.headers))
    stage.store.away = True
    await stage.pass_time(40)
    stage.store.away = False
    await stage.come_to_rest()
    assert [end.state for end in stage.ends("t")] == [TaskState.SUCCEEDED]
    assert [told["status"] for told in stage.answers()] == ["succeeded"]


async def test_a_store_that_stays_away_keeps_no_group_for_ever() -> None:
    stage = Stage()
    await stage.two_routers()
    a = await stage.agent("a", script=hold)
    stage.publish("t", mode="fanout")
    await stage.settle()
    owner = leg(a).dispatch.envelope.group_owner
    stage.kill(next(router for router in stage.routers if router.desk.router_id == owner))
    stage.store.away = True
    await stage.pass_time(60)
    assert stage.answers() == []
    await a.end(leg(a))
    await stage.pass_time(stage.policies.timeouts.fanout_s + DOUBT_S)
    told = stage.answer("t")
    assert (told["status"], told["reason"]) == ("dead_letter", "expired")


async def test_one_that_is_dead_is_missing_and_nobody_waits_for_it() -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a")
    dead = await stage.agent("b")
    dead.die()
    await stage.pass_time(15)
    stage.publish("t", mode="fanout")
    await stage.settle()
    told = stage.answer("t")
    assert set(told["result"]) == {"a"}
    assert by_name(told["missing"], "why")["b"].startswith("dead, silent for")


async def test_one_that_dies_with_it_is_missing_with_what_happened() -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a")
    dying = await stage.agent("b", script=hold)
    stage.publish("t", mode="fanout", deadline_ms=60_000)
    await stage.settle()
    dying.die()
    await stage.pass_time(62, step=1)
    told = stage.answer("t")
    assert set(told["result"]) == {"a"}
    words = by_name(told["missing"], "why") | by_name(told["failed"], "error")
    assert set(words) == {"b"}
    assert words["b"].startswith("no answer in time: b: dead, silent for")


async def test_one_that_is_busy_gets_it_when_it_is_free() -> None:
    stage = Stage()
    await stage.router()
    busy = await stage.agent("b", script=hold)
    stage.publish("first")
    await stage.settle()
    await stage.agent("a")
    stage.publish("t", mode="fanout")
    await stage.settle()
    assert stage.dispatches("t~0.1.b") == []
    busy.script = succeed
    await busy.end(leg(busy))
    await stage.settle()
    assert set(stage.answer("t")["result"]) == {"a", "b"}


async def test_each_leg_is_tried_again_at_its_own_agent() -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a")
    b = await stage.agent(
        "b",
        script=lambda work: Reply(
            OutcomeClass.FAILED if work.dispatch.envelope.next_attempt < 3 else OutcomeClass.SUCCEEDED
        ),
    )
    stage.publish("t", mode="fanout")
    await stage.pass_time(10, step=0.25)
    assert set(stage.answer("t")["result"]) == {"a", "b"}
    assert b.ran["t~0.1.b"] == 3


async def test_one_that_fails_for_good_is_told_and_is_no_dead_letter() -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a")
    await stage.agent("b", script=always(OutcomeClass.BAD_REQUEST, "cannot read that"))
    stage.publish("t", mode="fanout")
    await stage.settle()
    told = stage.answer("t")
    assert told["failed"] == [{"agent": "b", "outcome": "bad_request", "error": "cannot read that"}]
    assert stage.letters() == []
    assert stage.end("t~0.1.b").state is TaskState.CANCELLED


async def test_where_nobody_succeeds_it_is_one_dead_letter_that_names_them_all() -> None:
    stage = Stage()
    await stage.router()
    for name in ("a", "b"):
        await stage.agent(name, script=always(OutcomeClass.BAD_REQUEST, f"{name} cannot"))
    stage.publish("t", mode="fanout")
    await stage.settle()
    letter = stage.letter()
    assert (letter.envelope.task_id, letter.reason) == ("t", DeadLetterReason.ATTEMPTS_EXHAUSTED)
    assert "a: bad_request: a cannot; b: bad_request: b cannot" in letter.error
    assert stage.answer("t")["status"] == "dead_letter"


async def test_the_first_answers_are_enough_and_the_others_are_stopped() -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a")
    slow = await stage.agent("b", script=hold)
    slow.obeys = True
    stage.publish("t", mode="fanout", aggregate="first_n", first_n=1)
    await stage.pass_time(2)
    told = stage.answer("t")
    assert (set(told["result"]), told["complete"]) == ({"a"}, True)
    assert by_name(told["missing"], "why") == {"b": "not needed any more"}
    assert slow.held == []
    assert stage.end("t~0.1.b").state is TaskState.CANCELLED


async def test_the_majority_decides() -> None:
    stage = Stage()
    await stage.router()
    for name, result in (("a", b"1"), ("b", b"2"), ("c", b"2")):
        await stage.agent(name, script=saying(result))
    stage.publish("t", mode="fanout", aggregate="vote")
    await stage.settle()
    told = stage.answer("t")
    assert (told["result"], told["votes"][0]) == (2, {"result": 2, "votes": 2})


async def test_one_that_is_taken_back_stops_all() -> None:
    stage = Stage()
    await stage.router()
    agents = [await stage.agent(name, script=hold) for name in ("a", "b")]
    for agent in agents:
        agent.obeys = True
    stage.publish("t", mode="fanout")
    await stage.settle()
    await cancel(stage, "t")
    await stage.pass_time(2)
    assert stage.answer("t")["status"] == "cancelled"
    assert [agent.held for agent in agents] == [[], []]


async def test_side_effects_go_to_one_agent_only() -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a", capability_side_effects=True)
    stage.publish("t", mode="fanout")
    await stage.settle()
    assert stage.letter().reason is DeadLetterReason.INVALID
    assert "one agent only" in stage.letter().error


@pytest.mark.parametrize("routers", [1, 2])
async def test_a_router_that_dies_in_the_middle_loses_no_answer(routers: int) -> None:
    stage = Stage()
    await (stage.router() if routers == 1 else stage.two_routers())
    a, b = await stage.agent("a", script=hold), await stage.agent("b", script=hold)
    stage.publish("t", mode="fanout", deadline_ms=120_000)
    await stage.settle()
    await a.end(leg(a), Reply(result=b'"from a"'))
    await stage.settle()
    owner = leg(b).dispatch.envelope.group_owner
    stage.kill(next(each for each in stage.routers if each.desk.router_id == owner))
    if routers == 1:
        await stage.router()
    await stage.pass_time(20)
    await b.end(leg(b), Reply(result=b'"from b"'))
    await stage.pass_time(20)

    assert stage.answer("t")["result"] == {"a": "from a", "b": "from b"}
    await stage.come_to_rest()
    assert len(stage.ends("t")) == 1
    assert len(stage.answers()) == 1


async def test_the_replay_of_its_dead_letter_is_a_fan_out_again() -> None:
    stage = Stage()
    await stage.router()
    a = await stage.agent("a", script=always(OutcomeClass.BAD_REQUEST, "not yet"))
    stage.publish("t", mode="fanout")
    await stage.settle()
    a.script = succeed
    (letter,) = stage.broker.messages(stage.names.dlq)
    headers = {**letter.headers, "x-reach-life": 1}
    headers.pop("x-reach-attempts", None)
    stage.broker.put_message(stage.names.returns, letter.body, headers)
    await stage.come_to_rest()
    assert [one["status"] for one in stage.answers()] == ["dead_letter", "succeeded"]


async def test_what_does_not_fit_into_one_answer_is_missing_and_told_where_it_is() -> None:
    """A broker ends the session of a router that sends more than it takes, and again whenever it tries."""
    stage = Stage(policies=rules(intake=IntakePolicy(max_body_bytes=1024)))
    await stage.router()
    for name in ("a", "b", "c"):
        await stage.agent(name, script=saying(b'"' + name.encode() * 500 + b'"'))
    stage.publish("t", mode="fanout")
    await stage.settle()

    told = stage.answer("t")
    assert len(told["result"]) == 1
    assert len(orjson.dumps(told)) < 2048
    assert {one["agent"] for one in told["missing"]} == {"a", "b", "c"} - set(told["result"])
    for one in told["missing"]:
        leg_id = f"t~0.1.{one['agent']}"
        assert f"`reach fetch {leg_id}`" in one["why"]
        (known,) = (await stage.store.known_tasks([leg_id])).values()
        assert known.answer is not None
        assert one["agent"].encode() * 500 in known.answer


async def test_a_watch_whose_task_cannot_be_read_any_more_is_a_dead_letter() -> None:
    """The router that led it is gone, and its successor reads no tasks of that size."""
    stage = Stage()
    await stage.router()
    await stage.agent("a", script=hold)
    stage.publish("t", mode="fanout", deadline_ms=60_000, payload={"text": "x" * 2000})
    await stage.settle()
    stage.kill(stage.r1)
    stage.policies = rules(intake=IntakePolicy(max_body_bytes=1024))
    await stage.router()
    await stage.pass_time(10)

    assert stage.answer("t")["status"] == "dead_letter"
    assert stage.letter().reason is DeadLetterReason.TOO_LARGE
