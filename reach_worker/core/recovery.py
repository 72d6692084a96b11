"""What an outcome means for its task: done, again, or never again."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from pydantic import BaseModel, ConfigDict, Field

from reach_worker.core.backoff import RetryPolicy, delay_s
from reach_worker.core.envelope import Envelope
from reach_worker.core.outcome import RULES, Again, Attempt, DeadLetterReason, Outcome, OutcomeClass
from reach_worker.core.success import WINDOW, Track

MICROSECONDS = 1_000_000


class TimeoutPolicy(BaseModel):
    """How long an attempt may take."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    attempt_ms: int = Field(8_000, gt=0, description="limit of an attempt where the capability declares none")
    floor_ms: int = Field(2_000, gt=0, description="no learned limit is shorter")
    factor: float = Field(
        1.5, ge=1, description="learned limit of a first try: this times the agent's 99th percentile"
    )
    min_successes: int = Field(50, ge=1, le=WINDOW, description="successes before a limit is learned")
    pickup_s: float = Field(
        60.0, gt=0, description="longest wait in an agent's queue before a dispatch comes back"
    )
    fanout_s: float = Field(
        30.0,
        gt=0,
        le=86_400,
        description="a fan-out without a deadline of its own waits so long for its agents",
    )
    backstop_s: float = Field(
        10.0,
        gt=0,
        description="what the router waits beyond pick-up and limit before it gives a dispatch up itself",
    )


class IdempotencyPolicy(BaseModel):
    """How long a task id is remembered after the task ended."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    window_s: float = Field(
        60.0, ge=0, description="seconds after its end in which a repeated task id is answered"
    )
    long_task_s: float = Field(60.0, ge=0, description="a task that took longer than this is a long one")
    long_window_s: float = Field(300.0, ge=0, description="the window of long tasks, seconds")


@dataclass(frozen=True, slots=True)
class Done:
    """The task has succeeded."""


@dataclass(frozen=True, slots=True)
class TryAgain:
    """Route it again after ``delay_s`` seconds; at once where that is 0."""

    envelope: Envelope
    delay_s: float


@dataclass(frozen=True, slots=True)
class Bury:
    """No further attempt: a dead letter with this reason."""

    envelope: Envelope
    reason: DeadLetterReason
    error: str


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The caller no longer wants it, or its agent was told to stop: ``why``."""

    envelope: Envelope
    why: str


Step = Done | TryAgain | Bury | Cancelled


def next_step(
    envelope: Envelope, attempt: Attempt, outcome: Outcome, *, policy: RetryPolicy, draw: float
) -> Step:
    """What follows from an attempt's outcome, but for a handoff (see :mod:`core.handoff`).

    ``draw`` in [0, 1) jitters the delay.
    """
    kind, rule = outcome.outcome, RULES[outcome.outcome]
    unknown = (
        envelope.side_effects and outcome.started and (rule.may_have_run or kind is OutcomeClass.RELEASED)
    )
    if rule.again is Again.DONE:
        return Done()
    if kind is OutcomeClass.RELEASED and not unknown:
        return _released(envelope, attempt, policy, draw)
    tried = envelope.with_attempt(attempt)
    if rule.again is Again.HANDED_ON:
        raise ValueError("what follows from a handoff depends on where it goes")
    if kind is OutcomeClass.CANCELLED:
        return Cancelled(tried, outcome.message)
    if rule.again is Again.NEVER:
        return Bury(tried, DeadLetterReason.BAD_REQUEST, outcome.message)
    if unknown:
        why = f"{kind.value} after it had begun, and it has side effects: {outcome.message}"
        return Bury(tried, DeadLetterReason.OUTCOME_UNKNOWN, why)
    if tried.retries_spent > policy.max_retries or len(tried.attempts) >= policy.max_dispatches:
        return _exhausted(tried, outcome)
    delay = delay_s(max(1, tried.retries_spent), draw, policy) if rule.again is Again.LATER else 0.0
    ends_too_early = tried.deadline is not None and attempt.ended_at + delay * MICROSECONDS >= tried.deadline
    if ends_too_early:
        return Bury(
            tried, DeadLetterReason.EXPIRED, f"no time left for another attempt after: {outcome.message}"
        )
    return TryAgain(tried, delay)


def next_round(
    envelope: Envelope, attempt: Attempt, outcome: Outcome, *, policy: RetryPolicy, draw: float
) -> Step:
    """The same after a round of a race that nobody has won.

    A round that all agents left before they had begun spends no retry either, but it is counted: the legs of the next
    one are named after its number, and must not be taken for those that have ended.
    """
    step = next_step(envelope, attempt, outcome, policy=policy, draw=draw)
    if not isinstance(step, TryAgain) or step.envelope.attempts != envelope.attempts:
        return step
    tried = envelope.with_attempt(attempt)
    if len(tried.attempts) >= policy.max_dispatches:
        return _exhausted(tried, outcome)
    before = takewhile(lambda each: each.outcome is OutcomeClass.RELEASED, reversed(envelope.attempts))
    again = sum(1 for _ in before)
    return TryAgain(tried, delay_s(again, draw, policy) if again > 0 else 0.0)


def not_again(step: Step, why: str) -> Step:
    """The same for a task that nobody wants any more: it is not tried again. What it has come to otherwise stands."""
    match step:
        case TryAgain(envelope) | Cancelled(envelope):
            return Cancelled(envelope, why)
        case Bury(envelope, DeadLetterReason.ATTEMPTS_EXHAUSTED | DeadLetterReason.EXPIRED):
            return Cancelled(envelope, why)
        case _:
            return step


def _released(envelope: Envelope, attempt: Attempt, policy: RetryPolicy, draw: float) -> TryAgain:
    """It never ran, and that counts as nothing: at once the first time, then backing off.

    An agent that hands back all it gets (its clock is wrong, say) would be asked at full speed for ever.
    """
    again = len(envelope.released)
    return TryAgain(
        envelope.with_release(attempt.dispatch_id), delay_s(again, draw, policy) if again > 0 else 0.0
    )


def _exhausted(tried: Envelope, outcome: Outcome) -> Bury:
    reason = DeadLetterReason.POISON if outcome.crashed else DeadLetterReason.ATTEMPTS_EXHAUSTED
    return Bury(
        tried, reason, f"{len(tried.attempts)} attempts, the last: {outcome.outcome.value}: {outcome.message}"
    )


def attempt_timeout_ms(
    declared_ms: int | None,
    track: Track | None,
    policy: TimeoutPolicy,
    *,
    remaining_ms: int | None,
    tried: Sequence[Attempt] = (),
) -> int:
    """Limit of one attempt in milliseconds.

    ``factor`` × the agent's 99th percentile once enough successes are known, never below the floor, never above what is
    declared or what is left until the deadline. A slow agent must not lengthen its own leash. But a task that ``tried``
    and was out of time may be a longer one than most: it gets what is declared, or no attempt could ever do it.
    """
    limit = declared_ms if declared_ms is not None else policy.attempt_ms
    longer = bool(tried) and any(attempt.outcome is OutcomeClass.TIMEOUT for attempt in tried)
    if not longer and track is not None and len(track.service) >= policy.min_successes:
        typical = track.service.quantile(0.99) or 0.0
        limit = min(limit, max(policy.floor_ms, int(typical * 1000 * policy.factor)))
    return max(1, limit if remaining_ms is None else min(limit, remaining_ms))
