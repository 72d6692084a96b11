"""A real store on SQLite for a world: in a thread of its own, where time is the machine's."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from reach_worker.clock import SystemClock
from reach_worker.core.duplicates import KnownTask
from reach_worker.core.success import TrackRecord
from reach_worker.ports import Joined, KnownDispatch, Row
from reach_worker.store import SqliteStore
from reach_worker.testing.virtual_time import VirtualTime

T = TypeVar("T")

PATIENCE_S: Final = 10.0
"""Real seconds that a world waits for the disk before its time moves on."""


class SqliteBeside:
    """The ``Store`` port on a file, to be entered with ``async with``. ``rows``: what was recorded, in order."""

    def __init__(self, path: Path, time: VirtualTime) -> None:
        self.rows: list[Row] = []
        self._time = time
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="sqlite", daemon=True)
        self._store = SqliteStore.open(path, clock=SystemClock())
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._thread.start()
        await self._there(lambda: self._open.enter_async_context(self._store))
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._there(self._open.aclose)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def record(self, rows: Sequence[Row], *, patient: bool = False) -> bool:
        """Write the rows as one transaction."""
        self.rows.extend(rows)
        return await self._there(lambda: self._store.record(rows, patient=patient))

    async def known_tasks(self, task_ids: Sequence[str]) -> dict[str, KnownTask]:
        return await self._there(lambda: self._store.known_tasks(task_ids))

    async def known_dispatches(self, dispatch_ids: Sequence[str]) -> dict[str, KnownDispatch]:
        return await self._there(lambda: self._store.known_dispatches(dispatch_ids))

    async def open_dispatches(self, router: str) -> list[KnownDispatch]:
        return await self._there(lambda: self._store.open_dispatches(router))

    async def waiters(self, task_ids: Sequence[str]) -> dict[str, list[Joined]]:
        return await self._there(lambda: self._store.waiters(task_ids))

    async def track_record(self) -> TrackRecord:
        return await self._there(self._store.track_record)

    async def manifests(self) -> list[str]:
        return await self._there(self._store.manifests)

    async def _there(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        work = asyncio.run_coroutine_threadsafe(ask(), self._loop)
        # First, so that this loop knows before the work is no longer waited for.
        done = asyncio.wrap_future(work)
        self._time.watch(work, PATIENCE_S)
        return await done
