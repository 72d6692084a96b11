"""A look at the store's file: how large it is, what is in it, what waits beside it, and whether it is sound.

It reads only, also while routers write.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiosqlite

from reach_worker.store.database import StoreDamaged, connect_to_read, number, our_errors, schema_of
from reach_worker.store.pruning import OF_DISPATCH, OF_TASK, OF_TASK_ID, OLD, PRUNED, REMAINS
from reach_worker.store.spill import spill_of

BUSY_S: Final = 5.0
CHECK: Final = "PRAGMA integrity_check(20)"
"""It says no more than so many problems."""

_TABLES: Final = """
SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY name
"""
_SPAN: Final = "SELECT (SELECT min(first_seen) FROM tasks), (SELECT max(first_seen) FROM tasks)"
_OPEN: Final = "SELECT count(*) FROM tasks WHERE ended IS NULL"
_SOUND: Final = ["ok"]


@dataclass(frozen=True, slots=True)
class Survey:
    """What a look at the store found. Times are UTC microseconds, sizes bytes.

    ``free_bytes``: of the file, inside, for rows to come. ``rows``: per table. ``oldest``, ``newest``: when the tasks
    came. ``ended``, ``open``: lives of tasks. ``spilled_rows``, ``spilled_bytes``: what waits in the spill file.
    """

    path: Path
    file_bytes: int
    wal_bytes: int
    free_bytes: int
    schema: int
    rows: Mapping[str, int]
    oldest: int | None
    newest: int | None
    ended: int
    open: int
    spilled_rows: int
    spilled_bytes: int


async def survey(path: Path) -> Survey:
    """Look at the store. Raises as :func:`connect_to_read` does, and where the file cannot be read to its end."""
    connection = await connect_to_read(path, BUSY_S)
    try:
        with our_errors(path):
            await connection.execute_fetchall("BEGIN")  # all numbers of one moment
            rows = await _rows(connection)
            open_ = await number(connection, _OPEN)
            ((oldest, newest),) = await connection.execute_fetchall(_SPAN)
            free = await number(connection, "PRAGMA freelist_count")
            page = await number(connection, "PRAGMA page_size")
            schema = await schema_of(connection)
    finally:
        await connection.close()
    spilled_rows, spilled_bytes = await waiting_beside(path)
    return Survey(
        path=path,
        file_bytes=await asyncio.to_thread(_size, path),
        wal_bytes=await asyncio.to_thread(_size, path.with_name(path.name + "-wal")),
        free_bytes=free * page,
        schema=schema,
        rows=rows,
        oldest=oldest,
        newest=newest,
        ended=rows["tasks"] - open_,
        open=open_,
        spilled_rows=spilled_rows,
        spilled_bytes=spilled_bytes,
    )


async def _rows(connection: aiosqlite.Connection) -> Mapping[str, int]:
    tables = [name for (name,) in await connection.execute_fetchall(_TABLES)]
    return {
        table: await number(connection, f"SELECT count(*) FROM {table}")  # noqa: S608 - a name in our schema
        for table in tables
    }


async def waiting_beside(path: Path) -> tuple[int, int]:
    """Lines and bytes in the store's spill file: rows that could not be written yet."""
    return await asyncio.to_thread(_lines_and_bytes, spill_of(path))


def _lines_and_bytes(path: Path) -> tuple[int, int]:
    try:
        with path.open("rb") as file:
            return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b"")), file.tell()
    except OSError:
        return 0, 0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


async def check(path: Path) -> list[str]:
    """Read the whole file; what is damaged in it, in SQLite's words, no more than some. Nothing: it is sound."""
    connection = await connect_to_read(path, BUSY_S)
    try:
        with our_errors(path):
            return problems(await connection.execute_fetchall(CHECK))
    except StoreDamaged as error:
        return [str(error.__cause__)]  # it cannot even be checked to its end
    finally:
        await connection.close()


def problems(found: Iterable[Sequence[Any]]) -> list[str]:
    """What :data:`CHECK` answered, where it was not that all is well."""
    texts = [str(text) for (text,) in found]
    return [] if texts == _SOUND else texts


async def beyond(path: Path, before: int, now: int, tables: Sequence[str] = PRUNED) -> Mapping[str, int]:
    """How many rows of these tables pruning would remove that removes what is older than ``before``."""
    times = {"before": before, "now": now}
    old = f"SELECT t.id FROM tasks AS t WHERE {OLD}"  # noqa: S608 - our names
    last = f"""
        SELECT o.task_id FROM tasks AS o WHERE o.id IN ({old})
            AND NOT EXISTS (SELECT 1 FROM tasks AS n WHERE n.task_id = o.task_id AND n.id NOT IN ({old}))
    """  # noqa: S608 - as above
    of_dispatch = f"SELECT dispatch_id FROM dispatches WHERE task IN ({old})"  # noqa: S608 - as above
    where = {
        "tasks": f"id IN ({old})",
        **dict.fromkeys(OF_TASK, f"task IN ({old})"),
        **dict.fromkeys(OF_DISPATCH, f"dispatch_id IN ({of_dispatch})"),
        **dict.fromkeys(OF_TASK_ID, f"task_id IN ({last})"),
    }
    remains = {each.table: each.old for each in REMAINS}
    connection = await connect_to_read(path, BUSY_S)
    try:
        with our_errors(path):
            await connection.execute_fetchall("BEGIN")
            return {
                table: await _count(connection, table, where.get(table), remains.get(table), times)
                for table in tables
            }
    finally:
        await connection.close()


async def _count(
    connection: aiosqlite.Connection, table: str, where: str | None, old: str | None, times: Mapping[str, int]
) -> int:
    either = " OR ".join(f"({part})" for part in (where, old) if part)
    sql = f"SELECT count(*) FROM {table} AS r WHERE {either}"  # noqa: S608 - our names
    rows: Sequence[Any] = list(await connection.execute_fetchall(sql, times))
    return int(rows[0][0])
