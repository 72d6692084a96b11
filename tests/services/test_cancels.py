"""Tasks that are cancelled: wherever they are, by whoever may do so, and it is nobody's failure."""

from typing import Any

import pytest

from reach_worker.core.cancel import CANCEL_TASK, CancelReply, cancel_body, cancel_reply_from
from reach_worker.core.duplicates import TaskState
from reach_worker.core.json_object import object_in
from reach_worker.core.message import Message
from reach_worker.core.outcome import DeadLetterReason, OutcomeClass
from reach_worker.testing import Fate, MemoryBus
from tests.services.scripted import Reply, Work, always, hold
from tests.services.stage import Stage

ASKER = "my-answers"


def first_fails(work: Work) -> Reply:
    return Reply(OutcomeClass.FAILED if work.dispatch.envelope.next_attempt == 1 else OutcomeClass.SUCCEEDED)


async def cancel(stage: Stage, task_id: str, by: str | None = None, **how: Any) -> list[CancelReply]:
    """Ask for it as a caller does; what the routers say."""
    if ASKER not in stage.broker.queues:
        stage.broker.declare_private(ASKER)
    before = len(stage.broker.messages(ASKER))
    bus = MemoryBus(stage.broker)
    bus.connect()
    body = how.get("body", cancel_body(task_id))
    await bus.publish(
        [
            Message(
                CANCEL_TASK, body, {}, stage.names.events, reply_to=how.get("reply_to", ASKER), user_id=by,
                persistent=False, mandatory=False,
            )
        ]
    )  # fmt: skip
    bus.disconnect()
    await stage.settle()
    replies = [cancel_reply_from(object_in(each.body)) for each in stage.broker.messages(ASKER)[before:]]
    assert all(replies)
    return [reply for reply in replies if reply is not None]


def yes(task_id: str, state: str) -> list[CancelReply]:
    return [CancelReply(task_id, cancelled=True, state=state)]


def no(task_id: str, state: str) -> list[CancelReply]:
    return [CancelReply(task_id, cancelled=False, state=state)]


async def test_what_waits_ends_at_once() -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a", slots=1, script=hold)
    stage.publish("t1")
    stage.publish("t2")
    await stage.settle()

    assert await cancel(stage, "t2") == yes("t2", "waiting")

    assert stage.end("t2").state is TaskState.CANCELLED
    assert stage.end("t2").error == "its caller took it back"
    assert stage.answer("t2")["status"] == "cancelled"
    assert stage.dispatches("t2") == []


async def test_what_runs_is_told_to_stop_until_it_does_and_no_agent_is_charged() -> None:
    stage = Stage()
    router = await stage.router()
    agent = await stage.agent("a", script=hold)
    stage.broker.declare_private("ears")
    stage.broker.bind(stage.names.events, "cancel.a", "ears")
    stage.publish("t1")
    await stage.settle()

    assert await cancel(stage, "t1") == yes("t1", "running")
    await stage.pass_time(1)
    (work,) = agent.held
    told = stage.broker.messages("ears")
    assert {each.body.decode() for each in told} == {work.dispatch.dispatch_id}
    assert len(told) >= 2
    assert stage.ends("t1") == []

    await agent.end(work, Reply(OutcomeClass.CANCELLED, "taken back while it ran"))
    await stage.settle()
    assert stage.end("t1").state is TaskState.CANCELLED
    assert router.leases == 0
    track = router.desk.fleet.record.of("a", "text.echo")
    assert track is None or track.slow.rate() is None


async def test_a_success_that_was_on_its_way_counts() -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a", script=hold)
    stage.publish("t1")
    await stage.settle()
    await cancel(stage, "t1")

    await agent.end(agent.held[0], Reply())
    await stage.settle()

    assert stage.end("t1").state is TaskState.SUCCEEDED


@pytest.mark.parametrize("kind", [OutcomeClass.FAILED, OutcomeClass.RATE_LIMITED, OutcomeClass.RELEASED])
async def test_what_failed_meanwhile_is_not_tried_again(kind: OutcomeClass) -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a", script=hold)
    stage.publish("t1")
    await stage.settle()
    await cancel(stage, "t1")

    await agent.end(agent.held[0], Reply(kind))
    await stage.come_to_rest()

    assert stage.end("t1").state is TaskState.CANCELLED
    assert len(stage.dispatches("t1")) == 1


async def test_what_may_have_had_effects_is_not_called_cancelled() -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a", script=hold)
    stage.publish("t1", side_effects=True)
    await stage.settle()
    await cancel(stage, "t1")

    await agent.end(agent.held[0], Reply(OutcomeClass.TIMEOUT, started=True))
    await stage.settle()

    assert stage.end("t1").reason is DeadLetterReason.OUTCOME_UNKNOWN


async def test_what_waits_on_a_rung_ends_when_it_comes_back() -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a", script=always(OutcomeClass.FAILED))
    stage.publish("t1")
    await stage.settle()
    assert stage.broker.messages(stage.names.dlq) == []

    assert await cancel(stage, "t1") == yes("t1", "under_way")
    await stage.come_to_rest()

    assert stage.end("t1").state is TaskState.CANCELLED
    assert len(stage.dispatches("t1")) == 1
    assert stage.answer("t1")["status"] == "cancelled"


async def test_a_request_that_overtakes_its_task_is_kept_a_minute() -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a")
    assert await cancel(stage, "t1") == yes("t1", "unknown")
    stage.publish("t1")
    await stage.settle()
    assert stage.end("t1").state is TaskState.CANCELLED

    await cancel(stage, "t2")
    await stage.pass_time(61, step=5)
    stage.publish("t2")
    await stage.settle()
    assert stage.end("t2").state is TaskState.SUCCEEDED


async def test_what_has_ended_stays_as_it_is_and_may_begin_anew() -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a")
    stage.publish("t1")
    await stage.settle()

    assert await cancel(stage, "t1") == no("t1", "succeeded")

    await stage.pass_time(61, step=5)
    stage.publish("t1")
    await stage.settle()
    assert [end.state for end in stage.ends("t1")] == [TaskState.SUCCEEDED] * 2


@pytest.mark.parametrize("where", ["window", "agent"])
async def test_only_its_caller_takes_a_task_back(where: str) -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a", slots=1, script=hold)
    stage.publish("t1", user_id="ann")
    stage.publish("t2", user_id="ann")
    await stage.settle()
    task_id = "t1" if where == "agent" else "t2"

    for stranger in ("bob", None):
        assert await cancel(stage, task_id, by=stranger) == no(task_id, "forbidden")
    assert stage.ends(task_id) == []

    (reply,) = await cancel(stage, task_id, by="ann")
    assert reply.cancelled
    await agent.end(agent.held[0], Reply(OutcomeClass.CANCELLED))
    await stage.settle()
    assert stage.end(task_id).state is TaskState.CANCELLED


async def test_a_stranger_does_not_take_back_what_is_elsewhere() -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a", script=first_fails)
    stage.publish("t1", user_id="ann")
    await stage.settle()
    await cancel(stage, "t1", by="bob")
    await stage.come_to_rest()
    assert stage.end("t1").state is TaskState.SUCCEEDED


async def test_of_two_routers_the_one_that_has_it_takes_it_back() -> None:
    stage = Stage()
    first, second = await stage.two_routers()
    agent = await stage.agent("a", slots=2, script=hold)
    stage.publish("t1")
    stage.publish("t2")
    stage.publish("t3")
    await stage.settle()

    for task_id in ("t1", "t2", "t3"):
        replies = await cancel(stage, task_id)
        assert [reply.cancelled for reply in replies] == [True, True]
    for work in list(agent.held):
        await agent.end(work, Reply(OutcomeClass.CANCELLED))
    await stage.come_to_rest()

    assert [stage.end(task_id).state for task_id in ("t1", "t2", "t3")] == [TaskState.CANCELLED] * 3
    assert (first.leases, second.leases) == (0, 0)


async def test_a_session_that_ends_in_between_loses_nothing() -> None:
    stage = Stage()
    router = await stage.router()
    await stage.agent("a", slots=1, script=hold)
    stage.publish("t1")
    stage.publish("t2")
    await stage.settle()
    router.bus.fail_next(Fate.LOST, to="caller")
    await cancel(stage, "t2")
    await stage.pass_time(2)

    assert stage.end("t2").state is TaskState.CANCELLED


@pytest.mark.parametrize("body", [b"", b"[]", b"\xff", b'{"task_id": 3}', b'{"task_id": ""}', b'"t1"'])
async def test_a_request_that_names_no_task_does_no_harm(body: bytes) -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a")
    assert await cancel(stage, "", body=body) == []
    stage.publish("t1")
    await stage.settle()
    assert stage.end("t1").state is TaskState.SUCCEEDED


async def test_the_answer_goes_to_no_queue_of_ours() -> None:
    stage = Stage()
    await stage.router()
    stage.publish("t1")
    await cancel(stage, "t1", reply_to=stage.names.dlq)
    assert stage.broker.messages(stage.names.dlq) == []


def test_a_reply_reads_back() -> None:
    reply = CancelReply("t1", cancelled=True, state="waiting")
    assert cancel_reply_from(object_in(reply.body())) == reply
    assert cancel_reply_from({}) is None
