"""An agent calls another one in the middle of its work: a task of its own in the same flow, done once."""

from typing import Any

import orjson
import pytest

from reach_worker.core.admission import CALL
from reach_worker.core.cancel import CANCEL_TASK, cancel_body
from reach_worker.core.duplicates import TaskState
from reach_worker.core.envelope import FLOW, Envelope
from reach_worker.core.handoff import HandoffPolicy
from reach_worker.core.message import Message
from reach_worker.core.outcome import DeadLetterReason
from reach_worker.core.visits import Visit
from reach_worker.ports import Accepted
from reach_worker.testing import MemoryBus, Moment
from tests.services.scripted import hand_on
from tests.services.stage import Stage, die, rules

BOX = "instance.a"
"""The mailbox of the agent that calls."""


class Caller:
    """Agent a, in the middle of a task of flow f1."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.bus = MemoryBus(stage.broker)
        self.bus.connect()
        stage.broker.declare_private(BOX)

    async def call(
        self, task_id: str = "c1", capability: str = "text.two", *, without: str = "", **given: Any
    ) -> None:
        said: dict[str, Any] = {
            "from_agent": "a",
            "hops": 1,
            "visited": (Visit("a", "x"),),
            "reply_to": BOX,
            "correlation_id": task_id,
        }
        deadline_ms = given.pop("deadline_ms", 5_000)
        envelope = Envelope(task_id, "f1", capability, "a", 0, **{**said, **given})
        headers = {name: value for name, value in envelope.headers().items() if name != without}
        body = orjson.dumps({"capability": capability, "payload": {}, "deadline_ms": deadline_ms})
        await self.bus.publish([Message(self.stage.names.returns, body, {**headers, CALL: 1})])

    async def take_back(self, task_id: str = "c1") -> None:
        await self.bus.publish([Message(CANCEL_TASK, cancel_body(task_id), {}, self.stage.names.events)])

    def answers(self, box: str = BOX) -> list[dict[str, Any]]:
        return [orjson.loads(delivery.body) for delivery in self.stage.broker.messages(box)]


async def with_b(stage: Stage, **b: Any) -> Caller:
    await stage.router()
    await stage.agent("a", "text.one", script=lambda _: None)
    await stage.agent("b", "text.two", **b)
    return Caller(stage)


async def test_it_is_done_as_a_task_of_the_flow_and_answered_to_the_agent() -> None:
    stage = Stage()
    caller = await with_b(stage, callable_by=["a"])
    await caller.call()
    await stage.settle()

    (answer,) = caller.answers()
    assert (answer["status"], answer["flow_id"], answer["chain"]) == ("succeeded", "f1", ["a", "b"])
    (accepted,) = [row for row in stage.rows(Accepted) if row.flow_id == "f1"]
    assert accepted.caller == "a"


async def test_its_deadline_counts_from_the_router_and_no_agents_clock_is_asked() -> None:
    stage = Stage()
    caller = await with_b(stage, script=lambda _: None)
    await caller.call(deadline_ms=3_000)
    await stage.settle()

    (held,) = stage.agents[1].held
    assert held.dispatch.envelope.deadline == held.dispatch.dispatched_at + 3_000_000
    assert held.dispatch.timeout_ms == 3_000


async def test_sent_twice_with_another_mailbox_it_is_done_once_and_both_are_answered() -> None:
    stage = Stage()
    caller = await with_b(stage, script=lambda _: None)
    stage.broker.declare_private("instance.new")
    await caller.call()
    await stage.settle()
    await caller.call(reply_to="instance.new")
    await stage.settle()
    await stage.agents[1].end(stage.agents[1].held[0])
    await stage.settle()
    await caller.call(reply_to="instance.new")
    await stage.settle()

    assert stage.agents[1].ran["c1"] == 1
    assert [answer["status"] for answer in caller.answers()] == ["succeeded"]
    assert [answer["status"] for answer in caller.answers("instance.new")] == ["succeeded"] * 2


async def test_calls_within_calls_end_at_the_limit_and_the_chain_is_told() -> None:
    stage = Stage(policies=rules(handoff=HandoffPolicy(hops=2)))
    caller = await with_b(stage)
    await caller.call("c2", hops=2)
    await caller.call("c3", hops=3, visited=(Visit("a", "x"), Visit("b", "y"), Visit("a", "x")))
    await stage.settle()

    told = {answer["task_id"]: answer["status"] for answer in caller.answers()}
    assert told == {"c2": "succeeded", "c3": "dead_letter"}
    end = stage.end("c3")
    assert end.reason is DeadLetterReason.HOP_LIMIT
    assert end.error.endswith("a → b → a → text.two")


@pytest.mark.parametrize("marked", [True, False])
async def test_a_message_of_an_agent_without_a_flow_is_refused(marked: bool) -> None:
    stage = Stage()
    caller = await with_b(stage)
    await caller.call(without=FLOW)
    if not marked:
        headers = {**Envelope("c2", "f1", "text.two", "a", 0, from_agent="a").headers()}
        del headers[FLOW]
        body = b'{"capability": "text.two"}'
        await caller.bus.publish([Message(stage.names.returns, body, headers)])
    await stage.settle()

    letters = stage.letters()
    assert {letter.reason for letter in letters} == {DeadLetterReason.INVALID}
    assert all("names no flow (x-reach-flow)" in letter.error for letter in letters)
    assert len(letters) == 1 + (not marked)
    assert not stage.agents[1].ran


async def test_the_calling_agent_takes_it_back_whoever_its_broker_user_is() -> None:
    stage = Stage()
    caller = await with_b(stage, script=lambda _: None)
    stage.publish("t0", "text.two")
    await stage.settle()
    await caller.call()
    await stage.settle()
    await caller.take_back()
    await stage.settle()

    assert stage.end("c1").state is TaskState.CANCELLED


async def test_what_is_called_for_may_be_handed_on_but_not_to_who_waits_for_it() -> None:
    stage = Stage()
    caller = await with_b(stage, script=lambda _: hand_on(to_agent="c"))
    await stage.agent("c", "text.two", capability_cost=5)
    await caller.call()
    await stage.settle(12)

    (answer,) = caller.answers()
    assert answer["chain"] == ["a", "b", "c"]


@pytest.mark.parametrize("moment", [Moment.BEFORE_PUBLISH, Moment.AFTER_PUBLISH, Moment.BEFORE_ACK])
async def test_a_router_that_dies_over_it_loses_nothing(moment: Moment) -> None:
    stage = Stage()
    caller = await with_b(stage)
    stage.r1.bus.once(moment, die)
    await caller.call(deadline_ms=60_000)
    await stage.pass_time(20)

    assert "succeeded" in {answer["status"] for answer in caller.answers()}
    assert stage.end("c1").state is TaskState.SUCCEEDED


async def test_who_publishes_cannot_pass_for_an_agent() -> None:
    stage = Stage()
    await with_b(stage, callable_by=["a"])
    headers = {**Envelope("c1", "f1", "text.two", "a", 0, from_agent="a", hops=1).headers(), CALL: 1}
    stage.publish("c1", "text.two", headers=headers)
    await stage.settle()

    assert stage.answer("c1")["status"] == "unmatched"
