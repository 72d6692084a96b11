"""What callers get back."""

import json
import tracemalloc
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_worker.core import answer
from reach_worker.core.envelope import Envelope
from reach_worker.core.outcome import Attempt, DeadLetterReason, OutcomeClass
from tests.core.wire import ENVELOPE

TASK = Envelope("t1", "f1", "log.query", "alice", 1)
ATTEMPT = Attempt(1, "a", "d1", "e1", OutcomeClass.FAILED, "boom", 10, 20)


def told(body: bytes) -> Any:
    return orjson.loads(body)


def test_a_success_brings_the_result_and_who_did_it() -> None:
    assert told(answer.succeeded(TASK, "a", 2, b'{"count": 3}')) == {
        "task_id": "t1",
        "flow_id": "f1",
        "status": "succeeded",
        "final": True,
        "agent": "a",
        "attempt": 2,
        "result": {"count": 3},
    }


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (b"null", None),
        (b" [1, 2] \n", [1, 2]),
        (b'"text"', "text"),
        (b"1.50", 1.5),
        (b"plain text", "plain text"),
        (b"", ""),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"NaN", "NaN"),
        (b'{"a": 1} trailing', '{"a": 1} trailing'),
        (b'"\\ud800"', '"\\ud800"'),
        (b"[" * 3000, "[" * 3000),
    ],
)
def test_a_result_is_embedded_as_it_is_or_as_text(result: bytes, expected: Any) -> None:
    assert told(answer.succeeded(TASK, "a", 1, result))["result"] == expected


@given(st.binary(max_size=200))
def test_every_result_makes_a_readable_answer(result: bytes) -> None:
    assert json.loads(answer.succeeded(TASK, "a", 1, result))["status"] == "succeeded"


def test_a_dead_letter_says_why_and_what_was_tried() -> None:
    envelope = replace(TASK, attempts=(ATTEMPT,))

    assert told(answer.dead_letter(envelope, DeadLetterReason.ATTEMPTS_EXHAUSTED, "gone")) == {
        "task_id": "t1",
        "flow_id": "f1",
        "status": "dead_letter",
        "final": True,
        "reason": "attempts_exhausted",
        "error": "gone",
        "attempts": [ATTEMPT.as_dict()],
    }


def test_a_cancelled_task_says_so() -> None:
    assert told(answer.cancelled(TASK)) == {
        "task_id": "t1",
        "flow_id": "f1",
        "status": "cancelled",
        "final": True,
    }


def test_unmatched_is_no_end() -> None:
    body = told(answer.unmatched(TASK, "nobody has it"))

    assert (body["status"], body["final"], body["error"]) == ("unmatched", False, "nobody has it")


@pytest.mark.parametrize("error", ["x" * 1_000_000, "a\udce4b" * 100_000])
def test_no_error_text_is_too_much(error: str) -> None:
    assert len(answer.dead_letter(TASK, DeadLetterReason.INVALID, error)) < 10_000
    assert len(answer.unmatched(TASK, error)) < 10_000


@given(ENVELOPE, st.text(st.characters(exclude_categories=[])))
def test_every_end_can_be_told(envelope: Envelope, error: str) -> None:
    for body in (
        answer.dead_letter(envelope, DeadLetterReason.EXPIRED, error),
        answer.unmatched(envelope, error),
        answer.cancelled(envelope),
    ):
        assert told(body)["task_id"] == envelope.task_id


@pytest.mark.parametrize("length", [10, 900, 9_000])
def test_an_answer_that_is_kept_takes_no_more_memory_than_it_is_long(length: int) -> None:
    """orjson gives bytes that hold many times what they show; a router keeps the answers of thousands of tasks."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        kept = [answer.succeeded(TASK, "a", 1, b'"%s"' % (b"x" * length)) for _ in range(20)]
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / len(kept) < len(kept[0]) + 200
