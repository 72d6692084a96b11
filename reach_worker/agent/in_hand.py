"""What a worker has in its hands: dispatches that wait for a slot, that run, and which of them may start."""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from reach_worker.agent.at_work import AtWork
from reach_worker.agent.run import Ending
from reach_worker.agent.spent import Spent
from reach_worker.core.dispatch import Dispatch
from reach_worker.core.message import Delivery
from reach_worker.core.outcome import Outcome, OutcomeClass
from reach_worker.core.task import Refusal, Task

if TYPE_CHECKING:
    import asyncio

log = logging.getLogger(__name__)

CRASHES: Final = 2
"""A dispatch that was delivered again so often has killed its process twice: it goes back instead of trying a third."""

UNSPENT: Final = Spent()


@dataclass(slots=True)
class Run:
    """One dispatch in this worker's hands.

    ``taken_at``: when its delivery was taken, monotonic seconds. ``alone``: it may have killed its process before.
    ``leased``: a lease stands in for the delivery, which is acknowledged. ``taken_back``: it is not wanted any more.
    ``work``: its handler, once that has begun.
    """

    dispatch: Dispatch
    delivery: Delivery
    task: Task
    taken_at: float
    alone: bool = False
    leased: bool = False
    taken_back: bool = False
    work: AtWork | None = None

    def take_back(self) -> None:
        """Have it end now if it has begun, or else not begin."""
        self.taken_back = True
        if self.work is not None:
            self.work.take_back()

    def headers(self) -> Mapping[str, Any]:
        """What goes on with the task: all it came with. One that came again and did not run stays under suspicion."""
        if self.work is not None or not self.delivery.redelivered:
            return self.delivery.headers
        envelope = self.dispatch.envelope
        return replace(self.dispatch, envelope=replace(envelope, crashes=envelope.crashes + 1)).headers()

    def outcome(self, ending: Ending, seconds: float | None, *, instance_id: str) -> Outcome:
        """How it ended, after so many seconds of running, ``None`` if it never ran."""
        unrun, spent = self.work is None, UNSPENT if self.work is None else self.work.attempt.context.spent
        return Outcome(
            dispatch_id=self.dispatch.dispatch_id,
            task_id=self.dispatch.envelope.task_id,
            agent_id=self.dispatch.agent_id,
            instance_id=instance_id,
            outcome=ending.kind,
            message=ending.message,
            retry_after_ms=ending.retry_after_ms,
            duration_ms=None if seconds is None else seconds * 1000,
            started=not unrun,
            crashed=unrun and self.delivery.redelivered and ending.kind is OutcomeClass.UNAVAILABLE,
            cost=spent.cost,
            tokens_in=spent.tokens_in,
            tokens_out=spent.tokens_out,
            chunks=0 if self.work is None else self.work.attempt.voice.chunks,
        )


@dataclass(slots=True)
class InHand:
    """All of a worker's dispatches.

    ``ready``: to be run, oldest first, and ``running``: both by dispatch id. ``stuck``: what could not be ended, and goes
    on.
    """

    capacity: int
    ready: dict[str, Run] = field(default_factory=dict)
    running: dict[str, Run] = field(default_factory=dict)
    stuck: set["asyncio.Future[object]"] = field(default_factory=set)

    def find(self, dispatch_id: str) -> Run | None:
        """The dispatch, if it runs or waits here."""
        return self.running.get(dispatch_id) or self.ready.get(dispatch_id)

    def alone(self) -> bool:
        """One that runs alone is among them."""
        return any(run.alone for run in (*self.running.values(), *self.ready.values()))

    def slots(self) -> int:
        """Slots on offer. What cannot be ended holds its slot; beside one that runs alone there are none."""
        slots = max(0, self.capacity - len(self.stuck))
        return min(1, slots) if self.alone() else slots

    def start_next(self) -> Run | None:
        """The next one that may start; it counts as running now. One that runs alone has nothing beside it."""
        if not self.ready or len(self.running) + len(self.stuck) >= self.capacity:
            return None
        dispatch_id, run = next(iter(self.ready.items()))
        if self.running and (run.alone or next(iter(self.running.values())).alone):
            return None
        self.running[dispatch_id] = self.ready.pop(dispatch_id)
        return run

    def _ended_after_all(self, left_behind: "asyncio.Future[object]") -> None:
        self.stuck.discard(left_behind)
        error = None if left_behind.cancelled() else left_behind.exception()
        if error is not None:
            log.info("a run that was given up has ended by %s", type(error).__name__)

    def keep_slot(self, left_behind: "asyncio.Future[object]") -> None:
        """What cannot be ended keeps its slot until it ends."""
        self.stuck.add(left_behind)
        left_behind.add_done_callback(self._ended_after_all)


def not_to_run(
    dispatch: Dispatch, delivery: Delivery, task: Task | Refusal, *, handled: Collection[str], utc_us: int
) -> Ending | None:
    """Why a dispatch goes back without being run, ``None`` if it is to be run."""
    if isinstance(task, Refusal):
        return Ending(OutcomeClass.BAD_REQUEST, task.error)
    if too_late(dispatch, utc_us):
        return Ending(OutcomeClass.RELEASED, "it was too late to start it")
    if dispatch.envelope.capability not in handled:
        known = ", ".join(sorted(handled))
        return Ending(
            OutcomeClass.REJECTED, f"no handler for {dispatch.envelope.capability}, only for {known}"
        )
    if delivery.redelivered and (dispatch.envelope.side_effects or _times(delivery) >= _most(dispatch)):
        return Ending(OutcomeClass.UNAVAILABLE, "the process that had it before ended without an outcome")
    return None


def too_late(dispatch: Dispatch, utc_us: int) -> bool:
    """It must not be begun any more: its router may have given it up."""
    return 0 < dispatch.start_by < utc_us


def _most(dispatch: Dispatch) -> int:
    """Of one that runs alone from its first delivery on the first crash is its own."""
    return 1 if dispatch.envelope.crashes else CRASHES


def _times(delivery: Delivery) -> int:
    """How often the broker delivered it before, by its own count."""
    count = delivery.headers.get("x-delivery-count")
    return count if isinstance(count, int) else 0
