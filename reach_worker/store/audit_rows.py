"""What the audit is told of single lives: those that ended twice, as dead letters, or not at all."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reach_worker.core.audit import OpenLife
from reach_worker.core.duplicates import TaskState


@dataclass(frozen=True, slots=True)
class DoubledEnd:
    """A life with more than one end. ``ends``: state, reason and time of each."""

    task_id: str
    life: int
    ends: tuple[dict[str, Any], ...]

    @property
    def resolved(self) -> bool:
        """It is one end: a dead letter whose outcome was unknown, and the success that came late."""
        first, *others = sorted(self.ends, key=lambda end: end["state"] == TaskState.SUCCEEDED)
        unknown = first["reason"] == "outcome_unknown" and len(others) == 1
        return unknown and others[0]["state"] == TaskState.SUCCEEDED


@dataclass(frozen=True, slots=True)
class DeadTask:
    """A life that ended as a dead letter, and after which no other began."""

    task_id: str
    life: int
    reason: str | None
    ended_at: int


def open_life(row: Sequence[Any]) -> OpenLife:
    """From a row of the query for open lives."""
    (
        task_id, life, capability, router, first_seen, dispatch_id, attempt, dispatched_at, parked_at, accepted,
        agent_id, outcome_at, decided_at, settled, began_anew,
    ) = row  # fmt: skip
    out = dispatch_id is not None and not settled
    return OpenLife(
        task_id=task_id,
        life=life,
        capability=capability,
        router=router,
        first_seen=first_seen,
        traced_at=max(first_seen, dispatched_at, parked_at, outcome_at, decided_at),
        dispatch_id=dispatch_id if out else None,
        agent_id=agent_id or "" if out else "",
        attempt=attempt,
        dispatched_at=dispatched_at,
        parked=parked_at > dispatched_at,
        only_late=not (accepted or dispatch_id or parked_at or outcome_at or decided_at),
        began_anew=bool(began_anew),
    )
