"""Rows into the database: one transaction, and one row at a time when a bad one is among them."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Any, Final, TypeVar, cast

import aiosqlite

from reach_worker.ports import Accepted, Dispatched, Ended, OutcomeSeen, Row
from reach_worker.store.counts import LAST_OUTCOME, count_outcomes
from reach_worker.store.statement import TOGETHER, Statement
from reach_worker.store.statements import SEE, SEND_ANYHOW, SETTLE_CLAIM, STATEMENTS, once
from reach_worker.store.task_statements import ACCEPT, BEGIN, DISPATCH_ANYHOW, END, ENSURE

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


_ONLY_FIRST: Final = attrgetter("only_first")
_MAKING: Final = (ACCEPT, BEGIN, DISPATCH_ANYHOW, END)
"""After these the row of the task is there, which :data:`ENSURE` would see to."""
Values = tuple[object, ...]


@dataclass(slots=True)
class _Work:
    """Statements, each with its rows, in order; and the outcomes that are to be counted."""

    statements: list[tuple[Statement, list[Values]]]
    outcomes: Sequence[OutcomeSeen]


def _prepared(rows: Sequence[Row]) -> _Work:
    by_kind: dict[type[Row], list[Any]] = {}
    for row in rows:
        by_kind.setdefault(type(row), []).append(row)
    there: set[Values] = set()
    found = []
    for statement, of_kind in _statements(by_kind):
        values = list(map(statement.values, of_kind))
        if statement is ENSURE and there:
            values = [each for each in values if each[:2] not in there]
        if statement in _MAKING:
            there.update([each[:2] for each in values])
        if values:
            found.append((statement, values))
    return _Work(found, by_kind.get(OutcomeSeen, ()))


def _statements(by_kind: Mapping[type[Row], Sequence[Any]]) -> Iterator[tuple[Statement, Sequence[Any]]]:
    """What is to be run for these rows, in order: at half the cost where no dispatch has to be the first in its place."""
    anyhow = not any(map(_ONLY_FIRST, by_kind.get(Dispatched, ())))
    begun = _begun(by_kind) if anyhow else []
    for kind, always in STATEMENTS.items():
        of_kind = by_kind.get(kind, ())
        if kind is Accepted and begun:
            yield BEGIN, begun
            yield SETTLE_CLAIM, of_kind
        elif kind is Dispatched and anyhow:
            if not begun:
                yield DISPATCH_ANYHOW, of_kind
            yield SEND_ANYHOW, of_kind
        elif of_kind:
            of_kind = once(of_kind) if kind is Ended else of_kind
            yield from ((statement, of_kind) for statement in always)


def _begun(by_kind: Mapping[type[Row], Sequence[Any]]) -> list[tuple[Accepted, Dispatched]]:
    """Tasks with their dispatches, where every task that is accepted is also sent, once, and no other one is."""
    accepted, dispatched = by_kind.get(Accepted, ()), by_kind.get(Dispatched, ())
    sent = {(row.task_id, row.life): row for row in dispatched}
    if len(sent) < len(dispatched) or sent.keys() != {(row.task_id, row.life) for row in accepted}:
        return []
    return [(row, sent[row.task_id, row.life]) for row in accepted]


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
    seen = 0
    for statement, values in work.statements:
        written = _run(database, statement, values)
        seen = written if statement is SEE else seen
    if work.outcomes:
        count_outcomes(database, last_outcome, work.outcomes, all_new=seen == len(work.outcomes))


def _run(database: sqlite3.Connection, statement: Statement, values: Sequence[Values]) -> int:
    """How many rows were written or changed."""
    written, rest = 0, 0
    if statement.together:
        rest = len(values) - len(values) % TOGETHER
        for start in range(0, rest, TOGETHER):
            parameters = tuple(chain.from_iterable(values[start : start + TOGETHER]))
            written += database.execute(statement.together, parameters).rowcount
    if rest < len(values):
        written += database.executemany(statement.sql, values[rest:]).rowcount
    return written


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
