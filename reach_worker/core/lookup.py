"""Where a task is, asked by its id: the question, and what a router answers.

The question has the form of a request to cancel the task (:mod:`core.cancel`), and the same people may ask: to all
others a task is not known. It goes to the events exchange, the answer to the queue that the question names.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from reach_worker.core.duplicates import KnownTask, TaskState

FETCH: Final = "fetch-task"
"""Routing key of the question; ``reply_to`` says where the answer goes, ``correlation_id`` comes back with it."""

_OVER: Final = frozenset(state.value for state in TaskState) - {TaskState.UNDER_WAY, TaskState.UNMATCHED}


@dataclass(frozen=True, slots=True)
class Found:
    """What one router knows. ``state``: one of :class:`TaskState`, empty where the task is not known.

    ``answer``: what its caller was told, of a task that is over; ``None`` where it is not kept any more.
    """

    task_id: str
    known: bool = False
    state: str = ""
    answer: Mapping[str, Any] | None = None

    @property
    def over(self) -> bool:
        """The task has ended."""
        return self.state in _OVER


def found_body(task_id: str, task: KnownTask | None) -> bytes:
    """What a router knows of a task, as JSON. The stored answer goes as it is."""
    if task is None:
        return orjson.dumps({"task_id": task_id, "known": False, "state": "", "answer": None})
    answer = task.answer if task.over else None
    told = None if answer is None else orjson.Fragment(answer)
    return orjson.dumps({"task_id": task_id, "known": True, "state": task.state.value, "answer": told})


def found_from(data: Mapping[str, Any]) -> Found:
    """What :func:`found_body` wrote. What cannot be understood reads as not known."""
    task_id, state, answer = data.get("task_id"), data.get("state"), data.get("answer")
    return Found(
        task_id=task_id if isinstance(task_id, str) else "",
        known=data.get("known") is True,
        state=state if isinstance(state, str) else "",
        answer=answer if isinstance(answer, dict) else None,
    )


def best(found: Iterable[Found]) -> Found | None:
    """The one that knows most: an end with its answer, an end, a task under way, nothing."""
    return max(found, key=lambda one: (one.known, one.over, one.answer is not None), default=None)
