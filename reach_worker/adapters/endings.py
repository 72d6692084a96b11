"""Endings that an adapter has beside those that any handler may raise."""

from reach_worker.agent.outcomes import AgentOutcome, BadRequest, RateLimited, Rejected, Unavailable
from reach_worker.core.outcome import OutcomeClass


class Failed(AgentOutcome):
    """It was there, and did not do it."""

    kind = OutcomeClass.FAILED


class TimedOut(AgentOutcome):
    """It did not answer in time."""

    kind = OutcomeClass.TIMEOUT


def ending(kind: OutcomeClass, message: str, *, rest_s: float) -> AgentOutcome:
    """The ending of a class. ``rest_s``: how long the agent rests if it is ``rate_limited``."""
    match kind:
        case OutcomeClass.RATE_LIMITED:
            return RateLimited(rest_s, message)
        case OutcomeClass.BAD_REQUEST:
            return BadRequest(message)
        case OutcomeClass.REJECTED:
            return Rejected(message)
        case OutcomeClass.UNAVAILABLE:
            return Unavailable(message)
        case OutcomeClass.TIMEOUT:
            return TimedOut(message)
        case _:
            return Failed(message)
