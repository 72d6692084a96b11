"""What a handler raises to say how its attempt ended. Any other exception means ``failed``."""

from dataclasses import dataclass

from reach_worker.core import handoff
from reach_worker.core.outcome import OutcomeClass


class AgentOutcome(Exception):  # noqa: N818 - endings; not all of them are errors
    """The base of the endings. ``kind`` is the outcome class it stands for."""

    kind = OutcomeClass.FAILED
    retry_after_s: float | None = None


class RateLimited(AgentOutcome):
    """Too much at the moment: not counted against the agent, which rests for ``retry_after`` seconds."""

    kind = OutcomeClass.RATE_LIMITED

    def __init__(self, retry_after: float, message: str = "rate limited") -> None:
        self.retry_after_s = max(0.0, float(retry_after))
        super().__init__(message)


class BadRequest(AgentOutcome):
    """The task itself is wrong; no agent could do it. Never tried again."""

    kind = OutcomeClass.BAD_REQUEST


class Rejected(AgentOutcome):
    """Not my capability after all: another agent gets it, and the routing learns."""

    kind = OutcomeClass.REJECTED


class Unavailable(AgentOutcome):
    """What I need is gone or refuses: tried again, elsewhere."""

    kind = OutcomeClass.UNAVAILABLE


class Cancelled(AgentOutcome):
    """I stopped because I was told to."""

    kind = OutcomeClass.CANCELLED


class BadResult(AgentOutcome):
    """What the handler returned is not what its capability declares. Raised for it; it is one way to have ``failed``."""


class InsteadOfResult:
    """The base of what a handler may return in place of a result. No output schema speaks of it, or is asked about it."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Handoff(handoff.Handoff, InsteadOfResult):
    """What a handler returns to hand its task on: to an agent, or to whoever has a capability.

    ``to_agent`` alone: with the same capability, or with the only one that it has. ``payload``: the next agent's input;
    without it that stays as it was. ``context``: what the next agent should know, see ``Context.handed``.
    """
