"""How the store is doing, in numbers."""

from dataclasses import dataclass


@dataclass(slots=True)
class StoreStats:
    """Counted since the process began.

    ``waiting``: rows in memory, not written yet. ``spilled``, ``recovered``: rows put into the spill file,
    and read back from it (also an earlier process's). ``refused``: rows that no database would take.
    ``lost``: rows that even the spill file did not take. ``failed_reads``: questions that went unanswered.
    ``away``: the last write failed.
    """

    written: int = 0
    waiting: int = 0
    spilled: int = 0
    recovered: int = 0
    refused: int = 0
    lost: int = 0
    failed_reads: int = 0
    away: bool = False
    last_error: str | None = None


def worth_saying(times: int) -> bool:
    """The 1st, 2nd, 4th, 8th … time: a log line for each would soon be part of the trouble."""
    return times & (times - 1) == 0
