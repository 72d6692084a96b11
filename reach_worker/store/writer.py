"""One writer per process: batches of rows, again and again until the database takes them.

A call of ``record`` puts its rows into memory and waits a bounded time for them to be written; what is not by then it
also puts into the spill file, so that nothing is lost should the process be killed. While one transaction runs, the rows
for the next one gather, and those that nobody waits for some milliseconds longer. While the database is away (locked,
full, removed), rows stay in memory up to a bound; beyond it the newest are in the spill file only, and come back when the
database does.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from reach_worker.core.backoff import RetryPolicy, delay_s
from reach_worker.errors import OutsideWorld
from reach_worker.ports import Clock, Row
from reach_worker.store.database import StoreBusy, StoreSick, connect, our_errors
from reach_worker.store.link import Link
from reach_worker.store.outage import Outage
from reach_worker.store.row_lines import to_line
from reach_worker.store.spill import Spill, spill_of
from reach_worker.store.stats import StoreStats
from reach_worker.store.transaction import write
from reach_worker.store.unwritten import Entry, Unwritten

RETRY: Final = RetryPolicy(base_s=0.1, cap_s=2.0)
"""Between attempts on a database that is away; each of them also waits ``busy_s`` for a lock."""

RECHECK_S: Final = 5.0
"""How soon a spill file is tried again that another process was reading."""

KEEP_AGAIN_S: Final = 1.0
"""How soon rows are written down again after the spill file could not be written."""


@dataclass(frozen=True, slots=True)
class Limits:
    """``batch``: rows in a transaction; ``memory_rows``: rows that may wait in memory. Times in seconds.

    ``gather_s``: transactions are so far apart at least, unless somebody waits for one.
    """

    wait_s: float = 1.0
    batch: int = 500
    memory_rows: int = 50_000
    busy_s: float = 0.5
    gather_s: float = 0.03


class Writer:
    """Writes rows; never raises for what the outside world does to it. ``stats`` tells how it goes."""

    def __init__(self, path: Path, limits: Limits, clock: Clock, stats: StoreStats) -> None:
        self.unwritten = Unwritten()
        self._path = path
        self._limits = limits
        self._clock = clock
        self._stats = stats
        self._link = Link(path, lambda: connect(path, limits.busy_s))
        self._spill = Spill(spill_of(path))
        self._outage = Outage(stats, clock)
        self._on_the_way = 0
        self._work = asyncio.Event()
        self._hurry = asyncio.Event()
        self._wrote_at = float("-inf")
        self._keeping = asyncio.Lock()
        self._keep_from = float("-inf")
        self._full = asyncio.Event()
        self._stopping = asyncio.Event()

    @property
    def waiting(self) -> int:
        """Rows in memory, also those on their way to the spill file."""
        return self.unwritten.rows + self._on_the_way

    async def record(self, rows: Sequence[Row], *, patient: bool = False) -> bool:
        """Write the rows as one transaction. ``False``: not yet, or only into the spill file.

        ``patient`` rows are written with others, which come within ``gather_s`` of the last transaction.
        It waits ``wait_s`` for that, and a tenth of it while the database is away: a sick store must not set
        the pace.
        """
        if not rows:
            return True
        entry = Entry(tuple(rows), asyncio.get_running_loop().create_future())
        if self._stopping.is_set():
            await self._to_spill([entry])
            return False
        self.unwritten.add(entry)
        self._work.set()
        if not patient or self.unwritten.rows >= self._limits.batch:
            self._hurry.set()
        if self.unwritten.rows > self._limits.memory_rows:
            self._full.set()
        patience = self._limits.wait_s / 10 if self._stats.away else self._limits.wait_s
        await asyncio.wait([entry.written], timeout=patience)
        if not entry.written.done():
            await self._keep()
        return entry.written.done() and entry.written.result()

    async def begin(self) -> None:
        """Open the database. One that is busy, damaged or write-protected is left for later: tasks do not wait for it.

        Any other trouble is raised: what is there is no store of ours, or there cannot be one.
        """
        if await self._spill.look():
            self._work.set()
        try:
            await self._link.get()
        except (StoreBusy, StoreSick) as error:
            self._outage.away(error, 0)

    async def run(self) -> None:
        """Write until :meth:`stop`, then what is left: into the database, or else into the spill file."""
        failures = 0
        try:
            while not self._stopping.is_set() or (self.unwritten.rows and not failures):
                await self._wait_for_work()
                await self._gather()
                failures = 0 if await self._step() else failures + 1
                if failures:
                    await self._pause(delay_s(failures, self._clock.draw(), RETRY))
        finally:
            await self._to_spill(self.unwritten.drop_newest(0))
            await self._link.drop()
            self._outage.ended(await self._spill.look())

    async def run_overflow(self) -> None:
        """Keep the rows in memory within their bound, until :meth:`stop`."""
        while not self._stopping.is_set():
            await self._full.wait()
            self._full.clear()
            await self._to_spill(self.unwritten.drop_newest(self._limits.memory_rows))

    def stop(self) -> None:
        """Begin to end."""
        self._stopping.set()
        self._work.set()
        self._hurry.set()
        self._full.set()

    async def _wait_for_work(self) -> None:
        if not self.unwritten.rows:
            with suppress(TimeoutError):
                async with asyncio.timeout(RECHECK_S if self._spill.pending else None):
                    await self._work.wait()
        self._work.clear()

    async def _gather(self) -> None:
        """Rows that nobody waits for wait for others: a transaction costs as much as the rows of several tasks."""
        gather_s = min(self._limits.gather_s, self._limits.wait_s / 4)
        left = self._wrote_at + gather_s - self._clock.monotonic()
        if left > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._hurry.wait()
        self._hurry.clear()
        self._wrote_at = self._clock.monotonic()

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    async def _step(self) -> bool:
        """One batch, and then what the spill file holds. ``False``: the database is away."""
        if self.unwritten.rows and not await self._write():
            return False
        return await self._recover() if self._spill.pending and not self._stopping.is_set() else True

    async def _write(self, spilled: Sequence[Row] = ()) -> bool:
        """The oldest rows, and with them some that come out of the spill file, as one transaction."""
        taken = self.unwritten.take(self._limits.batch)
        rows = [*(row for entry in taken for row in entry.rows), *spilled]
        try:
            refused = await self._commit(rows)
        except OutsideWorld as error:
            self.unwritten.put_back()
            self._outage.away(error, self.waiting)
            if not isinstance(error, StoreBusy):
                await self._link.drop()
            return False
        self.unwritten.drop_taken()
        for entry in taken:
            entry.settle(written=True)
        self._outage.back(len(rows) - len(refused), self.waiting)
        self._outage.refused(refused)
        return True

    async def _commit(self, rows: Sequence[Row]) -> list[tuple[Row, Exception]]:
        connection = await self._link.get()
        with our_errors(self._path):
            refused = await write(connection, rows)
        if not self._link.in_place():
            raise StoreBusy(f"{self._path} was removed or replaced while it was written")
        return refused

    async def _recover(self) -> bool:
        """Bring the spill file back into the database; new rows travel along."""
        try:
            async with self._spill.reading() as lines:
                while lines and (chunk := await lines.next(self._limits.batch)):
                    rows = [row for row in chunk if not isinstance(row, bytes)]
                    if not await self._write(rows):
                        return False
                    self._stats.recovered += len(rows)
                    bad = [line for line in chunk if isinstance(line, bytes)]
                    self._outage.refused((line, ValueError("not a row")) for line in bad)
                if lines:
                    await lines.clear()
        except OutsideWorld as error:
            self._outage.unreadable(error)
            self._spill.pending = False
        return True

    async def _keep(self) -> None:
        """Put all that waits into the spill file too: whoever recorded it goes on, and may be killed in the next moment.

        Also what the file did not take a moment ago. It is written again from there when the database is back, which
        changes nothing.
        """
        if self._clock.monotonic() < self._keep_from:
            return
        try:
            # One of all that wait keeps it for all of them.
            async with asyncio.timeout(self._limits.wait_s), self._keeping:
                entries = self.unwritten.not_kept()
                lines = list(self._lines(row for entry in entries for row in entry.rows))
                await self._spill.append(b"".join(lines))
        except TimeoutError:
            return
        except OutsideWorld:
            # A full disk has no room for this file either, and all that waits is a lot to write down.
            self._keep_from = self._clock.monotonic() + KEEP_AGAIN_S
            return
        for entry in entries:
            entry.kept = True
        self._stats.spilled += len(lines)

    async def _to_spill(self, entries: Sequence[Entry]) -> None:
        lines = list(self._lines(row for entry in entries if not entry.kept for row in entry.rows))
        self._on_the_way += len(lines)
        try:
            await self._spill.append(b"".join(lines))
        except OutsideWorld as error:
            self._outage.lost(len(lines), error)
        else:
            self._stats.spilled += len(lines)
        finally:
            self._on_the_way -= len(lines)
        for entry in entries:
            entry.settle(written=False)

    def _lines(self, rows: Iterable[Row]) -> Iterator[bytes]:
        for row in rows:
            try:
                yield to_line(row)
            except TypeError as error:
                self._outage.refused([(row, error)])
