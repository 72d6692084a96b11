"""What a statement that writes rows is: one for each row, or one for several at once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

TOGETHER: Final = 8
"""Rows of one statement. Python's lock is let go and taken again for each statement, not for each row."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement, and how a row becomes its parameters. ``together``: the same for :data:`TOGETHER` rows at once."""

    sql: str
    values: Callable[[Any], tuple[object, ...]]
    together: str = ""


def for_rows(sql: str, row: str, values: Callable[[Any], tuple[object, ...]]) -> Statement:
    """A statement with ``{rows}`` where ``row``, a list of values, stands once for each of its rows."""
    return Statement(sql.format(rows=row), values, sql.format(rows=", ".join([row] * TOGETHER)))


def insert(table: str, *columns: str) -> Statement:
    """Add the row, whose attributes are named as the columns, unless it is there."""
    marks = ", ".join("?" * len(columns))
    sql = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks}) ON CONFLICT DO NOTHING"  # noqa: S608 - our names
    return Statement(sql, _attributes(columns))


def _attributes(columns: Sequence[str]) -> Callable[[Any], tuple[object, ...]]:
    """The row's attributes, as a tuple; of a single one ``attrgetter`` would give the value itself."""
    if len(columns) > 1:
        return attrgetter(*columns)
    (column,) = columns
    return lambda row: (getattr(row, column),)


def insert_of_task(
    table: str, *columns: str, values: Callable[[Any], tuple[object, ...]] | None = None
) -> Statement:
    """The same for a row that hangs on its task's row, which is there. Its values begin with the task's id and life."""
    return for_rows(
        f"INSERT INTO {table} (task, {', '.join(columns)}) VALUES {{rows}} ON CONFLICT DO NOTHING",  # noqa: S608 - our names
        f"((SELECT id FROM tasks WHERE task_id = ? AND life = ?), {', '.join('?' * len(columns))})",  # noqa: S608 - as above
        values or attrgetter("task_id", "life", *columns),
    )
