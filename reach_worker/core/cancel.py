"""Cancelling a task: what is asked on the events exchange, who may ask, and what is answered."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from reach_worker.core.envelope import ANONYMOUS, Envelope
from reach_worker.core.json_object import object_in
from reach_worker.core.task import usable_id

CANCEL_TASK: Final = "cancel-task"
"""Routing key of the request. Every router hears it; the one that has the task cancels it."""
STRAY_S: Final = 60.0
"""A request for a task that nobody knows yet is remembered for so long: it may have overtaken the task."""


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """Somebody wants a task cancelled.

    ``by``: the AMQP user who asked, ``None`` for the router itself. ``life``: which life of it is meant, ``None``
    where the task is not known yet; that is only believed until ``until`` (monotonic seconds).
    """

    by: str | None
    life: int | None
    until: float

    @property
    def why(self) -> str:
        """Why the task ends, for people."""
        return "its race or fan-out goes on without it" if self.by is None else "its caller took it back"

    def means(self, envelope: Envelope, now: float) -> bool:
        """The request is for this task, and comes from somebody who may ask for it."""
        alive = envelope.life == self.life if self.life is not None else now < self.until
        return alive and (self.by is None or may_cancel(self.by, envelope.owner))


def may_cancel(user: str, caller: str) -> bool:
    """Only its caller cancels a task; one without a caller belongs to whoever knows its id."""
    return caller in (ANONYMOUS, user)


@dataclass(frozen=True, slots=True)
class CancelReply:
    """What a router says to the request.

    ``state``: where it found the task: ``waiting``, ``running``, ``under_way`` (in another place, it is cancelled
    where it turns up), ``unknown`` (the same, for a minute), or how it has ended; ``forbidden``: it is somebody else's.
    """

    task_id: str
    cancelled: bool
    state: str

    def body(self) -> bytes:
        """As JSON."""
        return orjson.dumps({"task_id": self.task_id, "cancelled": self.cancelled, "state": self.state})


def cancel_body(task_id: str) -> bytes:
    """The request as JSON."""
    return orjson.dumps({"task_id": task_id})


def cancel_from(body: bytes) -> str | None:
    """The task id in a request, ``None`` if there is none. Never raises."""
    match object_in(body):
        case {"task_id": str(task_id)} if usable_id(task_id):
            return task_id
        case _:
            return None


def cancel_reply_from(said: Mapping[str, Any]) -> CancelReply | None:
    """What :meth:`CancelReply.body` wrote, ``None`` for anything else."""
    match said:
        case {"task_id": str(task_id), "cancelled": bool(cancelled), "state": str(state)}:
            return CancelReply(task_id, cancelled, state)
        case _:
            return None
