"""One dispatch in a worker's hands, and whether it is to be run at all."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Final

from reach_worker.agent.context import Context
from reach_worker.agent.run import Ending
from reach_worker.core.dispatch import Dispatch
from reach_worker.core.envelope import Envelope
from reach_worker.core.message import Delivery
from reach_worker.core.outcome import OutcomeClass
from reach_worker.core.task import Refusal, Task

CRASHES: Final = 2
"""A dispatch that was delivered again so often has killed its process twice: it goes back instead of trying a third."""


@dataclass(slots=True)
class Run:
    """One dispatch in this worker's hands.

    ``taken_at``: when its delivery was taken, monotonic seconds. ``alone``: it may have killed its process before.
    ``leased``: a lease stands in for the delivery, which is acknowledged.
    """

    dispatch: Dispatch
    delivery: Delivery
    task: Task
    taken_at: float
    alone: bool = False
    leased: bool = False
    context: Context | None = None
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    def envelope(self) -> Envelope:
        """What goes on with the task. One that was delivered again and did not run here stays under suspicion."""
        envelope = self.dispatch.envelope
        if self.delivery.redelivered and self.context is None:
            return replace(envelope, crashes=envelope.crashes + 1)
        return envelope


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
