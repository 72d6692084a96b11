"""How an attempt ended, how a task ended, and what each ending means."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from reach_worker.core.value import value

TEXT_LIMIT: Final = 600
"""Characters of an error text that travel in headers; longer ones are cut and say so."""


class OutcomeClass(StrEnum):
    """How an attempt ended, one list for every kind of agent."""

    SUCCEEDED = "succeeded"
    RATE_LIMITED = "rate_limited"
    TIMEOUT = "timeout"
    UNAVAILABLE = "unavailable"
    FAILED = "failed"
    BAD_REQUEST = "bad_request"
    REJECTED = "rejected"
    CANCELLED = "cancelled"
    RELEASED = "released"
    HANDOFF = "handoff"


class DeadLetterReason(StrEnum):
    """Why a task will not be tried again. A closed list."""

    UNDECODABLE = "undecodable"
    INVALID = "invalid"
    TOO_LARGE = "too_large"
    PAYLOAD_REFUSED = "payload_refused"
    BAD_REQUEST = "bad_request"
    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    POISON = "poison"
    OUTCOME_UNKNOWN = "outcome_unknown"
    EXPIRED = "expired"
    HOP_LIMIT = "hop_limit"
    BROKER_REFUSED = "broker_refused"


class Again(StrEnum):
    """What follows for the task."""

    DONE = "done"
    HANDED_ON = "handed_on"
    NEVER = "never"
    AT_ONCE = "at_once"
    LATER = "later"


class Success(StrEnum):
    """What follows for the agent's success statistics."""

    COUNTS_FOR = "+"
    COUNTS_AGAINST = "-"
    REJECTION = "rejection"
    NOTHING = "nothing"


class BreakerEffect(StrEnum):
    """What follows for the agent's breaker."""

    CLEARS = "clears"
    FAILURE = "failure"
    RESTS = "rests"
    NOTHING = "nothing"


@value(frozen=True, slots=True)
class Rule:
    """What one outcome class means.

    ``spends_retry``: it counts toward the configured retries. ``excludes``: the agent steps back for this task while
    another one could work on it (one that rejected it never gets it again).
    ``may_have_run``: the handler may have had effects, so that a task with side effects is not tried again.
    """

    again: Again
    success: Success
    breaker: BreakerEffect
    spends_retry: bool = False
    excludes: bool = False
    may_have_run: bool = False


RULES: Final[Mapping[OutcomeClass, Rule]] = MappingProxyType(
    {
        OutcomeClass.SUCCEEDED: Rule(Again.DONE, Success.COUNTS_FOR, BreakerEffect.CLEARS),
        # It steps back by resting, and not a moment longer: after its rest it is as good as any other.
        OutcomeClass.RATE_LIMITED: Rule(Again.AT_ONCE, Success.NOTHING, BreakerEffect.RESTS),
        OutcomeClass.TIMEOUT: Rule(
            Again.LATER,
            Success.COUNTS_AGAINST,
            BreakerEffect.FAILURE,
            spends_retry=True,
            excludes=True,
            may_have_run=True,
        ),
        OutcomeClass.UNAVAILABLE: Rule(
            Again.LATER,
            Success.COUNTS_AGAINST,
            BreakerEffect.FAILURE,
            spends_retry=True,
            excludes=True,
            may_have_run=True,
        ),
        OutcomeClass.FAILED: Rule(
            Again.LATER,
            Success.COUNTS_AGAINST,
            BreakerEffect.FAILURE,
            spends_retry=True,
            excludes=True,
            may_have_run=True,
        ),
        OutcomeClass.BAD_REQUEST: Rule(Again.NEVER, Success.NOTHING, BreakerEffect.NOTHING),
        OutcomeClass.REJECTED: Rule(
            Again.AT_ONCE, Success.REJECTION, BreakerEffect.NOTHING, spends_retry=True, excludes=True
        ),
        OutcomeClass.CANCELLED: Rule(Again.NEVER, Success.NOTHING, BreakerEffect.NOTHING),
        OutcomeClass.RELEASED: Rule(Again.AT_ONCE, Success.NOTHING, BreakerEffect.NOTHING),
        OutcomeClass.HANDOFF: Rule(Again.HANDED_ON, Success.COUNTS_FOR, BreakerEffect.CLEARS),
    }
)
"""The table of the outcome classes: try again?, where, what counts against whom."""


@value(frozen=True, slots=True)
class Attempt:
    """One dispatch in a task's history. Times are UTC microseconds."""

    number: int
    agent_id: str
    dispatch_id: str
    decision_id: str
    outcome: OutcomeClass
    message: str
    dispatched_at: int
    ended_at: int

    def as_dict(self, longest: int = TEXT_LIMIT) -> dict[str, Any]:
        """Plain data, short keys written out: it is read by people in the dead letters. ``longest`` cuts the message."""
        return {
            "attempt": self.number,
            "agent": self.agent_id,
            "dispatch": self.dispatch_id,
            "decision": self.decision_id,
            "outcome": self.outcome.value,
            "message": cut(self.message, longest),
            "dispatched_at": self.dispatched_at,
            "ended_at": self.ended_at,
        }

    @classmethod
    def from_dict(cls, data: object) -> "Attempt":
        """The inverse of :meth:`as_dict`. Raises ``ValueError`` on anything else."""
        match data:
            case {
                "attempt": int(number),
                "agent": str(agent_id),
                "dispatch": str(dispatch_id),
                "decision": str(decision_id),
                "outcome": str(outcome),
                "message": str(message),
                "dispatched_at": int(dispatched_at),
                "ended_at": int(ended_at),
            }:
                kind = OutcomeClass(outcome)
            case _:
                raise ValueError("an attempt has other fields")
        return cls(number, agent_id, dispatch_id, decision_id, kind, message, dispatched_at, ended_at)


@value(frozen=True, slots=True)
class Outcome:
    """How one dispatch ended, as its agent tells it.

    ``duration_ms`` is the run time by the agent's own monotonic clock, ``None`` if it never ran. ``started`` tells
    whether the handler began. ``crashed``: the process died with it before, found out by a redelivery. ``cost``: what
    the attempt has cost by the agent's word, in the unit of its price; ``tokens_in``, ``tokens_out``: of a model.
    ``chunks``: how many it has said to the caller.
    """

    dispatch_id: str
    task_id: str
    agent_id: str
    instance_id: str
    outcome: OutcomeClass
    message: str = ""
    retry_after_ms: int | None = None
    duration_ms: float | None = None
    started: bool = False
    crashed: bool = False
    cost: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    chunks: int = 0


def cut(text: str, limit: int = TEXT_LIMIT) -> str:
    """The text as it can be sent, cut to ``limit`` characters; a cut one says how long it was, where there is room.

    Half a character pair (a file name that was no UTF-8, in an exception's text) cannot be encoded and is written out.
    """
    if not text.isascii():
        text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    if len(text) <= limit:
        return text
    note = f" … (cut, {len(text)} characters)"
    return text[: limit - len(note)] + note if len(note) < limit else text[:limit]
