"""What commands print: trees and tables for people, JSON for programs.

At a terminal with colours and guides; elsewhere plain lines that tools can cut up. Most of it comes from other people's
messages: no control character of theirs reaches a terminal.
"""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import click
import orjson
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text
from rich.tree import Tree

from reach_worker.core.visible import visible, visible_json

LAST_NEEDS: Final = 20
"""Where the last column of a table has so much room, only that one is folded."""


@dataclass(slots=True)
class Node:
    """A line with what belongs to it. ``style`` is rich's: a colour, ``bold``, ``dim``."""

    text: str
    style: str = ""
    children: list["Node"] = field(default_factory=list)

    def add(self, text: str, style: str = "") -> "Node":
        """A new line under this one."""
        node = Node(text, style)
        self.children.append(node)
        return node


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under named columns. ``styles``: of each row, where they differ."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    styles: Sequence[str] = ()


def print_json(document: Any) -> None:
    """One document, for programs."""
    sys.stdout.write(json_text(document, orjson.OPT_INDENT_2))


def print_json_line(document: Any) -> None:
    """One line of many."""
    sys.stdout.write(json_text(document))
    sys.stdout.flush()


def json_text(document: Any, option: int = 0) -> str:
    """A document as a line of JSON, or with ``option`` (of orjson's) otherwise."""
    return visible_json(orjson.dumps(document, option=option | orjson.OPT_APPEND_NEWLINE).decode())


def put(text: str) -> None:
    """A line of the output."""
    click.echo(visible(text, lines=True))


def say(text: str) -> None:
    """A line for people, beside the output."""
    click.echo(visible(text, lines=True), err=True)


def print_tree(root: Node) -> None:
    """A tree."""
    if sys.stdout.isatty():
        Console().print(_branch(root, None))
    else:
        click.echo(tree_text(root))


def tree_text(root: Node) -> str:
    """A tree as plain lines."""
    return "\n".join(f"{'  ' * depth}{visible(node.text)}" for depth, node in _walk(root, 0))


def _branch(node: Node, parent: Tree | None) -> Tree:
    text = Text(visible(node.text), style=node.style)
    branch = Tree(text) if parent is None else parent.add(text)
    for child in node.children:
        _branch(child, branch)
    return branch


def _walk(node: Node, depth: int) -> Iterable[tuple[int, Node]]:
    yield depth, node
    for child in node.children:
        yield from _walk(child, depth + 1)


def print_table(table: Table) -> None:
    """A table."""
    table = Table(table.columns, [[visible(cell) for cell in row] for row in table.rows], table.styles)
    if sys.stdout.isatty():
        _print_rich(table)
    else:
        _print_plain(table)


def _print_rich(table: Table) -> None:
    console = Console()
    *all_but_last, _ = _widths(table)
    fits = sum(all_but_last) + 2 * len(all_but_last) + LAST_NEEDS <= console.width
    drawn = RichTable(box=None, header_style="bold", padding=(0, 2, 0, 0), pad_edge=False)
    for number, column in enumerate(table.columns, start=1):
        drawn.add_column(column, overflow="fold", no_wrap=fits and number < len(table.columns))
    styles = table.styles or [""] * len(table.rows)
    for row, style in zip(table.rows, styles, strict=True):
        drawn.add_row(*(Text(cell) for cell in row), style=style)
    console.print(drawn)


def _print_plain(table: Table) -> None:
    widths = _widths(table)
    for line in (table.columns, *table.rows):
        cells = (cell + " " * (width - cell_len(cell)) for cell, width in zip(line, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def _widths(table: Table) -> list[int]:
    lines = [table.columns, *table.rows]
    return [max(cell_len(line[index]) for line in lines) for index in range(len(table.columns))]
