"""What the writer has to say: that the store is away and back, and what could not be written. Counted, and logged."""

import logging
from collections.abc import Iterable
from typing import Final

from reach_worker.ports import Clock
from reach_worker.store.stats import StoreStats, worth_saying

log = logging.getLogger(__name__)

FIRST_TOLD: Final = 4
"""Attempts after which a store is said to be still away: many a lock is over before."""


class Outage:
    """Keeps ``stats``, and says in the log what changes; what goes on, ever more seldom."""

    def __init__(self, stats: StoreStats, clock: Clock) -> None:
        self._stats = stats
        self._clock = clock
        self._since = 0.0
        self._failures = 0
        self._losses = 0

    def away(self, error: Exception, waiting: int) -> None:
        """The database did not take rows; ``waiting``: how many are in memory."""
        stats = self._stats
        if not stats.away:
            self._since, self._failures = self._clock.monotonic(), 0
            log.warning(
                "the store is away, rows are kept; tasks go on, those with side effects wait: %s", error
            )
        elif self._failures >= FIRST_TOLD and worth_saying(self._failures):
            log.warning(
                "the store is still away after %.0f s: %d rows in memory, %d went to the spill file, %d lost: %s",
                self._clock.monotonic() - self._since,
                waiting,
                stats.spilled,
                stats.lost,
                error,
            )
        self._failures += 1
        stats.away = True
        stats.last_error = str(error)

    def back(self, written: int, waiting: int) -> None:
        """The database took so many rows; ``waiting``: how many are still in memory."""
        stats = self._stats
        stats.written += written
        if stats.away:
            stats.away = False
            log.warning(
                "the store is back after %.0f s: %d rows written, %d still in memory, %d in the spill file, %d lost",
                self._clock.monotonic() - self._since,
                written,
                waiting,
                max(0, stats.spilled - stats.recovered),
                stats.lost,
            )

    def refused(self, refused: Iterable[tuple[object, Exception]]) -> None:
        """Rows that no database would take."""
        for row, error in refused:
            self._stats.refused += 1
            if worth_saying(self._stats.refused):
                log.error(
                    "the store refuses %.500r, row %d that it refuses: %r", row, self._stats.refused, error
                )

    def lost(self, rows: int, error: Exception) -> None:
        """Rows that even the spill file did not take."""
        self._losses += 1
        self._stats.lost += rows
        self._stats.last_error = str(error)
        if worth_saying(self._losses):
            log.error("%d rows are lost, the spill file takes none: %s", self._stats.lost, error)

    def unreadable(self, error: Exception) -> None:
        """The spill file could not be read back."""
        log.error("the spill file waits for the next start: %s", error)
        self._stats.last_error = str(error)

    def ended(self, spilled_bytes: int) -> None:
        """The last word. ``spilled_bytes``: what the spill file holds for whoever starts next."""
        stats = self._stats
        bad = spilled_bytes or stats.lost or stats.refused
        log.log(
            logging.WARNING if bad else logging.INFO,
            "the store took %d rows; the spill file took %d and gave back %d%s; %d refused, %d lost",
            stats.written,
            stats.spilled,
            stats.recovered,
            f", {spilled_bytes} bytes wait in it for the next start" if spilled_bytes else "",
            stats.refused,
            stats.lost,
        )
