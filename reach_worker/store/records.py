"""What the reach log gives back: the rows as they were recorded, and what is put together from them."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, TypeVar, get_origin, get_type_hints

import orjson

from reach_worker.core.duplicates import TaskState
from reach_worker.core.outcome import DeadLetterReason, OutcomeClass
from reach_worker.core.record import expanded
from reach_worker.ports import (
    AnswerLost,
    Decided,
    Dispatched,
    Ended,
    Joined,
    KnownDispatch,
    OutcomeSeen,
    Standing,
    Started,
)
from reach_worker.store.counts import track_of


@dataclass(frozen=True, slots=True)
class StoredTask:
    """One life of a task. Times are UTC microseconds.

    ``accepted``: the row that says how it came in was written. ``dispatch_id``, ``attempt``: the latest
    dispatch. ``parked_reason``: why nobody could take it, the last time. ``reason``, ``error``: of a dead
    letter.
    """

    task_id: str
    life: int
    accepted: bool
    flow_id: str
    capability: str
    caller: str
    router: str
    first_seen: int
    state: TaskState
    dispatch_id: str | None
    attempt: int
    parked_reason: str | None
    ended_at: int | None
    reason: DeadLetterReason | None
    error: str | None
    remember_until: int | None
    answer: bytes | None


@dataclass(frozen=True, slots=True)
class TaskHistory:
    """Everything about a task id, each part in the order of time. The last of ``lives`` is now."""

    lives: tuple[StoredTask, ...]
    decisions: tuple[Decided, ...]
    dispatches: tuple[Dispatched, ...]
    starts: tuple[Started, ...]
    outcomes: tuple[OutcomeSeen, ...]
    ends: tuple[Ended, ...]
    waiters: tuple[Joined, ...]
    lost_answers: tuple[AnswerLost, ...]

    @property
    def task(self) -> StoredTask:
        """The task as it is now."""
        return self.lives[-1]


@dataclass(frozen=True, slots=True)
class AgentSuccess:
    """An agent on a capability. Rates are ``None`` where nothing was ever counted.

    ``tries``: effective ones, which fade with time. ``last_at``: the last attempt that counted, UTC
    microseconds.
    """

    agent_id: str
    capability: str
    rate: float | None
    fast_rate: float | None
    rejection_rate: float | None
    tries: float
    last_at: int


@dataclass(frozen=True, slots=True)
class Counts:
    """Tasks per state, each in its newest life. ``doubled_ends``: lives with more than one end, a fault.

    A dead letter ``outcome_unknown`` that a late success resolved is none.
    """

    tasks: Mapping[TaskState, int]
    doubled_ends: int


RecordT = TypeVar("RecordT", bound=Hashable)


def sound(record: RecordT) -> RecordT:
    """The record, where each of its values is of the type that it should have. Raises ``ValueError``.

    A damaged page may give a row of another table's values; whoever computes with them would stumble much later.
    """
    for name, kind in _types(type(record)).items():
        if not isinstance(getattr(record, name), kind):
            raise ValueError(f"{name} of a {type(record).__name__} is {getattr(record, name)!r:.100}")  # noqa: TRY004
    return record


_HOLDERS: Final = (tuple, frozenset, Mapping)
"""Of these it is looked at what they are, not at what they hold."""


@cache
def _types(kind: type[object]) -> Mapping[str, Any]:
    hints = get_type_hints(kind)
    return {name: get_origin(hint) if get_origin(hint) in _HOLDERS else hint for name, hint in hints.items()}


def stored_task(row: Sequence[Any]) -> StoredTask:
    """From a row with the columns in the order of :class:`StoredTask`."""
    task = StoredTask(*row)
    return sound(
        replace(
            task,
            accepted=bool(task.accepted),
            state=TaskState(task.state),
            reason=dead_letter_reason(task.reason),
        )
    )


def decided(row: Sequence[Any]) -> Decided:
    """From a row with the columns in the order of :class:`Decided`."""
    return replace(Decided(*row), decision=decision_of(row[-1]))


def decision_of(detail: str) -> dict[str, Any]:
    """``Decision.as_dict()`` as it was recorded, from what is stored of it."""
    decision = orjson.loads(detail)
    if not isinstance(decision, dict):
        raise ValueError(f"a decision is {decision!r:.100}")  # noqa: TRY004 - damage, as any other value
    return expanded(decision)


def outcome_seen(row: Sequence[Any]) -> OutcomeSeen:
    """From a row with the columns in the order of :class:`OutcomeSeen`."""
    seen = OutcomeSeen(*row)
    return sound(replace(seen, outcome=OutcomeClass(seen.outcome), standing=Standing(seen.standing)))


def ended(row: Sequence[Any]) -> Ended:
    """From a row with the columns in the order of :class:`Ended`."""
    end = Ended(*row)
    return sound(replace(end, state=TaskState(end.state), reason=dead_letter_reason(end.reason)))


def known_dispatch(row: Sequence[Any]) -> KnownDispatch:
    """From a row with the columns in the order of :class:`KnownDispatch`."""
    one = KnownDispatch(*row)
    return sound(replace(one, started=bool(one.started), settled=bool(one.settled)))


def joined(row: Sequence[Any]) -> Joined:
    """From a row with the columns in the order of :class:`Joined`."""
    return sound(Joined(*row))


def dead_letter_reason(value: str | None) -> DeadLetterReason | None:
    """The reason, where there is one."""
    return None if value is None else DeadLetterReason(value)


def agent_success(row: Sequence[Any], now_us: int) -> AgentSuccess:
    """From a row of ``success``."""
    (agent_id, capability), track = track_of(row)
    return AgentSuccess(
        agent_id=agent_id,
        capability=capability,
        rate=track.slow.rate(),
        fast_rate=track.fast.rate(),
        rejection_rate=track.rejections.rate(),
        tries=track.slow.effective(now_us / 1e6),
        last_at=round(max(track.slow.at, track.rejections.at) * 1e6),
    )
