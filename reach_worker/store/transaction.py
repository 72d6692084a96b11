"""Rows into the database: one transaction, and one row at a time when a bad one is among them."""

import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import aiosqlite

from reach_worker.ports import Accepted, OutcomeSeen, Row
from reach_worker.store.counts import LAST_OUTCOME, count_outcomes
from reach_worker.store.database import number
from reach_worker.store.statements import ENSURE, STATEMENTS

BAD_ROW: Final = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    AttributeError,
    TypeError,
    ValueError,
    OverflowError,
)
"""What a row raises that no waiting would mend: a constraint, or a value that SQLite or JSON cannot hold."""


async def write(connection: aiosqlite.Connection, rows: Sequence[Row]) -> list[tuple[Row, Exception]]:
    """Write the rows as one transaction, leaving out bad ones; those are returned, each with its fault.

    Raises ``sqlite3.Error`` where the database would not have them; then nothing was written.
    """
    try:
        async with _transaction(connection):
            await _write_all(connection, rows)
    except BAD_ROW as bad:
        _raise_damage(bad)
        async with _transaction(connection):
            return [(row, error) for row in rows if (error := await _write_one(connection, row)) is not None]
    return []


@asynccontextmanager
async def _transaction(connection: aiosqlite.Connection) -> AsyncIterator[None]:
    """``IMMEDIATE``: the write lock is taken at the start, where waiting for it is safe."""
    await connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        await connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            await connection.execute("ROLLBACK")


async def _write_all(connection: aiosqlite.Connection, rows: Sequence[Row]) -> None:
    by_kind: dict[type[Row], list[Row]] = {}
    for row in rows:
        by_kind.setdefault(type(row), []).append(row)
    last_outcome = await number(connection, LAST_OUTCOME) if OutcomeSeen in by_kind else 0
    accepted = {(row.task_id, row.life) for row in by_kind.get(Accepted, ()) if isinstance(row, Accepted)}
    for kind, statements in STATEMENTS.items():
        for statement in statements if kind in by_kind else ():
            values = [statement.values(row) for row in by_kind[kind]]
            if statement is ENSURE and accepted:  # their rows are there: they were written just before
                values = [each for each in values if each[:2] not in accepted]
            await connection.executemany(statement.sql, values)
    if OutcomeSeen in by_kind:
        await count_outcomes(connection, last_outcome)


async def _write_one(connection: aiosqlite.Connection, row: Row) -> Exception | None:
    await connection.execute("SAVEPOINT one_row")
    try:
        await _write_all(connection, [row])
    except BAD_ROW as error:
        _raise_damage(error)
        await connection.execute("ROLLBACK TO one_row")
        return error
    finally:
        if connection.in_transaction:
            await connection.execute("RELEASE one_row")
    return None


def _raise_damage(error: Exception) -> None:
    """Raise what only a damaged file says: it cannot name itself in UTF-8, or does not find the task just written."""
    if isinstance(error, UnicodeDecodeError):
        raise error
    if isinstance(error, sqlite3.IntegrityError) and str(error).endswith(".task"):
        damage = sqlite3.DatabaseError(f"an index of tasks is damaged: {error}")
        damage.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise damage from error
