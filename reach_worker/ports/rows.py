"""What the services have the store write, a row for each thing that happened, and what it knows of a dispatch."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from reach_worker.core.duplicates import TaskState
from reach_worker.core.outcome import DeadLetterReason, OutcomeClass
from reach_worker.core.value import value


class Standing(StrEnum):
    """Whether an outcome was acted on: ``current``, or ``stale`` (of a dispatch that is not the task's current one)."""

    CURRENT = "current"
    STALE = "stale"


@value(frozen=True, slots=True)
class Accepted:
    """A task was admitted. ``life`` counts its replays: 0 the first time. Times are UTC microseconds, here and below."""

    task_id: str
    life: int
    flow_id: str
    capability: str
    caller: str
    router: str
    first_seen: int


@value(frozen=True, slots=True)
class Claimed:
    """A router begins a life of a task: the first claim counts, until the life is accepted.

    ``instead_of``: the router whose claim of ``instead_at`` is taken over, because nothing came of it.
    """

    task_id: str
    life: int
    router: str
    at: int
    instead_of: str = ""
    instead_at: int = 0


@value(frozen=True, slots=True)
class Unclaimed:
    """A router has lost the messages that its claims until ``at`` were made for: whoever gets them next may begin."""

    router: str
    at: int


@value(frozen=True, slots=True)
class Decided:
    """A decision, as :meth:`Decision.as_dict` gives it."""

    decision_id: str
    task_id: str
    life: int
    attempt: int
    at: int
    router: str
    decision: Mapping[str, Any]


@value(frozen=True, slots=True)
class Dispatched:
    """A task was sent to an agent (or, with side effects, is about to be).

    ``after``: the dispatch before it in its life, empty for the first; ``None`` where that is not known. ``only_first``:
    it is not recorded, and must not be sent, where another one stands in its place already.
    """

    dispatch_id: str
    task_id: str
    life: int
    attempt: int
    agent_id: str
    capability: str
    decision_id: str
    router: str
    at: int
    after: str | None = None
    only_first: bool = False


@value(frozen=True, slots=True)
class Unsent:
    """A dispatch that was recorded first did not go out: the task goes on as if it had never been."""

    dispatch_id: str
    task_id: str
    life: int


@value(frozen=True, slots=True)
class Started:
    """An agent said that it begins to run a dispatch (only asked of tasks with side effects)."""

    dispatch_id: str
    at: int


@value(frozen=True, slots=True)
class OutcomeSeen:
    """An outcome came back. ``cost``, ``tokens_in``, ``tokens_out``: what the attempt has used, by its agent's word."""

    dispatch_id: str
    task_id: str
    life: int
    attempt: int
    agent_id: str
    capability: str
    instance_id: str
    outcome: OutcomeClass
    message: str
    at: int
    duration_ms: float | None
    standing: Standing
    cost: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0


@value(frozen=True, slots=True)
class Ended:
    """The one end of one life of a task. ``answer`` is kept so that whoever asks again gets it.

    ``dispatch_id``: whose outcome ended it, empty where none did. An outcome that is settled twice ends it once.
    """

    task_id: str
    life: int
    state: TaskState
    reason: DeadLetterReason | None
    error: str
    at: int
    remember_until: int
    answer: bytes | None
    dispatch_id: str = ""


@value(frozen=True, slots=True)
class Parked:
    """Nobody may take the task: it waits in the unmatched queue for a person."""

    task_id: str
    life: int
    reason: str
    at: int


@value(frozen=True, slots=True)
class Joined:
    """Another publisher waits for the task's one answer."""

    task_id: str
    reply_to: str
    correlation_id: str | None
    at: int


@value(frozen=True, slots=True)
class AnswerLost:
    """An answer found nobody who listens. The task is done all the same."""

    task_id: str
    reply_to: str
    at: int


@value(frozen=True, slots=True)
class Feedback:
    """What a person says of a task's result. ``better_agent``: who should have had it, where it went to the wrong one."""

    task_id: str
    agent_id: str
    capability: str
    verdict: str
    better_agent: str | None
    at: int


@value(frozen=True, slots=True)
class BreakerMoved:
    """An agent's breaker opened or closed."""

    agent_id: str
    router: str
    state: str
    at: int
    reason: str


@value(frozen=True, slots=True)
class ManifestSeen:
    """An agent brought its manifest. ``body`` is its JSON."""

    agent_id: str
    manifest_hash: str
    version: str
    body: str
    at: int


Row = (
    Unclaimed
    | Claimed
    | Accepted
    | Decided
    | Unsent
    | Dispatched
    | Started
    | OutcomeSeen
    | Ended
    | Parked
    | Joined
    | AnswerLost
    | Feedback
    | BreakerMoved
    | ManifestSeen
)


@value(frozen=True, slots=True)
class KnownDispatch:
    """What the store knows of a dispatch. ``settled``: a current outcome of it was recorded."""

    dispatch_id: str
    task_id: str
    life: int
    attempt: int
    agent_id: str
    capability: str
    decision_id: str
    router: str
    at: int
    started: bool
    settled: bool
