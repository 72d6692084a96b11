"""A Markdown report: rows to a table that also reads well as plain text."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from reach_worker.demo.work import fields
from reach_worker.demo.work.fields import PayloadError
from reach_worker.demo.work.markdown import display_width, escaped, padded

Align = Literal["left", "right", "center"]
_SHORTEST_RULE = 3


@dataclass(frozen=True, slots=True)
class Table:
    """Column names and rows, every row as long as the columns. A missing cell is None."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    def column(self, index: int) -> list[Any]:
        """The cells of one column that hold something."""
        return [row[index] for row in self.rows if row[index] is not None]


def table(payload: Mapping[str, Any]) -> dict[str, Any]:
    """The `rows` as a GitHub-flavoured Markdown table under the optional `title`.

    `rows` are objects, or lists together with `columns`; with objects, `columns` selects and orders the
    keys. Numbers stand right, true and false in the middle, all else left. `decimals` (0 to 10) rounds what
    is not whole; `totals` adds a row of sums. Cells are shown as given: whatever Markdown would read as
    markup is escaped, a line break becomes `<br>`. Columns are aligned by display width: Chinese is two wide.

    Raises:
        ValueError: rows and columns that do not fit each other, or totals without a column of numbers.
    """
    read = _table(payload)
    decimals = _decimals(payload)
    aligns = [_align(read.column(index)) for index in range(len(read.columns))]
    body = [[_shown(cell, decimals) for cell in row] for row in read.rows]
    if fields.switch(payload, "totals"):
        body.append(_totals(read, aligns, decimals))
    lines = _laid_out([escaped(name) for name in read.columns], body, aligns)
    title = fields.text(payload, "title") if "title" in payload else None
    heading = [] if title is None else [f"# {escaped(' '.join(title.split()))}", ""]
    return {
        "markdown": "\n".join([*heading, *lines]) + "\n",
        "columns": list(read.columns),
        "rows": len(read.rows),
    }


def _table(payload: Mapping[str, Any]) -> Table:
    rows = payload.get("rows")
    columns = _columns(payload)
    if not isinstance(rows, list):
        raise PayloadError("rows", "must be a list")
    if all(isinstance(row, dict) for row in rows):
        columns = columns or tuple(dict.fromkeys(key for row in rows for key in row))
        cells = tuple(tuple(row.get(name) for name in columns) for row in rows)
    elif all(isinstance(row, list) for row in rows):
        cells = tuple(tuple(row) for row in rows)
        _check_lengths(cells, columns)
    else:
        raise PayloadError("rows", "must be all objects or all lists")
    if not columns:
        raise PayloadError("columns", "are needed where the rows do not name them")
    return Table(columns, cells)


def _columns(payload: Mapping[str, Any]) -> tuple[str, ...]:
    columns = payload.get("columns", [])
    if not isinstance(columns, list) or not all(isinstance(name, str) for name in columns):
        raise PayloadError("columns", "must be a list of names")
    if len(set(columns)) < len(columns):
        raise PayloadError("columns", "must differ from each other")
    return tuple(columns)


def _check_lengths(rows: Sequence[Sequence[Any]], columns: Sequence[str]) -> None:
    for number, row in enumerate(rows, start=1):
        if columns and len(row) != len(columns):
            raise PayloadError("rows", f"row {number} has {len(row)} cells for {len(columns)} columns")


def _decimals(payload: Mapping[str, Any]) -> int | None:
    if "decimals" not in payload:
        return None
    return fields.whole(payload, "decimals", default=0, at_most=10, at_least=0)


def _is_number(cell: object) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def _align(cells: Sequence[Any]) -> Align:
    if cells and all(_is_number(cell) for cell in cells):
        return "right"
    return "center" if cells and all(isinstance(cell, bool) for cell in cells) else "left"


def _shown(cell: object, decimals: int | None) -> str:
    """The cell as Markdown."""
    if cell is None:
        return ""
    if isinstance(cell, str):
        return escaped(cell)
    if isinstance(cell, float) and decimals is not None:
        return f"{cell:.{decimals}f}"
    return escaped(json.dumps(cell, ensure_ascii=False))


def _totals(read: Table, aligns: Sequence[Align], decimals: int | None) -> list[str]:
    if "right" not in aligns:
        raise PayloadError("totals", "need a column that holds numbers only")
    sums = [
        _shown(_total(read.column(index)), decimals) if align == "right" else ""
        for index, align in enumerate(aligns)
    ]
    if "left" in aligns:
        sums[aligns.index("left")] = "**Total**"
    return sums


def _total(numbers: Sequence[int | float]) -> int | float:
    """The sum in decimal, so that 0.1 + 0.2 is 0.3."""
    if all(isinstance(number, int) for number in numbers):
        return sum(numbers)
    return float(sum(Decimal(str(number)) for number in numbers))


def _laid_out(head: Sequence[str], body: Sequence[Sequence[str]], aligns: Sequence[Align]) -> list[str]:
    """Header, rule and rows, every column as wide as its widest cell."""
    widths = [max(_SHORTEST_RULE, *map(display_width, column)) for column in zip(head, *body, strict=True)]
    rule = [_rule(width, align) for width, align in zip(widths, aligns, strict=True)]
    return [_line(head, widths, aligns), f"|{'|'.join(rule)}|", *(_line(row, widths, aligns) for row in body)]


def _rule(width: int, align: Align) -> str:
    """The cell of the delimiter row, with the space around it filled: `:----` left, `----:` right."""
    left = ":" if align in {"left", "center"} else "-"
    right = ":" if align in {"right", "center"} else "-"
    return f"{left}{'-' * width}{right}"


def _line(cells: Sequence[str], widths: Sequence[int], aligns: Sequence[Align]) -> str:
    laid = [padded(cell, width, align) for cell, width, align in zip(cells, widths, aligns, strict=True)]
    return f"| {' | '.join(laid)} |"
