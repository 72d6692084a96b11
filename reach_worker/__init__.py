"""Delivers every task to the agent that should do it, and proves that it did."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from reach_worker.agent.agent import Agent, capability
from reach_worker.agent.calls import CallLimit
from reach_worker.agent.context import Context
from reach_worker.agent.outcomes import BadRequest, Cancelled, Handoff, RateLimited, Rejected, Unavailable
from reach_worker.errors import BadInput, BrokerUnavailable, OutsideWorld, ReachError, WrongCredentials

if TYPE_CHECKING:
    from reach_worker.calling.client import ReachClient
    from reach_worker.core.task_errors import (
        CallTimeout,
        ConnectionLost,
        DeadLettered,
        TaskCancelled,
        TaskError,
        UnknownTask,
        Unmatched,
    )

__all__ = [
    "Agent",
    "BadInput",
    "BadRequest",
    "BrokerUnavailable",
    "CallLimit",
    "CallTimeout",
    "Cancelled",
    "ConnectionLost",
    "Context",
    "DeadLettered",
    "Handoff",
    "OutsideWorld",
    "RateLimited",
    "ReachClient",
    "ReachError",
    "Rejected",
    "TaskCancelled",
    "TaskError",
    "Unavailable",
    "UnknownTask",
    "Unmatched",
    "WrongCredentials",
    "capability",
]
__version__ = "0.1.0"

_ERRORS: Final = "reach_worker.core.task_errors"
_LATE: Final = {
    "ReachClient": "reach_worker.calling.client",
    "CallTimeout": _ERRORS,
    "ConnectionLost": _ERRORS,
    "DeadLettered": _ERRORS,
    "TaskCancelled": _ERRORS,
    "TaskError": _ERRORS,
    "UnknownTask": _ERRORS,
    "Unmatched": _ERRORS,
}
"""What callers need and agents do not: it is imported when it is first asked for."""


def __getattr__(name: str) -> Any:
    """What is imported late."""
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LATE[name]), name)
