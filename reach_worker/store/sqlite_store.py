"""The long-term store on SQLite."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from reach_worker.core.duplicates import KnownTask
from reach_worker.core.success import TrackRecord
from reach_worker.ports import Clock, Joined, KnownDispatch, Row
from reach_worker.store.reader import Reader
from reach_worker.store.stats import StoreStats
from reach_worker.store.writer import Limits, Writer


class SqliteStore:
    """The ``Store`` port on one SQLite file, which several routers of one machine may share.

    To be entered with ``async with``. Leaving it writes what is still in memory, into the database or else
    into the spill file.
    """

    def __init__(self, path: Path, limits: Limits, clock: Clock) -> None:
        self._stats = StoreStats()
        self._writer = Writer(path, limits, clock, self._stats)
        self._reader = Reader(path, limits.wait_s, self._writer.unwritten, self._stats, clock)
        self._open = AsyncExitStack()

    @classmethod
    def open(
        cls, path: Path, *, clock: Clock, wait_s: float = 1.0, batch: int = 500, memory_rows: int = 50_000
    ) -> Self:
        """A store that opens when it is entered.

        ``wait_s``: the longest that a call waits for the database. ``batch``: rows in a transaction.
        ``memory_rows``: rows that wait in memory while the database is away; beyond that they are in ``<path>.spill``
        only, which has all that was not written within the wait.

        Entering it raises:
            StoreForeign: the file is something else; it was not touched.
            StoreNewer: a newer version of this package wrote it; it was not touched.
            StoreUnavailable: there is none, and it cannot be made.

        One that is locked, damaged, write-protected or on a full disk is no error: rows are kept until it comes back,
        or until somebody puts another one in its place.
        """
        return cls(path, Limits(wait_s=wait_s, batch=batch, memory_rows=memory_rows), clock)

    async def __aenter__(self) -> Self:
        await self._writer.begin()
        group = await self._open.enter_async_context(asyncio.TaskGroup())
        self._open.callback(self._writer.stop)
        # Before the writer's: whoever lets go of the file last, and may write it, takes its log into it.
        self._open.push_async_callback(self._reader.close)
        group.create_task(self._writer.run(), name="store writer")
        group.create_task(self._writer.run_overflow(), name="store spill")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Not handing the error on: the task group would wrap it, and it is none of the store's.
        await self._open.aclose()

    def stats(self) -> StoreStats:
        """How the store is doing now."""
        return replace(self._stats, waiting=self._writer.waiting)

    async def record(self, rows: Sequence[Row], *, patient: bool = False) -> bool:
        """Write the rows as one transaction. ``False``: not committed yet; they are kept, and will be.

        ``patient`` rows wait a moment for others. A call that waits is bounded by ``wait_s``, and by a tenth of it while
        the database is away.
        A row that no database would take is left out, logged and counted as refused; the others are written.
        """
        return await self._writer.record(rows, patient=patient)

    async def known_tasks(self, task_ids: Sequence[str]) -> dict[str, KnownTask]:
        return await self._reader.known_tasks(task_ids)

    async def known_dispatches(self, dispatch_ids: Sequence[str]) -> dict[str, KnownDispatch]:
        return await self._reader.known_dispatches(dispatch_ids)

    async def open_dispatches(self, router: str) -> list[KnownDispatch]:
        return await self._reader.open_dispatches(router)

    async def waiters(self, task_ids: Sequence[str]) -> dict[str, list[Joined]]:
        return await self._reader.waiters(task_ids)

    async def track_record(self) -> TrackRecord:
        return await self._reader.track_record()

    async def manifests(self) -> list[str]:
        return await self._reader.manifests()
