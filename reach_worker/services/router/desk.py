"""What the router's three steps share: who it is, its policies, its fleet, its hands."""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Final

from reach_worker.core import answer
from reach_worker.core.backoff import RetryPolicy
from reach_worker.core.duplicates import KnownTask, TaskState
from reach_worker.core.envelope import Envelope
from reach_worker.core.fleet import Fleet
from reach_worker.core.handoff import HandoffPolicy
from reach_worker.core.hearsay import News
from reach_worker.core.message import Delivery, Message
from reach_worker.core.names import Names
from reach_worker.core.outcome import DeadLetterReason
from reach_worker.core.policy import RoutingPolicy
from reach_worker.core.recovery import MICROSECONDS, IdempotencyPolicy, TimeoutPolicy
from reach_worker.core.retry_budget import RetryBudget
from reach_worker.core.tags import TagTable
from reach_worker.core.token_bucket import IntakePolicy
from reach_worker.core.value import value
from reach_worker.ports import Accepted, AnswerLost, Clock, Ended, Joined, Row
from reach_worker.services.effects import Step
from reach_worker.services.router.hands import Hands
from reach_worker.services.router.messages import answer_message, dead_letter_message, leg_ended_message

RECORD_AGAIN_S: Final = 1.0
HOLD_S: Final = 30.0
"""A task waits so long in the router's window at most, then on the broker."""


@dataclass(frozen=True, slots=True)
class RouterPolicies:
    """The router's share of the settings. ``ghost_s``: how long the broker may believe in a connection that is dead."""

    intake: IntakePolicy = field(default_factory=IntakePolicy)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    timeouts: TimeoutPolicy = field(default_factory=TimeoutPolicy)
    idempotency: IdempotencyPolicy = field(default_factory=IdempotencyPolicy)
    routing: RoutingPolicy = field(default_factory=RoutingPolicy)
    handoff: HandoffPolicy = field(default_factory=HandoffPolicy)
    hold_s: float = HOLD_S
    grace_s: float = 20.0
    ghost_s: float = 0.0


@value(frozen=True, slots=True)
class Moment:
    """What is handled together is handled at one moment. ``now``: monotonic seconds; ``utc_us``: microseconds."""

    now: float
    utc_us: int


@dataclass(slots=True)
class Counts:
    """What this process did, for its log and status."""

    admitted: int = 0
    dispatched: int = 0
    succeeded: int = 0
    retried: int = 0
    over_budget: int = 0
    dead_letters: int = 0
    unmatched: int = 0
    spilled: int = 0
    duplicates: int = 0
    stale_outcomes: int = 0
    stale_copies: int = 0


@dataclass(slots=True)
class Recording:
    """Whether the store takes what is recorded. Times are monotonic seconds.

    A task with side effects is recorded before it is sent. While the store takes nothing such tasks wait, but for
    one now and then that tries.
    """

    away: bool = False
    try_at: float = 0.0

    def admits(self, now: float) -> bool:
        """One more may be recorded first now."""
        if self.away and now < self.try_at:
            return False
        self.try_at = now + RECORD_AGAIN_S
        return True


async def _nothing_under_way(_task_ids: Collection[str]) -> None:
    """What was decided is carried out already."""


@dataclass(slots=True)
class Desk:
    """Where the three steps meet.

    ``lives``: whether another router was heard lately, or could not be heard yet. ``alone``: whether there is certainly
    no other one.
    ``before_deciding``: to be awaited with the tasks that are about to be decided on. ``session``: the broker session's
    number.
    """

    router_id: str
    names: Names
    clock: Clock
    policies: RouterPolicies
    fleet: Fleet
    tags: TagTable
    hands: Hands = field(default_factory=Hands)
    recording: Recording = field(default_factory=Recording)
    counts: Counts = field(default_factory=Counts)
    lives: Callable[[str], bool] = lambda _router_id: False
    alone: Callable[[], bool] = lambda: False
    before_deciding: Callable[[Collection[str]], Awaitable[None]] = _nothing_under_way
    session: int = 0
    to_tell: list[News] = field(default_factory=list)
    retry_budget: RetryBudget = field(init=False)

    def __post_init__(self) -> None:
        self.retry_budget = RetryBudget(self.policies.retry)

    def moment(self) -> Moment:
        """Now, by both clocks."""
        return Moment(self.clock.monotonic(), self.clock.utc_us())

    def tell(self, news: News) -> None:
        """Let the other routers know, with the end of this turn; nothing is kept for routers that are not there."""
        if self.fleet.routers > 1:
            self.to_tell.append(news)

    def accepted(self, envelope: Envelope) -> Row:
        """The row that says that the router has taken the task."""
        return Accepted(
            task_id=envelope.task_id,
            life=envelope.life,
            flow_id=envelope.flow_id,
            capability=envelope.capability,
            caller=envelope.caller,
            router=self.router_id,
            first_seen=envelope.first_seen,
        )

    def joined(self, envelope: Envelope) -> list[Joined]:
        """The row that says that whoever published this copy waits for the task's answer; none if nobody does."""
        if not envelope.reply_to:
            return []
        return [Joined(envelope.task_id, envelope.reply_to, envelope.correlation_id, self.clock.utc_us())]

    def bury(
        self,
        envelope: Envelope,
        body: bytes,
        reason: DeadLetterReason,
        error: str,
        *,
        delivery: Delivery | None,
        rows: list[Row],
        by: str = "",
    ) -> Step:
        """A dead letter: to the dlq, its end recorded, its callers told. A leg of a group only ends.

        ``by``: as for :meth:`end`.
        """
        if envelope.group is not None:
            told, why = answer.dead_letter(envelope, reason, error), f"{reason.value}: {error}"
            rows = [self.accepted(envelope), *rows]
            return self.end(
                envelope, TaskState.CANCELLED, told, delivery=delivery, rows=rows, error=why, by=by
            )
        now_us = self.clock.utc_us()
        step = self.end(
            envelope,
            TaskState.DEAD_LETTER,
            answer.dead_letter(envelope, reason, error),
            delivery=delivery,
            rows=[self.accepted(envelope), *rows],
            reason=reason,
            error=error,
            by=by,
        )
        step.send.append(dead_letter_message(self.names, envelope, body, reason, error, now_us))
        self.counts.dead_letters += 1
        return step

    def end(  # noqa: PLR0913 - each says one thing of the end, by its name
        self,
        envelope: Envelope,
        state: TaskState,
        told: bytes,
        *,
        delivery: Delivery | None,
        rows: list[Row],
        reason: DeadLetterReason | None = None,
        error: str = "",
        by: str = "",
    ) -> Step:
        """The one end of a task's life: recorded, remembered, answered.

        ``by``: the dispatch whose outcome ends it. Settled by two routers it is one end all the same.
        """
        now_us = self.clock.utc_us()
        self.hands.closing[envelope.task_id] = envelope.life
        remember_until = now_us + self._memory_us(envelope, now_us)
        ended = Ended(envelope.task_id, envelope.life, state, reason, error, now_us, remember_until, told, by)
        known = KnownTask(
            envelope.task_id,
            envelope.life,
            state,
            self.router_id,
            None,
            len(envelope.attempts),
            remember_until,
            told,
            outcome_unknown=reason is DeadLetterReason.OUTCOME_UNKNOWN,
            caller=envelope.caller,
        )
        step = Step(acks=[delivery] if delivery else [], rows=[*rows, ended], ended=(envelope.task_id, told))
        step.done = lambda: self.hands.end(known)
        if envelope.group is not None:
            lost = AnswerLost(envelope.task_id, self.names.outcomes(envelope.group_owner), now_us)
            step.offer.append((leg_ended_message(self.names, envelope, told), lost))
        elif envelope.reply_to:
            step.offer.append(self.offer(envelope.task_id, envelope.reply_to, envelope.correlation_id, told))
        return step

    def offer(
        self, task_id: str, reply_to: str, correlation_id: str | None, told: bytes
    ) -> tuple[Message, Row]:
        """An answer, and what is recorded where nobody listens any more."""
        return answer_message(reply_to, correlation_id, told), AnswerLost(
            task_id, reply_to, self.clock.utc_us()
        )

    def _memory_us(self, envelope: Envelope, now_us: int) -> int:
        policy = self.policies.idempotency
        took_s = (now_us - envelope.first_seen) / MICROSECONDS
        window_s = policy.long_window_s if took_s > policy.long_task_s else policy.window_s
        return int(window_s * MICROSECONDS)
