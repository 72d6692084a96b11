"""Messages that are no tasks, and tasks that no agent gets."""

import pytest

from reach_worker.core.duplicates import TaskState
from reach_worker.core.outcome import DeadLetterReason
from reach_worker.core.token_bucket import IntakePolicy
from tests.services.scripted import manifest
from tests.services.stage import CALLER, Stage, rules

SCHEMA = {
    "type": "object",
    "required": ["text"],
    "properties": {"text": {"type": "string"}, "times": {"type": "integer"}},
}


@pytest.mark.parametrize(
    ("body", "reason", "words"),
    [
        (b"", DeadLetterReason.UNDECODABLE, "empty"),
        (b"{", DeadLetterReason.UNDECODABLE, "not JSON"),
        (b"\xff\xfe", DeadLetterReason.UNDECODABLE, "not JSON"),
        (b"[]", DeadLetterReason.INVALID, "an array"),
        (b'{"capability": "text.echo", "payloat": {}}', DeadLetterReason.INVALID, "did you mean 'payload'?"),
        (b'{"capability": 5}', DeadLetterReason.INVALID, "capability"),
        (b'{"capability": "text.echo", "payload": []}', DeadLetterReason.INVALID, "payload"),
        (b"{}", DeadLetterReason.INVALID, "exactly one"),
        (
            b'{"capability": "text.echo", "mode": "race", "side_effects": true}',
            DeadLetterReason.INVALID,
            "'race'",
        ),
        (b'{"capability": "text.echo", "schema_version": 99}', DeadLetterReason.INVALID, "newer"),
        (b'"' + b"x" * 2000 + b'"', DeadLetterReason.TOO_LARGE, "2002 bytes"),
    ],
)
async def test_a_bad_message_is_a_dead_letter_once_and_the_router_goes_on(
    body: bytes, reason: DeadLetterReason, words: str
) -> None:
    stage = Stage(policies=rules(intake=IntakePolicy(max_body_bytes=1024)))
    await stage.router()
    await stage.agent("a")
    stage.broker.send_task(body, message_id="bad", reply_to=CALLER, correlation_id="bad")
    stage.publish("good")
    await stage.settle()
    letter = stage.letter()
    assert (letter.task_id, letter.reason, letter.body) == ("bad", reason, body)
    assert words in letter.error
    assert stage.answer("bad")["reason"] == reason.value
    assert stage.answer("good")["status"] == "succeeded"
    assert stage.end("bad").reason is reason
    assert stage.unacknowledged() == 0


async def test_properties_that_cannot_be_decoded_are_a_dead_letter() -> None:
    stage = Stage()
    await stage.router(manifests=[manifest("a")])
    stage.broker.send_task(b"{}", fault="message_id is not UTF-8")
    await stage.settle()
    assert stage.letter().reason is DeadLetterReason.UNDECODABLE
    assert "not UTF-8" in stage.letter().error


async def test_the_headers_of_a_stranger_are_not_believed() -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a", callable_by=["boss"])
    headers = {"x-reach-caller": "boss", "x-reach-task": "other", "x-reach-attempts": "[]"}
    stage.publish("t1", headers=headers)
    await stage.settle()
    assert stage.answer("t1")["status"] == "unmatched"
    assert "not callable by anonymous" in stage.answer("t1")["error"]


async def test_a_caller_that_the_broker_vouches_for_may() -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a", callable_by=["boss"])
    stage.publish("t1", user_id="boss")
    await stage.settle()
    assert stage.answer("t1")["status"] == "succeeded"


async def test_a_reply_to_under_our_own_prefix_is_refused() -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a")
    stage.publish("t1", reply_to=stage.names.dlq)
    await stage.settle()
    letter = stage.letter()
    assert letter.reason is DeadLetterReason.INVALID
    assert "own queues" in letter.error
    assert stage.ready() == {"dlq": 1}


async def test_an_unknown_capability_is_unmatched_with_the_nearest_name() -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a", "text.echo")
    stage.publish("t1", "text.ecko")
    await stage.settle()
    answer = stage.answer("t1")
    assert (answer["status"], answer["final"]) == ("unmatched", False)
    assert "did you mean 'text.echo'?" in answer["error"]
    (parked,) = stage.broker.messages(stage.names.unmatched)
    assert parked.headers["x-reach-task"] == "t1"
    assert "unmatched" in parked.headers["x-reach-decision-json"]
    known = (await stage.store.known_tasks(["t1"]))["t1"]
    assert known.state is TaskState.UNMATCHED
    assert not stage.ends("t1")


async def test_an_intent_waits_for_the_semantic_level() -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a")
    stage.broker.send_task({"intent": "do what I mean"}, message_id="t1", reply_to=CALLER)
    await stage.settle()
    assert stage.answer("t1")["status"] == "unmatched"
    assert "intent" in stage.answer("t1")["error"]


async def test_a_payload_that_breaks_the_schema_is_refused_with_a_pointer_and_no_agent_call() -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a", capability_input_schema=SCHEMA)
    stage.publish("t1", payload={"text": "x", "times": "two"})
    await stage.settle()
    answer = stage.answer("t1")
    assert (answer["status"], answer["reason"]) == ("dead_letter", "payload_refused")
    assert "/times" in answer["error"]
    assert not agent.ran
    assert stage.end("t1").reason is DeadLetterReason.PAYLOAD_REFUSED


async def test_one_agent_that_takes_the_payload_is_enough() -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a", capability_input_schema=SCHEMA)
    await stage.agent("b")
    stage.publish("t1", payload={"times": "two"})
    await stage.settle()
    assert stage.answer("t1")["agent"] == "b"


async def test_a_capability_is_found_in_any_spelling() -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a", "text.echo")
    stage.publish("t1", " Text.ECHO")
    await stage.settle()
    assert stage.answer("t1")["status"] == "succeeded"


async def test_what_had_expired_before_it_came_is_a_dead_letter() -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a")
    stage.broker.send_task(
        {"capability": "text.echo", "deadline_ms": 10},
        message_id="t1",
        reply_to=CALLER,
        timestamp_s=stage.clock.utc_us() / 1e6 - 60,
    )
    await stage.settle()
    assert stage.answer("t1")["reason"] == "expired"
    assert not agent.ran


async def test_a_task_with_side_effects_must_bring_its_own_id() -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a", capability_side_effects=True)
    stage.publish(None)
    await stage.settle()
    letter = stage.letter()
    assert letter.reason is DeadLetterReason.INVALID
    assert "its own id" in letter.error


async def test_trace_context_travels_and_other_headers_end_here() -> None:
    stage = Stage()
    await stage.router()
    agent = await stage.agent("a", script=lambda _: None)
    stage.publish("t1", headers={"traceparent": "00-aa-bb-01", "CC": "elsewhere", "x-mine": "1"})
    await stage.settle()
    (work,) = agent.held
    assert work.delivery.headers["traceparent"] == "00-aa-bb-01"
    assert not {"CC", "x-mine"} & set(work.delivery.headers)
    assert work.delivery.correlation_id == work.dispatch.dispatch_id
    assert work.delivery.body == b'{"capability":"text.echo","payload":{}}'
    await agent.end(work)
    await stage.settle()
    (told,) = stage.broker.messages(CALLER)
    assert not told.headers
    assert told.correlation_id == "t1"


async def test_a_task_without_an_id_gets_one() -> None:
    stage = Stage()
    await stage.router()
    await stage.agent("a")
    stage.publish(None)
    stage.publish(None)
    await stage.settle()
    first, second = stage.answers()
    assert first["task_id"] != second["task_id"]
    assert first["flow_id"] == first["task_id"]


async def test_junk_in_our_own_queue_is_a_dead_letter() -> None:
    stage = Stage()
    await stage.router(manifests=[manifest("a")])
    stage.broker.put_message(stage.names.returns, b"junk", {})
    await stage.settle()
    assert stage.letter().reason is DeadLetterReason.INVALID
    assert stage.ready() == {"dlq": 1}
