"""How a task can end for its caller: what an answer says becomes a result, or the exception that fits."""

import pickle
from typing import Any

import pytest

from reach_worker.core.outcome import Attempt, OutcomeClass
from reach_worker.core.task_errors import (
    CallTimeout,
    ConnectionLost,
    DeadLettered,
    TaskCancelled,
    TaskError,
    UnknownTask,
    Unmatched,
    result_of,
)
from reach_worker.errors import OutsideWorld

ATTEMPT = Attempt(1, "quick", "d1", "x1", OutcomeClass.FAILED, "no luck", 1, 2)


def answer(status: str, **more: Any) -> dict[str, Any]:
    return {"task_id": "t1", "flow_id": "f1", "status": status, "final": True, **more}


@pytest.mark.parametrize("result", [None, 0, "text", [1], {"a": {"b": None}}])
def test_a_success_is_its_result(result: object) -> None:
    assert result_of(answer("succeeded", result=result), "t1") == result


def test_a_dead_letter_says_why_and_what_was_tried() -> None:
    said = answer(
        "dead_letter", reason="attempts_exhausted", error="no luck", attempts=[ATTEMPT.as_dict(), {"new": 1}]
    )
    with pytest.raises(DeadLettered, match="task t1 dead_letter, attempts_exhausted: no luck") as caught:
        result_of(said, "t1")
    error = caught.value
    assert (error.task_id, error.flow_id, error.reason, error.error) == (
        "t1",
        "f1",
        "attempts_exhausted",
        "no luck",
    )
    assert error.attempts == (ATTEMPT,)
    assert error.answer == said
    assert not error.expired
    assert DeadLettered("t1", answer=answer("dead_letter", reason="expired")).expired


def test_one_that_nobody_may_take_says_why() -> None:
    with pytest.raises(Unmatched, match="no known agent has 'x'") as caught:
        result_of(answer("unmatched", error="no known agent has 'x'"), "t1")
    assert caught.value.why == "no known agent has 'x'"
    assert caught.value.attempts == ()


def test_one_that_was_taken_back_is_told_as_that() -> None:
    with pytest.raises(TaskCancelled, match="task t1 was cancelled"):
        result_of(answer("cancelled"), "t1")


@pytest.mark.parametrize("said", [{}, answer("postponed"), {"status": 7}])
def test_an_end_of_a_newer_router_is_an_error_that_shows_it(said: dict[str, Any]) -> None:
    with pytest.raises(TaskError, match="no known end") as caught:
        result_of(said, "t1")
    assert caught.value.answer == said


def test_each_can_be_caught_as_what_it_is() -> None:
    assert issubclass(CallTimeout, TimeoutError)
    assert issubclass(ConnectionLost, OutsideWorld)
    for kind in (DeadLettered, Unmatched, TaskCancelled, CallTimeout, UnknownTask, ConnectionLost):
        assert issubclass(kind, TaskError)


def test_they_travel_between_processes() -> None:
    error = DeadLettered("t1", answer=answer("dead_letter", reason="poison", error="it died"))
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert (str(again), again.answer, again.flow_id) == (str(error), error.answer, "f1")
