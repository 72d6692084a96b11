"""The same task id again: is it the task itself, a second publisher, or a copy that a crash left behind?

A message whose acknowledgement was lost comes again, and so a task may have several copies, which may even be sent to
agents by several routers: its line of dispatches forks. Of a fork one branch goes on, and all routers must agree on
which, or each lets the other one's branch go and the task is lost. The rule: every dispatch is recorded with the one
before it (``after``, empty for the first); where several came after the same one, the first that was recorded counts.
Records are never reordered, so that never changes; and what is recorded was sent, so the branch that counts always has
somebody who carries it on: an agent, an outcome, or a copy that goes on after its last dispatch (its ``tip``).
So a copy is let go only where the records say that the task has gone on, or for another copy with the same tip that is a
message too. What a router holds of an outcome is none: once that is settled elsewhere nobody acts on it again. Nor is a
second publisher's message that came for the first time, for it is let go where a dispatch is recorded, sent or not; one
that came again is not, and stays in its place.
"""

from dataclasses import field
from enum import StrEnum

from reach_worker.core.envelope import Envelope
from reach_worker.core.value import value


class TaskState(StrEnum):
    """Where a task is, as the store knows it."""

    UNDER_WAY = "under_way"
    UNMATCHED = "unmatched"
    SUCCEEDED = "succeeded"
    DEAD_LETTER = "dead_letter"
    CANCELLED = "cancelled"


@value(frozen=True, slots=True)
class KnownTask:
    """What the store knows of a task id.

    ``dispatch_id``: the dispatch that is out now (``None`` once its current outcome is recorded). ``attempts_ended``:
    current outcomes of this life other than ``released``. ``answer``: the stored answer, where the task has ended.
    ``outcome_unknown``: it ended because nobody could tell how it went; a success that turns up late resolves that.
    ``dispatched_at``: when its last dispatch was recorded, UTC microseconds. ``claimed_by``, ``claimed_at``: the router
    that has begun with it, set only while that is all that is known: the task is in that router's hands, or, if
    it died, in the message that comes again. ``sent``: the dispatches of this life, each with the one before it, in the
    order in which they were recorded; without those that were never sent, or whose outcome nobody acted on. ``out``:
    those of them that have no outcome yet. ``left``: dispatches after which another one was recorded and never sent.
    ``caller``: who published it; empty while nothing says so.
    """

    task_id: str
    life: int
    state: TaskState
    router: str
    dispatch_id: str | None
    attempts_ended: int
    remember_until: int
    answer: bytes | None
    outcome_unknown: bool = False
    dispatched_at: int = 0
    claimed_by: str = ""
    claimed_at: int = 0
    sent: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    out: frozenset[str] = field(default=frozenset(), compare=False)
    left: frozenset[str] = field(default=frozenset(), compare=False)
    caller: str = field(default="", compare=False)

    @property
    def over(self) -> bool:
        """It has ended."""
        return self.state not in (TaskState.UNDER_WAY, TaskState.UNMATCHED)

    def knows_more_than(self, other: "KnownTask | None") -> bool:
        """This end is of a later life, or the other one does not know it yet, or has no answer of it."""
        if other is None or other.life != self.life:
            return other is None or other.life < self.life
        return not other.over or (other.answer is None and self.answer is not None)

    def next_after(self, dispatch_id: str) -> str | None:
        """The dispatch with which the task went on after that one (empty: the first), if it did."""
        return next((sent for sent, after in self.sent if after == dispatch_id), None)

    def stopped_at(self, dispatch_id: str) -> bool:
        """The task went no further than that dispatch: what was to follow was recorded, and never sent."""
        under_way = self.state is TaskState.UNDER_WAY
        return under_way and dispatch_id in self.left and self.next_after(dispatch_id) is None

    def has(self, dispatch_id: str) -> bool:
        """That dispatch is recorded."""
        return any(sent == dispatch_id for sent, _ in self.sent)

    def counts(self, dispatch_id: str) -> bool:
        """That dispatch is recorded, and no other one counts in its place or in the place of one before it.

        What has no side effects may have been sent by several routers, and handed on, before that was known.
        """
        before = dict(self.sent)
        if dispatch_id not in before:
            return False
        while dispatch_id in before:
            after = before.pop(dispatch_id)
            if self.next_after(after) != dispatch_id:
                return False
            dispatch_id = after
        return True

    def rival_of(self, dispatch_id: str, after: str | None = None) -> str | None:
        """The dispatch that counts in this one's place. ``after``: the one before it, where it is not recorded itself."""
        before = next((known for sent, known in self.sent if sent == dispatch_id), after)
        first = None if before is None else self.next_after(before)
        return None if first == dispatch_id else first


@value(frozen=True, slots=True)
class Fresh:
    """To be done. ``life``: how many times this id began before."""

    life: int


@value(frozen=True, slots=True)
class UnderWay:
    """It is being done: whoever asks again waits for the one answer."""


@value(frozen=True, slots=True)
class InHand:
    """A router has begun with it, and nothing of it is recorded yet nor on any other queue."""

    life: int
    router: str
    since: int


@value(frozen=True, slots=True)
class Remembered:
    """It has ended and is still remembered: whoever asks again gets the stored answer, if there is one."""

    answer: bytes | None


@value(frozen=True, slots=True)
class StaleCopy:
    """A copy of a task that has gone on without it: let go."""

    why: str


def standing_of_published(known: KnownTask | None, now_us: int) -> Fresh | InHand | UnderWay | Remembered:
    """A message from the public queue, by what is known of its id.

    ``UNDER_WAY`` is only ever stored when another copy of the task is on the broker, so a redelivery may be let go.
    """
    if known is None:
        return Fresh(0)
    if known.claimed_by:
        return InHand(known.life, known.claimed_by, known.claimed_at)
    if known.state in (TaskState.UNDER_WAY, TaskState.UNMATCHED):
        return UnderWay()
    if now_us < known.remember_until:
        return Remembered(known.answer)
    return Fresh(known.life + 1)


def standing_of_returned(envelope: Envelope, known: KnownTask | None) -> Fresh | InHand | StaleCopy:
    """A task from one of our own queues (retry, lane, replay), by what is known of its id.

    A crash between sending and recording leaves two copies of one task; the one that is behind, or on the branch that
    does not count, is let go. Where it is the store that is behind the copy knows more, and stays: it may be the last.
    """
    if known is None or envelope.life > known.life:
        return Fresh(envelope.life)
    if envelope.life < known.life:
        return StaleCopy(f"it began anew since: life {known.life}, this is {envelope.life}")
    if known.claimed_by:
        return InHand(known.life, known.claimed_by, known.claimed_at)
    if known.state in (TaskState.SUCCEEDED, TaskState.DEAD_LETTER, TaskState.CANCELLED):
        return StaleCopy(f"it has ended: {known.state.value}")
    gone_on = known.next_after(envelope.tip) or known.rival_of(envelope.tip)
    if gone_on is not None:
        return StaleCopy(f"it went on with dispatch {gone_on}")
    return Fresh(envelope.life)


def why_not_current(envelope: Envelope, dispatch_id: str, known: KnownTask | None) -> str | None:
    """Why a dispatch is not its task's current one, by what is known of the task; ``None`` if it is.

    One that the store does not know was sent just before a crash: it counts if no other was sent in its place.
    """
    if known is None or known.life < envelope.life:
        return None
    if known.life > envelope.life:
        return "the task began anew since"
    if known.state is not TaskState.UNDER_WAY:
        return f"the task has ended: {known.state.value}"
    if known.next_after(dispatch_id) or known.rival_of(dispatch_id, envelope.tip):
        return "the task was routed again since"
    return None
