"""Trees and tables: plain lines where nobody watches, drawn where somebody does."""

import io
from contextlib import redirect_stdout

import pytest

from reach_worker.cli.output import Node, Table, print_json, print_json_line, print_table, print_tree

TREE = Node("top", "bold", [Node("one", "", [Node("deep [red]")]), Node("two")])
TABLE = Table(("NAME", "WORD", "LAST"), [("a", "日本", ""), ("long", "x", "y")], ["red", ""])


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """What is written to it is at a terminal of 60 columns without colours."""
    for name, value in (("TERM", "xterm"), ("COLUMNS", "60"), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)
    return Terminal()


def test_a_plain_tree_is_indented_lines(capsys: pytest.CaptureFixture[str]) -> None:
    print_tree(TREE)

    assert capsys.readouterr().out == "top\n  one\n    deep [red]\n  two\n"


def test_a_plain_table_is_aligned_by_what_is_seen(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(TABLE)

    assert capsys.readouterr().out == "NAME  WORD  LAST\na     日本\nlong  x     y\n"


def test_at_a_terminal_a_tree_has_guides_and_text_is_never_markup(narrow_terminal: Terminal) -> None:
    with redirect_stdout(narrow_terminal):
        print_tree(TREE)

    assert "├── one" in narrow_terminal.getvalue()
    assert "deep [red]" in narrow_terminal.getvalue()


def test_at_a_terminal_long_cells_are_folded_and_nothing_is_cut(narrow_terminal: Terminal) -> None:
    with redirect_stdout(narrow_terminal):
        print_table(Table(("A", "B"), [("x" * 100, "y")]))

    assert narrow_terminal.getvalue().count("x") == 100


def test_json_is_one_document_or_one_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": ["é"]})
    print_json_line({"a": 1})

    assert capsys.readouterr().out == '{\n  "a": [\n    "é"\n  ]\n}\n{"a":1}\n'
