"""Rows into the database: one transaction, and one row at a time when a bad one is among them."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, TypeVar, cast

import aiosqlite

from reach_worker.ports import Accepted, Dispatched, OutcomeSeen, Row
from reach_worker.store.counts import LAST_OUTCOME, count_outcomes
from reach_worker.store.statements import ANYHOW, ENSURE, ENSURE_SENT, STATEMENTS

T = TypeVar("T")

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
        work = _prepared(rows)
        await _in_its_thread(connection, lambda database: _write_together(database, work))
    except BAD_ROW as bad:
        _raise_damage(bad)
        return await _in_its_thread(connection, lambda database: _write_one_by_one(database, rows))
    return []


async def _in_its_thread(connection: aiosqlite.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    """Do all of it in one go in the connection's thread.

    Every call of aiosqlite's own goes there and back, a dozen for one transaction: that took longer than SQLite does.
    """
    done = connection._execute(work, connection._conn)  # type: ignore[no-untyped-call] # noqa: SLF001 - no other way
    return cast("T", await done)


_ENSURING: Final = (ENSURE, ENSURE_SENT)
_ONLY_FIRST: Final = attrgetter("only_first")


@dataclass(slots=True)
class _Work:
    """Statements, each with its rows, in order; ``outcomes``: some of them are to be counted."""

    statements: list[tuple[str, list[tuple[object, ...]]]]
    outcomes: bool


def _prepared(rows: Sequence[Row]) -> _Work:
    by_kind: dict[type[Row], list[Row]] = {}
    for row in rows:
        by_kind.setdefault(type(row), []).append(row)
    accepted = {(row.task_id, row.life) for row in by_kind.get(Accepted, ()) if isinstance(row, Accepted)}
    found = []
    for kind, always in STATEMENTS.items():
        if kind not in by_kind:
            continue
        anyhow = kind is Dispatched and not any(map(_ONLY_FIRST, by_kind[kind]))
        for statement in ANYHOW if anyhow else always:
            values = [statement.values(row) for row in by_kind[kind]]
            if accepted and statement in _ENSURING:  # their rows are there: they were written just before
                values = [each for each in values if each[:2] not in accepted]
            if values:
                found.append((statement.sql, values))
    return _Work(found, OutcomeSeen in by_kind)


@contextmanager
def _transaction(database: sqlite3.Connection) -> Iterator[None]:
    """``IMMEDIATE``: the write lock is taken at the start, where waiting for it is safe."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    finally:
        if database.in_transaction:
            database.execute("ROLLBACK")


def _write_together(database: sqlite3.Connection, work: _Work) -> None:
    with _transaction(database):
        _write_all(database, work)


def _write_one_by_one(database: sqlite3.Connection, rows: Sequence[Row]) -> list[tuple[Row, Exception]]:
    with _transaction(database):
        return [(row, error) for row in rows if (error := _write_one(database, row)) is not None]


def _write_all(database: sqlite3.Connection, work: _Work) -> None:
    last_outcome = database.execute(LAST_OUTCOME).fetchone()[0] if work.outcomes else 0
    for sql, values in work.statements:
        database.executemany(sql, values)
    if work.outcomes:
        count_outcomes(database, last_outcome)


def _write_one(database: sqlite3.Connection, row: Row) -> Exception | None:
    database.execute("SAVEPOINT one_row")
    try:
        _write_all(database, _prepared([row]))
    except BAD_ROW as error:
        _raise_damage(error)
        database.execute("ROLLBACK TO one_row")
        return error
    finally:
        if database.in_transaction:
            database.execute("RELEASE one_row")
    return None


def _raise_damage(error: Exception) -> None:
    """Raise what only a damaged file says: it cannot name itself in UTF-8, or does not find the task just written."""
    if isinstance(error, UnicodeDecodeError):
        raise error
    if isinstance(error, sqlite3.IntegrityError) and str(error).endswith(".task"):
        damage = sqlite3.DatabaseError(f"an index of tasks is damaged: {error}")
        damage.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise damage from error
