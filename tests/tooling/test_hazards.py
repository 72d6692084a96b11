"""tests/HAZARDS.md: every hazard has a test that exists, or a reason."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.tooling.observing import ROOT

TABLE: Final = ROOT / "tests" / "HAZARDS.md"
FAULTS: Final = ROOT / "reach_worker" / "chaos" / "faults.py"
HAZARDS: Final = 83
"""A row less is a hazard that was forgotten."""


@dataclass(frozen=True)
class Row:
    hazard: str
    named: tuple[str, ...]


def rows() -> Iterator[Row]:
    for line in TABLE.read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and len(cells) == 2 and cells[1] != "tests":
            yield Row(cells[0], tuple(re.findall(r"`([^`]+)`", cells[1])))


ROWS: Final = tuple(rows())


@cache
def names_in(path: Path) -> frozenset[str]:
    """The names of the tests in a file."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(
        node.name
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, functions) and node.name.startswith("test_")
    )


def wrong(named: str) -> str | None:
    """What is wrong with what a row names."""
    kind, _, rest = named.partition(": ")
    if kind == "not":
        return None if len(rest.split()) >= 4 else f"{named!r} is no reason"
    if kind == "chaos":
        return None if rest in fault_kinds() else f"scripts/chaos commits no fault {rest!r}"
    file, _, name = named.partition("::")
    path = ROOT / "tests" / file
    if not path.is_file():
        return f"there is no file tests/{file}"
    return None if not name or name in names_in(path) else f"tests/{file} has no {name}"


@cache
def fault_kinds() -> frozenset[str]:
    return frozenset(re.findall(r"^    [A-Z_]+ = \"(\w+)\"", FAULTS.read_text("utf-8"), re.MULTILINE))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.hazard)
def test_a_hazard_names_tests_that_there_are(row: Row) -> None:
    assert row.named, "neither a test nor a reason"
    assert [problem for named in row.named if (problem := wrong(named))] == []


def test_no_hazard_is_forgotten_or_told_twice() -> None:
    assert len({row.hazard for row in ROWS}) == len(ROWS) == HAZARDS


def test_what_is_wrong_is_found() -> None:
    assert wrong("core/test_task.py::test_nothing_of_the_kind") is not None
    assert wrong("core/test_nothing.py::test_a") is not None
    assert wrong("not: no") is not None
    assert wrong("tooling/test_hazards.py::test_what_is_wrong_is_found") is None
    assert wrong("chaos: a_nice_day") is not None
    assert wrong("tooling/test_hazards.py::rows") is not None
