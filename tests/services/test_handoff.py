"""An agent hands its task on: another one goes on with it, and however that goes there is one end."""

from typing import Any

import orjson
import pytest

from reach_worker.core.backoff import RetryPolicy
from reach_worker.core.duplicates import TaskState
from reach_worker.core.handoff import HandoffPolicy
from reach_worker.core.outcome import DeadLetterReason, OutcomeClass
from reach_worker.core.replaying import Anew, replayed
from reach_worker.testing import Fate, Moment
from tests.services.scripted import Reply, Script, Work, always, hand_on, succeed
from tests.services.stage import Stage, die, rules
from tests.services.test_cancels import cancel

HANDED, FAILED = OutcomeClass.HANDOFF, OutcomeClass.FAILED


def to(**handoff: Any) -> Script:
    return lambda _: hand_on(**handoff)


def seeing(seen: list[Work], *replies: Reply) -> Script:
    """Answers one after the other; what it got is kept."""
    left = iter(replies)

    def answer(work: Work) -> Reply:
        seen.append(work)
        return next(left)

    return answer


async def a_and_b(stage: Stage, script: Script | None = None, then: Script = succeed, **b: Any) -> None:
    """One router; a hands on to b."""
    await stage.router()
    await stage.agent("a", "text.one", script=script or to(capability="text.two", reason="needs a two"))
    await stage.agent("b", "text.two", script=then, **b)


def kinds(stage: Stage, task_id: str = "t1") -> list[tuple[str, str]]:
    return [(seen.agent_id, seen.outcome.value) for seen in stage.outcomes(task_id)]


async def test_the_other_agent_goes_on_and_the_caller_gets_one_answer() -> None:
    stage = Stage()
    await a_and_b(stage, to(to_agent="b", reason="needs a two", context={"k": 1}, payload={"n": 2}))
    work: list[Work] = []
    stage.agents[1].script = seeing(work, Reply())
    stage.publish("t1", "text.one", payload={"n": 1}, metadata={"order": "17"})
    await stage.settle()

    answer = stage.answer("t1")
    assert (answer["status"], answer["agent"], answer["attempt"], answer["chain"]) == (
        "succeeded",
        "b",
        2,
        ["a", "b"],
    )
    assert kinds(stage) == [("a", "handoff"), ("b", "succeeded")]
    assert stage.outcomes("t1")[0].message == "to b for text.two: needs a two"
    first, second = stage.dispatches("t1")
    assert (first.after, second.after) == ("", first.dispatch_id)
    body = orjson.loads(work[0].delivery.body)
    assert (body["payload"], body["metadata"]) == ({"n": 2}, {"order": "17"})
    assert (body["handoff"]["reason"], body["handoff"]["context"]) == ("needs a two", {"k": 1})
    assert stage.end("t1").state is TaskState.SUCCEEDED
    assert stage.at_rest()


async def test_handing_on_is_a_success_of_the_agent_and_spends_nothing() -> None:
    stage = Stage(policies=rules(retry=RetryPolicy(max_retries=0)))
    await a_and_b(stage)
    stage.publish("t1", "text.one")
    await stage.settle()

    track = stage.r1.desk.fleet.record.of("a", "text.one")
    assert track is not None
    assert track.slow.good > 0.9
    assert len(track.service) == 0, "how long it took to hand on is not how long the work takes"
    assert stage.end("t1").state is TaskState.SUCCEEDED


async def test_the_next_stretch_has_retries_of_its_own_and_they_use_what_was_handed_on() -> None:
    stage = Stage(policies=rules(retry=RetryPolicy(max_retries=1)))
    tries = iter([Reply(FAILED, "boom"), hand_on(capability="text.two", payload={"n": 2})])
    await a_and_b(stage, lambda _: next(tries))
    seen: list[Work] = []
    stage.agents[1].script = seeing(seen, Reply(FAILED, "bang"), Reply())
    stage.publish("t1", "text.one", payload={"n": 1})
    await stage.pass_time(6)

    assert kinds(stage) == [("a", "failed"), ("a", "handoff"), ("b", "failed"), ("b", "succeeded")]
    assert [orjson.loads(work.delivery.body)["payload"] for work in seen] == [{"n": 2}] * 2
    assert [one.attempt for one in stage.dispatches("t1")] == [1, 2, 3, 4]


async def test_a_dead_letter_of_the_next_stretch_keeps_the_task_as_it_was_received_and_replays_from_that_stretch() -> (
    None
):
    stage = Stage(policies=rules(retry=RetryPolicy(max_retries=0)))
    await a_and_b(stage, to(to_agent="b", payload={"n": 2}), always(FAILED, "boom"))
    stage.publish("t1", "text.one", payload={"n": 1})
    await stage.settle()

    letter = stage.letter()
    assert orjson.loads(letter.received) == {"capability": "text.one", "payload": {"n": 1}}
    assert (letter.envelope.capability, letter.envelope.chain()) == ("text.two", ("a",))
    assert stage.answer("t1")["chain"] == ["a"]

    found = replayed(letter, Anew(now_us=0, max_bytes=10_000, new_id="new"))
    assert isinstance(found, tuple)
    envelope, body = found
    assert (envelope.capability, envelope.to_agent, envelope.from_agent) == ("text.two", "b", "a")
    assert (envelope.hops, envelope.visited, envelope.attempts) == (0, (), ())
    assert orjson.loads(body)["payload"] == {"n": 2}

    replayed_from_start = replayed(
        letter, Anew(now_us=0, max_bytes=10_000, new_id="new", body=letter.received)
    )
    assert isinstance(replayed_from_start, tuple)
    assert (replayed_from_start[0].capability, replayed_from_start[0].from_agent) == ("text.one", None)


async def test_a_circle_ends_as_a_dead_letter_that_tells_it() -> None:
    stage = Stage()
    await a_and_b(stage, to(to_agent="b"), to(to_agent="a"))
    stage.publish("t1", "text.one")
    await stage.settle(12)

    end = stage.end("t1")
    assert (end.state, end.reason) == (TaskState.DEAD_LETTER, DeadLetterReason.HOP_LIMIT)
    assert "it comes back in a circle: a → b → a" in end.error
    assert stage.answer("t1")["reason"] == "hop_limit"
    assert kinds(stage) == [("a", "handoff"), ("b", "handoff")]


async def test_where_the_payload_changes_each_time_the_hops_end_it() -> None:
    stage = Stage(policies=rules(handoff=HandoffPolicy(hops=3)))
    counted = iter(range(100))
    await a_and_b(
        stage,
        lambda _: hand_on(to_agent="b", payload={"n": next(counted)}),
        lambda _: hand_on(to_agent="a", payload={"n": next(counted)}),
    )
    stage.publish("t1", "text.one")
    await stage.settle(20)

    assert stage.end("t1").reason is DeadLetterReason.HOP_LIMIT
    assert stage.end("t1").error.endswith("a → b → a → b → a")
    assert len(stage.dispatches("t1")) == 4


async def test_by_capability_it_goes_to_whoever_has_not_had_it() -> None:
    stage = Stage()
    await a_and_b(stage, then=to(capability="text.one"))
    await stage.agent("c", "text.one", capability_cost=5)
    stage.publish("t1", "text.one")
    await stage.settle(12)

    assert stage.answer("t1")["chain"] == ["a", "b", "c"]
    assert kinds(stage)[-1] == ("c", "succeeded")


@pytest.mark.parametrize(
    ("handoff", "why"),
    [
        ({"to_agent": "billing"}, "it hands on to 'billing', and no such agent is known"),
        (
            {"capability": "text.tow"},
            "it hands on to 'text.tow', which no known agent has, did you mean 'text.two'?",
        ),
    ],
)
async def test_a_handoff_to_nobody_is_the_agents_failure_and_another_one_tries(
    handoff: dict[str, Any], why: str
) -> None:
    stage = Stage()
    await a_and_b(stage, to(**handoff))
    await stage.agent("c", "text.one", capability_cost=5)
    stage.publish("t1", "text.one", payload={"n": 1})
    await stage.pass_time(4)

    assert kinds(stage) == [("a", "failed"), ("c", "succeeded")]
    assert stage.outcomes("t1")[0].message == why


async def test_what_an_agent_says_that_is_no_handoff_is_its_failure() -> None:
    stage = Stage(policies=rules(retry=RetryPolicy(max_retries=0)))
    await a_and_b(stage, always(HANDED))
    stage.publish("t1", "text.one", payload={"n": 1})
    await stage.settle()

    assert stage.outcomes("t1")[0].outcome is FAILED
    assert orjson.loads(stage.letter().body) == {"capability": "text.one", "payload": {"n": 1}}


async def test_who_may_be_handed_to_is_asked_of_the_handing_agent() -> None:
    stage = Stage()
    await a_and_b(stage, callable_by=["a"])
    await stage.agent("c", "text.three", script=to(capability="text.two"))
    stage.publish("t1", "text.one")
    stage.publish("t2", "text.three")
    await stage.settle(12)

    assert stage.answer("t1")["status"] == "succeeded"
    told = stage.answer("t2")
    assert (told["status"], told["error"]) == ("unmatched", "b: not callable by c, only by a")


async def test_the_callers_name_opens_no_door_for_the_agent() -> None:
    stage = Stage()
    await a_and_b(stage, callable_by=["anna"])
    stage.publish("t1", "text.one", user_id="anna")
    await stage.settle(12)

    assert stage.answer("t1")["error"] == "b: not callable by a, only by anna"


async def test_the_payload_is_checked_against_the_targets_schema() -> None:
    stage = Stage()
    schema = {"type": "object", "required": ["q"]}
    await a_and_b(stage, capability_input_schema=schema)
    stage.publish("t1", "text.one")
    await stage.settle()

    assert stage.end("t1").reason is DeadLetterReason.PAYLOAD_REFUSED
    assert not stage.agents[1].ran


async def test_a_caller_cannot_say_that_an_agent_handed_it_on() -> None:
    stage = Stage()
    await a_and_b(stage)
    stage.publish("t1", "text.two", handoff={"from_agent": "a", "origin": "{}"})
    stage.publish("t2", "text.two", headers={"x-reach-from-agent": "a", "x-reach-hops": 7})
    await stage.settle()

    assert stage.answer("t1")["reason"] == "invalid"
    assert "'handoff' is written by routers" in stage.answer("t1")["error"]
    assert "chain" not in stage.answer("t2")


async def test_the_deadline_goes_on() -> None:
    stage = Stage()
    await a_and_b(stage, then=lambda _: None)
    stage.publish("t1", "text.one", deadline_ms=5_000)
    await stage.settle()
    (held,) = stage.agents[1].held

    assert held.dispatch.envelope.deadline == stage.dispatches("t1")[0].at + 5_000_000


# ---- trouble


@pytest.mark.parametrize("moment", [Moment.BEFORE_PUBLISH, Moment.AFTER_PUBLISH, Moment.BEFORE_ACK])
@pytest.mark.parametrize("effects", [(False, False), (True, False), (False, True), (True, True)])
async def test_a_router_that_dies_over_it_loses_nothing_and_ends_it_once(
    moment: Moment, effects: tuple[bool, bool]
) -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a", "text.one", script=lambda _: None, capability_side_effects=effects[0])
    await stage.agent("b", "text.two", capability_side_effects=effects[1])
    stage.publish("t1", "text.one")
    await stage.settle()
    (work,) = stage.agents[0].held
    if effects[0]:
        await stage.agents[0].say_started(work)
    stage.r1.bus.once(moment, die)
    await stage.agents[0].end(work, hand_on(capability="text.two"))
    await stage.come_to_rest()

    states = [(end.state, end.reason) for end in stage.ends("t1")]
    unsure = effects[1] and states[0] == (TaskState.DEAD_LETTER, DeadLetterReason.OUTCOME_UNKNOWN)
    assert states[unsure:] in ([(TaskState.SUCCEEDED, None)], [])
    assert len(states) > 0
    if effects[1]:
        assert stage.agents[1].ran["t1"] <= 1
    if unsure:
        assert stage.letter().envelope.capability == "text.two"
    assert stage.agents[0].ran["t1"] == 1


async def test_a_handoff_that_is_told_twice_goes_one_way() -> None:
    stage = Stage()
    await a_and_b(stage, lambda _: None, lambda _: None)
    stage.publish("t1", "text.one")
    await stage.settle()
    (work,) = stage.agents[0].held
    reply = hand_on(capability="text.two")
    await stage.agents[0].send_outcome(work, reply)
    await stage.agents[0].end(work, reply)
    await stage.settle()
    await stage.agents[1].end(stage.agents[1].held[0])
    await stage.settle()

    assert len(stage.dispatches("t1")) == 2
    assert stage.agents[1].ran["t1"] == 1
    assert [seen.standing.value for seen in stage.outcomes("t1")] == ["current", "stale", "current"]
    assert stage.at_rest()


async def test_two_routers_that_both_had_it_agree_on_one_way() -> None:
    """Both believed to be alone, and sent the task to an agent: of two handoffs one goes on."""
    stage = Stage()
    one, two = await stage.two_routers()
    await stage.agent("a", "text.one", slots=4, script=lambda _: None)
    await stage.agent("b", "text.two", slots=4)
    stage.publish("t1", "text.one")
    await stage.settle()
    (work,) = stage.agents[0].held
    owner = one if work.dispatch.owner == "r1" else two
    owner.bus.once(Moment.BEFORE_PUBLISH, die)
    owner.bus.fail_next(Fate.STORED, to="agent.b")
    await stage.agents[0].end(work, hand_on(capability="text.two"))
    await stage.come_to_rest()

    assert stage.end("t1").state is TaskState.SUCCEEDED
    assert stage.answers()[0]["chain"] == ["a", "b"]


async def test_what_waits_for_the_next_agent_waits_in_its_lane_and_goes_on_from_there() -> None:
    stage = Stage(policies=rules(hold_s=5.0))
    await a_and_b(stage, then=lambda _: None)
    stage.publish("t0", "text.two")
    await stage.settle()
    stage.publish("t1", "text.one", payload={"n": 1})
    await stage.pass_time(8)

    (waits,) = stage.lane("text.two")
    assert waits.headers["x-reach-from-agent"] == "a"
    stage.agents[1].script = succeed
    await stage.agents[1].end(stage.agents[1].held[0])
    await stage.pass_time(4)
    assert stage.answer("t1")["chain"] == ["a", "b"]


async def test_it_is_handed_on_although_the_store_is_away() -> None:
    stage = Stage()
    await a_and_b(stage)
    stage.store.away = True
    stage.publish("t1", "text.one")
    await stage.settle()
    stage.store.away = False

    assert stage.answer("t1")["chain"] == ["a", "b"]


@pytest.mark.parametrize("mode", ["race", "fanout"])
async def test_a_share_of_a_race_or_fan_out_may_be_handed_on(mode: str) -> None:
    stage = Stage()
    await a_and_b(stage)
    await stage.agent("c", "text.one", script=always(FAILED, "boom"), capability_cost=5)
    stage.publish("t1", "text.one", mode=mode, deadline_ms=20_000)
    await stage.pass_time(25)

    answer = stage.answer("t1")
    assert answer["final"]
    assert stage.agents[1].ran
    assert len(stage.ends("t1")) == 1
    assert stage.at_rest()


async def test_shares_that_end_at_one_agent_are_each_told() -> None:
    stage = Stage()
    await stage.router()
    for name in ("a", "b"):
        await stage.agent(name, "text.one", script=lambda _: hand_on(to_agent="c", capability="text.two"))
    await stage.agent("c", "text.two", slots=2, script=lambda work: Reply(result=orjson.dumps(work.task_id)))
    stage.publish("t1", "text.one", mode="fanout")
    await stage.come_to_rest()

    answer = stage.answer("t1")
    assert answer["result"] == {"a": "t1~0.1.a", "b": "t1~0.1.b"}
    assert [(one["agent"], one["handed_to"]) for one in answer["answers"]] == [("a", "c"), ("b", "c")]


@pytest.mark.parametrize("mode", ["race", "fanout"])
async def test_a_share_is_not_handed_on_to_what_has_side_effects(mode: str) -> None:
    """Each of the agents would have it done, and the caller would see one of them at most."""
    stage = Stage(policies=rules(retry=RetryPolicy(max_retries=0)))
    await stage.router()
    for name in ("a", "b"):
        await stage.agent(name, "text.one", script=lambda _: hand_on(capability="bill.pay"))
    pays = await stage.agent("p", "bill.pay", capability_side_effects=True, slots=9)
    stage.publish("t1", "text.one", mode=mode)
    await stage.come_to_rest()

    assert not pays.ran
    assert stage.answer("t1")["status"] == "dead_letter"
    assert "which has side effects" in stage.answer("t1")["error"]


async def test_what_nobody_wants_any_more_is_not_handed_on() -> None:
    stage = Stage()
    await a_and_b(stage, lambda _: None)
    stage.publish("t1", "text.one", user_id="anna")
    await stage.settle()
    await cancel(stage, "t1", by="anna")
    await stage.agents[0].end(stage.agents[0].held[0], hand_on(capability="text.two"))
    await stage.settle()

    assert stage.end("t1").state is TaskState.CANCELLED
    assert not stage.agents[1].ran
