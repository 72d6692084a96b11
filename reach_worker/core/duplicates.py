"""The same task id again: is it the task itself, a second publisher, or a copy that a crash left behind?"""

from dataclasses import dataclass
from enum import StrEnum

from reach_worker.core.envelope import Envelope


class TaskState(StrEnum):
    """Where a task is, as the store knows it."""

    UNDER_WAY = "under_way"
    UNMATCHED = "unmatched"
    SUCCEEDED = "succeeded"
    DEAD_LETTER = "dead_letter"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class KnownTask:
    """What the store knows of a task id.

    ``dispatch_id``: the dispatch that is out now (``None`` once its current outcome is recorded). ``attempts_ended``:
    current outcomes of this life other than ``released``. ``answer``: the stored answer, where the task has ended.
    ``outcome_unknown``: it ended because nobody could tell how it went; a success that turns up late resolves that.
    ``dispatched_at``: when its last dispatch was recorded, UTC microseconds. ``claimed_by``, ``claimed_at``: the router
    that has begun with it, set only while that is all that is known: the task is in that router's hands, or, if
    it died, in the message that comes again.
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


@dataclass(frozen=True, slots=True)
class Fresh:
    """To be done. ``life``: how many times this id began before."""

    life: int


@dataclass(frozen=True, slots=True)
class UnderWay:
    """It is being done: whoever asks again waits for the one answer."""


@dataclass(frozen=True, slots=True)
class InHand:
    """A router has begun with it, and nothing of it is recorded yet nor on any other queue."""

    life: int
    router: str
    since: int


@dataclass(frozen=True, slots=True)
class Remembered:
    """It has ended and is still remembered: whoever asks again gets the stored answer, if there is one."""

    answer: bytes | None


@dataclass(frozen=True, slots=True)
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

    A crash between sending and recording leaves two copies of one task; the one that is behind is let go. Where it is the
    store that is behind (it could not be written) the copy knows more, and stays: it may be the only one.
    """
    if known is None or envelope.life > known.life:
        return Fresh(envelope.life)
    if envelope.life < known.life:
        return StaleCopy(f"it began anew since: life {known.life}, this is {envelope.life}")
    if known.claimed_by:
        return InHand(known.life, known.claimed_by, known.claimed_at)
    if known.state in (TaskState.SUCCEEDED, TaskState.DEAD_LETTER, TaskState.CANCELLED):
        return StaleCopy(f"it has ended: {known.state.value}")
    if known.dispatch_id is not None and not envelope.knows_end_of(known.dispatch_id):
        return StaleCopy(f"dispatch {known.dispatch_id} of it is out")
    if len(envelope.attempts) < known.attempts_ended:
        return StaleCopy(
            f"{known.attempts_ended} attempts have ended, this copy knows {len(envelope.attempts)}"
        )
    return Fresh(envelope.life)


def why_not_current(
    envelope: Envelope, dispatch_id: str, known: KnownTask | None, *, recorded: bool
) -> str | None:
    """Why a dispatch is not its task's current one, by what is known of the task; ``None`` if it is.

    ``recorded``: the store knows the dispatch. One that it does not know was sent just before a crash: it is current if
    nothing was sent since.
    """
    if known is None or known.life < envelope.life:
        return None
    if known.life > envelope.life:
        return "the task began anew since"
    if known.state is not TaskState.UNDER_WAY:
        return f"the task has ended: {known.state.value}"
    if known.dispatch_id == dispatch_id:
        return None
    if not recorded and known.dispatch_id is None and known.attempts_ended <= len(envelope.attempts):
        return None
    return "the task was routed again since"
