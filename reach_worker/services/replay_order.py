"""What a replay is told to do, and what it reports."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from reach_worker.core.dead_letter import DeadLetter, Filter
from reach_worker.core.duplicates import KnownTask
from reach_worker.core.replaying import HeldBack

Edit = Callable[[DeadLetter], Awaitable[bytes | HeldBack]]
"""What becomes of a dead letter's body before it is replayed; or why that letter stays."""

KnownTasks = Callable[[Sequence[str]], Awaitable[Mapping[str, KnownTask]]]
"""What the store knows of these task ids. It never raises: a store that is away knows nothing."""


async def nothing_known(_task_ids: Sequence[str]) -> Mapping[str, KnownTask]:
    """Where there is no store to ask."""
    return {}


@dataclass(frozen=True, slots=True)
class ReplayOrder:
    """What to replay. ``rate`` in messages per second (``None`` as fast as it goes).

    ``body`` replaces the task's own; ``edit`` makes a new one of each.
    """

    wanted: Filter
    limit: int | None = None
    rate: float | None = None
    to_agent: str | None = None
    body: bytes | None = None
    edit: Edit | None = None
    force: bool = False
    dry_run: bool = False
    max_bytes: int = 8 * 1024 * 1024

    def reached(self, count: int) -> bool:
        """So many are enough."""
        return self.limit is not None and count >= self.limit


@dataclass(slots=True)
class ReplayReport:
    """What a run did. ``seen`` of ``there`` messages were looked at; ``left`` are in the queue after it.

    ``not_removed``: those of ``replayed`` that are in the queue still, because the connection ended before they were
    acknowledged. Replaying them once more does no harm.
    """

    there: int = 0
    seen: int = 0
    matched: int = 0
    replayed: list[str] = field(default_factory=list)
    held_back: list[tuple[str, str]] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    not_removed: list[str] = field(default_factory=list)
    left: int = 0


Progress = Callable[[ReplayReport], None]
