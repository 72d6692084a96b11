"""Pruning the reach log in pieces so small that no writer notices.

Each piece is one ``DELETE`` of a few tasks, with all that hangs on them: one statement is one transaction that runs
through inside SQLite, so the write lock is never held while this process does something else. Several routers may
prune one file: what one has removed, the other does not find.
"""

import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import aiosqlite
import orjson

from reach_worker.errors import OutsideWorld
from reach_worker.ports import Clock
from reach_worker.store.database import connect, our_errors
from reach_worker.store.link import Link
from reach_worker.store.pruning import (
    CANDIDATES,
    KEEP_SINCE,
    PRUNED,
    REMAINS,
    REMOVE,
    TOO_MANY_TIMES,
    TRIM_TIMES,
    Remains,
    set_up,
)

log = logging.getLogger(__name__)

BUSY_S: Final = 0.5
"""Patience with another's lock; a stop waits for it."""
CACHE_KIB: Final = 8 * 1024
PIECE_S: Final = 0.005
"""How long a piece may take. A writer that meets it waits about as long."""
SMALLEST, LARGEST, FIRST = 1, 500, 20
"""Tasks in a piece."""
MANY: Final = 500
"""Candidates, and rows that hang on no task, looked up at once."""

SHARE: Final = 0.2
"""Of the time, that a router's pruning may take."""
EVERY_S: Final = 3600.0
AGAIN_S: Final = 60.0
"""After it met a store that is away."""
FIRST_S: Final = 10.0
"""After the start."""
DAY_US: Final = 86_400 * 1_000_000


async def connect_to_prune(path: Path, busy_s: float = BUSY_S) -> aiosqlite.Connection:
    """A connection whose deletions of tasks take along what hangs on them."""
    connection = await connect(path, busy_s)
    with our_errors(path):
        for sql in (f"PRAGMA cache_size = -{CACHE_KIB}", *set_up()):
            await connection.execute_fetchall(sql)
    return connection


class Pruner:
    """Prunes the store at ``path``, so that it is at it for at most ``share`` of the time.

    ``told`` hears, after every piece, how many tasks are gone by now.
    """

    def __init__(
        self,
        path: Path,
        clock: Clock,
        share: float,
        told: Callable[[int], object] = lambda _tasks: None,
        busy_s: float = BUSY_S,
    ) -> None:
        self._path = path
        self._clock = clock
        self._share = share
        self._told = told
        self._link = Link(path, lambda: connect_to_prune(path, busy_s))
        self._size = FIRST
        self._removed = dict.fromkeys(PRUNED, 0)

    async def prune(self, before: int) -> Mapping[str, int]:
        """Remove what is older than ``before`` (UTC microseconds); how many rows of which table.

        Raises ``OutsideWorld`` where the store does not let it; what was removed until then is gone.
        """
        self._removed = dict.fromkeys(PRUNED, 0)
        times = {"before": before, "now": self._clock.utc_us()}
        try:
            async for ids in self._candidates(times):
                await self._remove(ids, times)
            for remains in REMAINS:
                await self._clear(remains, times)
            for agent_id, capability in await self._ask(TOO_MANY_TIMES, {}):
                await self._piece(TRIM_TIMES, (agent_id, capability))
        finally:
            await self._link.drop()
        return self._removed

    async def _candidates(self, times: Mapping[str, int]) -> AsyncIterator[list[int]]:
        """Ids of tasks to remove, oldest first. Looking for them holds no lock."""
        first_seen, id_ = -(2**63), 0
        while found := await self._ask(
            CANDIDATES, {**times, "first_seen": first_seen, "id": id_, "limit": MANY}
        ):
            first_seen, id_ = found[-1]
            yield [number for _, number in found]

    async def _remove(self, ids: Sequence[int], times: Mapping[str, int]) -> None:
        while ids:
            piece = {**times, "ids": orjson.dumps(ids[: self._size]).decode()}
            ids = ids[self._size :]
            await self._ask(KEEP_SINCE, {"ids": piece["ids"]})
            self._size = next_size(self._size, await self._piece(REMOVE, piece))
            ((*counts,),) = await self._ask("SELECT * FROM removed", {})
            self._removed.update(zip(PRUNED, counts, strict=True))
            self._told(self._removed["tasks"])

    async def _clear(self, remains: Remains, times: Mapping[str, int]) -> None:
        before = {"before": times["before"]}
        while keys := await self._ask(remains.find, {**before, "limit": MANY}):
            await self._piece(remains.remove, {**before, "keys": f"[{','.join(key for (key,) in keys)}]"})
            ((gone,),) = await self._ask("SELECT changes()", {})
            self._removed[remains.table] += gone
            if len(keys) < MANY:
                break

    async def _piece(self, sql: str, parameters: Any) -> float:
        """Run one statement that writes, and then leave the store to the others; the seconds that it took."""
        began = self._clock.monotonic()
        await self._ask(sql, parameters)
        took = self._clock.monotonic() - began
        await self._clock.sleep(took * (1 / self._share - 1))
        return took

    async def _ask(self, sql: str, parameters: Any) -> Sequence[Sequence[Any]]:
        connection = await self._link.get()
        with our_errors(self._path):
            return list(await connection.execute_fetchall(sql, parameters))


def next_size(size: int, took: float) -> int:
    """Tasks in the next piece, by what this one took: never more than twice as many."""
    fits = size * min(2.0, PIECE_S / took) if took > 0 else 2 * size
    return max(SMALLEST, min(LARGEST, int(fits)))


class Retention:
    """A router's own pruning, for as long as it runs. Each pause is drawn, so that routers take turns."""

    def __init__(self, path: Path, days: int, clock: Clock) -> None:
        self._days = days
        self._clock = clock
        self._pruner = Pruner(path, clock, SHARE)
        self._failing = False

    async def run(self) -> NoReturn:
        """Prune for ever. A store that is away is met again later."""
        await self._pause(FIRST_S)
        while True:
            await self._pause(EVERY_S if await self.once() else AGAIN_S)

    async def once(self) -> bool:
        """Prune once; whether it came to the end."""
        try:
            removed = await self._pruner.prune(self._clock.utc_us() - self._days * DAY_US)
        except OutsideWorld as error:
            log.log(
                logging.DEBUG if self._failing else logging.WARNING,
                "the store cannot be pruned now, it is tried again: %s",
                error,
            )
            self._failing = True
            return False
        self._failing = False
        if any(removed.values()):
            gone = ", ".join(f"{rows} {table}" for table, rows in removed.items() if rows)
            log.info("pruned what is older than %d days: %s", self._days, gone)
        return True

    async def _pause(self, seconds: float) -> None:
        await self._clock.sleep(seconds * (0.5 + self._clock.draw()))
