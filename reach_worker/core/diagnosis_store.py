"""Findings about the store and the machine that it is on."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from reach_worker.core.diagnosis import Finding, Severity

MB: Final = 1_000_000
LITTLE_SPACE: Final = 200 * MB
SOME_SPACE: Final = 1000 * MB
LARGE_LOG: Final = 256 * MB
"""The write-ahead log is cut back to 64 MB; four times that means that somebody reads for long, or nobody cuts it."""
FEW_FILES: Final = 1024
DAY_US: Final = 86_400 * 1_000_000


@dataclass(frozen=True, slots=True)
class StoreHealth:
    """How the store is. Times are UTC microseconds, sizes bytes; ``None`` where nobody could tell.

    ``unreadable``: why it cannot be read. ``unwritable``: why it takes no row now. ``faults``: what its own check
    says, empty if all is well, ``None`` if it took too long. ``free``: room on its disk.
    """

    path: str
    unreadable: str | None = None
    missing: bool = False
    unwritable: str | None = None
    faults: tuple[str, ...] | None = ()
    log_bytes: int = 0
    spill_bytes: int = 0
    free: int | None = None
    newest_us: int | None = None
    oldest_us: int | None = None


def of_store(health: StoreHealth, now_us: int, retention_days: int) -> Iterator[Finding]:
    """Whether history can be written and read."""
    where = f"store {health.path}"
    yield from _space(health, where)
    if health.spill_bytes:
        what = f"{health.spill_bytes} bytes wait in the spill file: the store took no rows for a while"
        advice = "a router writes them when the store is back; `reach audit` counts them"
        yield Finding(Severity.WARNING, where, what, advice)
    if health.missing:
        what = health.unreadable or "there is none"
        yield Finding(Severity.WARNING, where, what, "start a router; or correct store.path")
        return
    if health.unreadable is not None:
        advice = (
            "tasks go on without it, what has side effects waits; mend it, restore a backup, or move it away"
        )
        yield Finding(Severity.ERROR, where, health.unreadable, advice)
        return
    if health.faults:
        what = f"it is damaged: {'; '.join(health.faults[:3])}"
        advice = "stop the routers, move it away with its -wal and -shm, and restore a backup; tasks are not lost by that"
        yield Finding(Severity.ERROR, where, what, advice)
    elif health.faults is None:
        yield Finding(
            Severity.INFO, where, "its own check took too long and was left", "PRAGMA quick_check, at night"
        )
    if health.unwritable is not None:
        advice = (
            "see who holds it, its permissions, and the disk; rows are kept in memory, then in the spill file"
        )
        yield Finding(Severity.ERROR, where, f"it takes no rows: {health.unwritable}", advice)
    yield from _growth(health, where, now_us, retention_days)
    if not health.faults and health.unwritable is None:
        yield Finding(
            Severity.OK,
            where,
            "it can be read and written" + ("" if health.faults is None else ", and is whole"),
        )


def _space(health: StoreHealth, where: str) -> Iterator[Finding]:
    if health.free is None or health.free >= SOME_SPACE:
        return
    severity = Severity.ERROR if health.free < LITTLE_SPACE else Severity.WARNING
    what = f"{health.free // MB} MB are left on its disk"
    yield Finding(severity, where, what, "make room: on a full disk no history is kept")


def _growth(health: StoreHealth, where: str, now_us: int, retention_days: int) -> Iterator[Finding]:
    if health.log_bytes > LARGE_LOG:
        what = f"its write-ahead log has {health.log_bytes // MB} MB"
        advice = "somebody reads it for very long; end that reader, and it is cut back by itself"
        yield Finding(Severity.WARNING, where, what, advice)
    if health.oldest_us is not None:
        days = (now_us - health.oldest_us) // DAY_US
        if days > retention_days + 1:
            what = (
                f"its oldest task is {days} days old, {retention_days} are to be kept (store.retention_days)"
            )
            yield Finding(Severity.INFO, where, what, "it is more than was wanted, no harm: prune the store")


def of_files(soft_limit: int) -> Finding:
    """How many files and connections a process may open here."""
    if soft_limit >= FEW_FILES:
        return Finding(Severity.OK, "open files", f"{soft_limit} are allowed")
    what = f"only {soft_limit} are allowed"
    advice = f"raise it for routers and agents: `ulimit -n {FEW_FILES}` or more, LimitNOFILE= in systemd"
    return Finding(Severity.WARNING, "open files", what, advice)
