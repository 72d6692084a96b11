"""How a task can end for whoever called it, other than with a result: one exception for each end.

They are read from the answer that came back, see :mod:`reach_worker.core.answer`. What an answer does not say is empty.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from reach_worker.core.outcome import Attempt, DeadLetterReason
from reach_worker.errors import OutsideWorld, ReachError

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


class TaskError(ReachError):
    """A task has no result. ``answer``: what came back, empty where nothing did. ``why``: in words."""

    def __init__(
        self, task_id: str, flow_id: str = "", answer: Mapping[str, Any] = _NOTHING, why: str = ""
    ) -> None:
        self.task_id = task_id
        self.flow_id = flow_id or text_in(answer, "flow_id")
        self.answer: Mapping[str, Any] = dict(answer)
        self.why = why or text_in(answer, "error")
        super().__init__(task_id, self.flow_id, self.answer, self.why)

    def __str__(self) -> str:
        return f"task {self.task_id}: {self.why or 'it has no result'}"

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """Every attempt so far, as far as the answer tells them."""
        said = self.answer.get("attempts")
        return tuple(each for item in said for each in _attempt(item)) if isinstance(said, list) else ()


class DeadLettered(TaskError):  # noqa: N818 - named for how the task ended
    """It will not be tried again: ``reason``, ``error`` and every attempt. It is kept, see ``reach dlq``."""

    @property
    def reason(self) -> str:
        """One of :class:`~reach_worker.core.outcome.DeadLetterReason`."""
        return text_in(self.answer, "reason")

    @property
    def error(self) -> str:
        """What went wrong, in words."""
        return self.why

    @property
    def expired(self) -> bool:
        """Its deadline passed."""
        return self.reason == DeadLetterReason.EXPIRED

    def __str__(self) -> str:
        return f"task {self.task_id} dead_letter, {self.reason}: {self.error}"


class Unmatched(TaskError):  # noqa: N818 - as above
    """No agent may take it, ``why`` in words: it waits for a person. Should he assign it, ``fetch`` finds its end."""

    def __str__(self) -> str:
        return f"task {self.task_id} unmatched: {self.why or 'no known agent may take it'}"


class TaskCancelled(TaskError):  # noqa: N818 - as above
    """It was cancelled."""

    def __str__(self) -> str:
        return f"task {self.task_id} was cancelled"


class CallTimeout(TaskError, TimeoutError):  # noqa: N818 - as above
    """No answer in time."""


class UnknownTask(TaskError):  # noqa: N818 - as above
    """No router knows the task, or it is somebody else's."""


class ConnectionLost(TaskError, OutsideWorld):  # noqa: N818 - as above
    """The answer cannot come any more: the client was closed, or what it asked for is not kept."""


def result_of(answer: Mapping[str, Any], task_id: str) -> Any:
    """The result in an answer. Raises the :class:`TaskError` that fits where there is none."""
    match answer.get("status"):
        case "succeeded":
            return answer.get("result")
        case "dead_letter":
            raise DeadLettered(task_id, answer=answer)
        case "unmatched":
            raise Unmatched(task_id, answer=answer)
        case "cancelled":
            raise TaskCancelled(task_id, answer=answer)
        case other:
            raise TaskError(task_id, answer=answer, why=f"its answer says {other!r}, which is no known end")


def text_in(answer: Mapping[str, Any], name: str) -> str:
    """A field as text, empty where it is none."""
    value = answer.get(name)
    return value if isinstance(value, str) else ""


def _attempt(item: object) -> tuple[Attempt, ...]:
    """The attempt; none where a newer router says it in another way."""
    try:
        return (Attempt.from_dict(item),)
    except ValueError:
        return ()
