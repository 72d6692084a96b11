"""What a handler knows of the attempt it runs for."""

import logging
import threading
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from reach_worker.core.dispatch import Dispatch
from reach_worker.core.task import Task


class FlowLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger whose every line carries the flow and the task."""

    def process(
        self, msg: object, kwargs: MutableMapping[str, Any]
    ) -> tuple[object, MutableMapping[str, Any]]:
        """Prefix the message."""
        extra = self.extra or {}
        return f"[flow {extra['flow_id']} task {extra['task_id']}] {msg}", kwargs


@dataclass(slots=True)
class Context:
    """One attempt, as its handler sees it.

    ``cancelled`` is set when the attempt should stop (time is up, the caller took it back, the worker stops);
    a plain function that runs long looks at it now and then. ``attempt`` counts from 1; ``dispatch_id`` names this
    sending of the task, and is the same if the broker delivers it again.
    """

    task_id: str
    flow_id: str
    attempt: int
    capability: str
    caller: str
    metadata: Mapping[str, str]
    session_id: str | None
    timeout_s: float
    log: FlowLogger
    dispatch_id: str = ""
    cancelled: threading.Event = field(default_factory=threading.Event)
    _monotonic: Callable[[], float] = lambda: 0.0
    _ends_at: float = 0.0

    def seconds_left(self) -> float:
        """Seconds until this attempt's time is up; 0 if it is."""
        return max(0.0, self._ends_at - self._monotonic())


def context_of(dispatch: Dispatch, task: Task, monotonic: Callable[[], float]) -> Context:
    """The context of a dispatch that begins now."""
    envelope = dispatch.envelope
    timeout_s = dispatch.timeout_ms / 1000
    log = FlowLogger(
        logging.getLogger("reach.agent"), {"flow_id": envelope.flow_id, "task_id": envelope.task_id}
    )
    return Context(
        task_id=envelope.task_id,
        flow_id=envelope.flow_id,
        attempt=envelope.next_attempt,
        capability=envelope.capability,
        caller=envelope.caller,
        metadata=task.metadata,
        session_id=task.session_id,
        timeout_s=timeout_s,
        log=log,
        dispatch_id=dispatch.dispatch_id,
        _monotonic=monotonic,
        _ends_at=monotonic() + timeout_s,
    )
