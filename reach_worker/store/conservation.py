"""What the store says of every life of every task: how many ended and how, which ended twice, which did not end.

Read only, at one moment, while routers write. What is in the spill file counts as if it were written: the tasks that
it speaks of are copied into a database in memory, and its rows are added there, by the statements that the routers
will use. No query loads all tasks: they are counted in place, and only those that are open or odd come out.
"""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import aiosqlite
import orjson

from reach_worker.core.audit import Key, OpenLife
from reach_worker.core.duplicates import TaskState
from reach_worker.ports import Decided, Ended, Row
from reach_worker.store.audit_rows import DeadTask, DoubledEnd, open_life
from reach_worker.store.database import connect_to_read, migrations, our_errors, statements
from reach_worker.store.facts import OfLife
from reach_worker.store.spill_copy import SpillCopy
from reach_worker.store.transaction import write

BUSY_S: Final = 5.0
PAGE: Final = 1000

STATES: Final = "SELECT ifnull(ended, 'open'), count(*) FROM tasks WHERE first_seen >= ? GROUP BY 1"

DOUBLED: Final = """
SELECT t.task_id, t.life, json_group_array(json_object('state', e.state, 'reason', e.reason, 'at', e.at))
FROM (SELECT task FROM ends GROUP BY task HAVING count(*) > 1) AS d
JOIN tasks AS t ON t.id = d.task JOIN ends AS e ON e.task = d.task
WHERE t.first_seen >= ? GROUP BY t.id
"""

OPEN: Final = """
SELECT
    t.task_id, t.life,
    ifnull((
        SELECT json_extract(w.detail, '$.capability') FROM decisions AS w WHERE w.task = t.id
        ORDER BY w.at DESC, w.id DESC LIMIT 1
    ), t.capability),
    ifnull(t.holder, t.router), t.first_seen, t.dispatch_id, t.attempt,
    t.dispatched_at, t.parked_at, t.accepted, d.agent_id,
    ifnull((SELECT max(o.at) FROM outcomes AS o WHERE o.task = t.id AND o.standing = 'current'), 0),
    ifnull((SELECT max(c.at) FROM decisions AS c WHERE c.task = t.id), 0),
    EXISTS (
        SELECT 1 FROM outcomes AS o
        WHERE o.task = t.id AND o.dispatch_id = t.dispatch_id AND o.standing = 'current'
    ),
    EXISTS (SELECT 1 FROM tasks AS n WHERE n.task_id = t.task_id AND n.life > t.life)
FROM tasks AS t LEFT JOIN dispatches AS d ON d.dispatch_id = t.dispatch_id
WHERE t.ended IS NULL ORDER BY t.first_seen
"""

DEAD: Final = """
SELECT t.task_id, t.life, t.reason, t.ended_at FROM tasks AS t
WHERE t.ended <> 'succeeded' AND t.ended = 'dead_letter' AND t.first_seen >= ?
    AND NOT EXISTS (SELECT 1 FROM tasks AS n WHERE n.task_id = t.task_id AND n.life > t.life)
ORDER BY t.first_seen
"""

KNOWN: Final = """
SELECT task_id, life, state FROM tasks WHERE task_id IN (SELECT value FROM json_each(?))
"""

_IDS: Final = "SELECT value FROM json_each(?)"
_COPIED: Final[Mapping[str, tuple[str, str]]] = {
    "tasks": (
        (
            "id, task_id, life, accepted, flow_id, capability, caller, router, first_seen, dispatch_id, "
            "attempt, dispatched_at, holder, parked_at, ended, ended_at, reason"
        ),
        f"task_id IN ({_IDS})",
    ),
    **{
        table: (columns, f"task IN (SELECT id FROM tasks WHERE task_id IN ({_IDS}))")  # noqa: S608 - our names
        for table, columns in {
            "decisions": "task, decision_id, attempt, at, router, detail",
            "dispatches": "task, dispatch_id, attempt, agent_id, capability, decision_id, router, at",
            "outcomes": (
                "task, dispatch_id, standing, outcome, instance_id, attempt, agent_id, capability, at, message"
            ),
            "ends": "task, at, state, reason, error, remember_until, dispatch_id",
        }.items()
    },
}
"""What is copied of the tasks that the spill file speaks of: columns, and which rows."""


class Conservation:
    """The store at one moment, spill file included. To be entered with ``async with``.

    Entering and asking raise ``StoreForeign``, ``StoreNewer`` or ``StoreUnavailable``. ``spilled``: rows in the spill
    file; ``unreadable``: lines there that are none.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open = AsyncExitStack()
        self._aside_ids: set[str] = set()
        self.spilled = 0
        self.unreadable = 0

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            # The spill file first: what is taken out of it meanwhile is in the database then.
            spill = await SpillCopy.of(self._path)
            stack.callback(spill.close)
            self._main = await connect_to_read(self._path, BUSY_S)
            stack.push_async_callback(_close, self._main)
            with our_errors(self._path):
                await self._main.execute("BEGIN")
                await self._main.execute_fetchall("SELECT 1 FROM tasks LIMIT 1")  # the moment is now
                self._aside = await stack.enter_async_context(
                    aiosqlite.connect(":memory:", isolation_level=None)
                )
                await self._take_in(spill)
            self._open = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._open.aclose()

    async def states(self, since_us: int) -> dict[str, int]:
        """How many lives ended in each state, and how many are ``open``; of those first seen since then."""
        found = await self._states(self._main, STATES, since_us)
        if self._aside_ids:
            found += await self._states(self._aside, STATES, since_us)
            found -= await self._states(self._aside, STATES.replace("FROM tasks", "FROM copied"), since_us)
        return dict(found)

    async def doubled(self, since_us: int) -> list[DoubledEnd]:
        """Lives that ended more than once, those not counted that a late success resolved."""
        rows = await self._both(DOUBLED, since_us)
        found = [DoubledEnd(task_id, life, tuple(orjson.loads(ends))) for task_id, life, ends in rows]
        return [one for one in found if not one.resolved]

    async def open_lives(self) -> list[OpenLife]:
        """Every life that has not ended."""
        return [open_life(row) for row in await self._both(OPEN)]

    async def dead(self, since_us: int) -> AsyncIterator[DeadTask]:
        """Every life that ended as a dead letter and was not followed by another."""
        for connection in (self._main, self._aside):
            with our_errors(self._path):
                async with connection.execute(DEAD, (since_us,)) as cursor:
                    while rows := await cursor.fetchmany(PAGE):
                        for row in rows:
                            if connection is self._aside or row[0] not in self._aside_ids:
                                yield DeadTask(*row)

    async def known(self, task_ids: Collection[str]) -> dict[Key, TaskState]:
        """The state of every life of these tasks."""
        wanted = list(task_ids)
        found: dict[Key, TaskState] = {}
        for start in range(0, len(wanted), PAGE):
            ids = orjson.dumps(wanted[start : start + PAGE]).decode()
            for task_id, life, state in await self._both(KNOWN, ids):
                found[task_id, life] = TaskState(state)
        return found

    # -- inside

    async def _both(self, sql: str, *parameters: object) -> list[Sequence[Any]]:
        """Rows that begin with a task id, of both databases; a task that is in both is as the one aside has it."""
        main = await _rows(self._main, self._path, sql, *parameters)
        if not self._aside_ids:
            return list(main)
        aside = await _rows(self._aside, self._path, sql, *parameters)
        return [*(row for row in main if row[0] not in self._aside_ids), *aside]

    async def _take_in(self, spill: SpillCopy) -> None:
        for script in migrations():
            for statement in statements(script):
                await self._aside.execute(statement)
        self._aside_ids = await asyncio.to_thread(_task_ids, spill)
        wanted = list(self._aside_ids)
        for start in range(0, len(wanted), PAGE):
            await self._copy(orjson.dumps(wanted[start : start + PAGE]).decode())
        await self._aside.execute("CREATE TABLE copied AS SELECT ended, first_seen FROM tasks")
        chunks = spill.chunks()
        while (rows := await asyncio.to_thread(next, chunks, None)) is not None:
            self.spilled += len(rows)
            await write(self._aside, [_lean(row) for row in rows if isinstance(row, OfLife)])
        self.unreadable = spill.unreadable

    async def _copy(self, ids: str) -> None:
        for table, (columns, which) in _COPIED.items():
            marks = ", ".join("?" * (columns.count(",") + 1))
            sql = f"SELECT {columns.replace('detail', _NO_DETAIL)} FROM {table} WHERE {which}"  # noqa: S608 - our names
            found = await self._main.execute_fetchall(sql, (ids,))
            await self._aside.executemany(f"INSERT INTO {table} ({columns}) VALUES ({marks})", found)  # noqa: S608 - as above

    async def _states(self, connection: aiosqlite.Connection, sql: str, since_us: int) -> Counter[str]:
        rows = await _rows(connection, self._path, sql, since_us)
        return Counter({str(state): int(count) for state, count in rows})


_NO_DETAIL: Final = "json_object('capability', json_extract(detail, '$.capability'))"


async def _rows(
    connection: aiosqlite.Connection, path: Path, sql: str, *parameters: object
) -> Iterable[Sequence[Any]]:
    with our_errors(path):
        return await connection.execute_fetchall(sql, parameters)


async def _close(connection: aiosqlite.Connection) -> None:
    with suppress(sqlite3.Error):
        await connection.close()


def _task_ids(spill: SpillCopy) -> set[str]:
    return {row.task_id for rows in spill.chunks() for row in rows if isinstance(row, OfLife)}


def _lean(row: Row) -> Row:
    """Without what may be large and is not asked for. An agent that hands on changes the capability."""
    if isinstance(row, Decided):
        return replace(row, decision={"capability": row.decision.get("capability")})
    return replace(row, answer=None) if isinstance(row, Ended) else row
