# ruff: noqa: RUF001 - Chinese punctuation is what this is about

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from reach_worker.demo.work.markdown import display_width, escaped, padded
from reach_worker.demo.work.report import table

cells = st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from("|\\`*_[<&~\n#;"))


TASKS = r"""# Tasks

| agent        | tasks | rate |  ok   |
|:-------------|------:|-----:|:-----:|
| log-analyzer |   120 |  0.5 | true  |
| a\|b         |     7 |      | false |
| **Total**    |   127 |  0.5 |       |
"""


def read_back(text: str) -> list[str]:
    """The cells of the last row as a Markdown renderer shows them."""
    inlines = [
        token for token in MarkdownIt("commonmark").enable("table").parse(text) if token.type == "inline"
    ]
    return ["".join(map(shown, token.children or [])) for token in inlines[len(inlines) // 2 :]]


def shown(token: Token) -> str:
    """Plain text and line breaks; anything else would be markup that the text was not meant to be."""
    assert token.type in {"text", "text_special"} or token.content == "<br>", token
    return "\n" if token.content == "<br>" and token.type == "html_inline" else token.content


def markdown(**payload: object) -> list[str]:
    text: str = table(payload)["markdown"]
    assert text.endswith("\n")
    return text.splitlines()


def test_a_table_from_objects() -> None:
    rows = [
        {"agent": "log-analyzer", "tasks": 120, "rate": 0.5, "ok": True},
        {"agent": "a|b", "tasks": 7, "ok": False},
    ]
    assert table({"rows": rows, "title": "Tasks", "totals": True}) == {
        "markdown": TASKS,
        "columns": ["agent", "tasks", "rate", "ok"],
        "rows": 2,
    }


def test_chinese_is_two_columns_wide() -> None:
    rows = [["结算", 3], ["搜索 search", 12]]
    lines = markdown(rows=rows, columns=["服务", "错误数"], title="错误日报", totals=True)
    assert lines == [
        "# 错误日报",
        "",
        "| 服务        | 错误数 |",
        "|:------------|-------:|",
        "| 结算        |      3 |",
        "| 搜索 search |     12 |",
        "| **Total**   |     15 |",
    ]
    assert len({display_width(line) for line in lines[2:]}) == 1


def test_columns_choose_and_order_the_keys_of_objects() -> None:
    lines = markdown(rows=[{"a": 1, "b": 2}, {"b": 3, "c": 4}], columns=["b", "a"])
    assert lines[0] == "|   b |   a |"
    assert lines[3] == "|   3 |     |"
    assert table({"rows": [{"a": 1}, {"b": 2}]})["columns"] == ["a", "b"]


def test_a_column_with_anything_but_numbers_stands_left() -> None:
    assert (
        markdown(rows=[[1, None, "x"], ["one", None, None]], columns=["a", "b", "c"])[1]
        == "|:----|:----|:----|"
    )


def test_decimals_round_what_is_not_whole() -> None:
    lines = markdown(rows=[[0.1, 1], [0.2, 2]], columns=["x", "n"], totals=True, decimals=2)
    assert lines[2:] == ["| 0.10 |   1 |", "| 0.20 |   2 |", "| 0.30 |   3 |"]
    assert markdown(rows=[[2.5]], columns=["x"], decimals=0)[2] == "|   2 |"


def test_totals_are_decimal() -> None:
    assert (
        markdown(rows=[["a", 0.1], ["b", 0.2]], columns=["k", "x"], totals=True)[-1] == "| **Total** | 0.3 |"
    )


def test_nested_values_and_line_breaks() -> None:
    lines = markdown(rows=[{"a": {"服务": [1, None]}, "b": "one\r\ntwo\nthree"}])
    assert lines[2] == r'| {"服务": \[1, null]} | one<br>two<br>three |'


def test_no_rows_is_a_table_with_a_header() -> None:
    assert markdown(rows=[], columns=["a"]) == ["| a   |", "|:----|"]


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        ({}, "rows"),
        ({"rows": "x"}, "rows"),
        ({"rows": [{"a": 1}, [1]]}, "rows"),
        ({"rows": [[1, 2], [1]], "columns": ["a", "b"]}, "rows"),
        ({"rows": [[1]]}, "columns"),
        ({"rows": []}, "columns"),
        ({"rows": [{}]}, "columns"),
        ({"rows": [], "columns": ["a", "a"]}, "columns"),
        ({"rows": [], "columns": [1]}, "columns"),
        ({"rows": [["a"]], "columns": ["k"], "totals": True}, "totals"),
        ({"rows": [[1]], "columns": ["k"], "totals": "yes"}, "totals"),
        ({"rows": [[1]], "columns": ["k"], "decimals": -1}, "decimals"),
        ({"rows": [[1]], "columns": ["k"], "title": " "}, "title"),
    ],
)
def test_what_cannot_be_laid_out_names_its_field(payload: dict[str, object], field: str) -> None:
    with pytest.raises(ValueError, match=f"^{field}: "):
        table(payload)


@given(st.lists(cells, min_size=1, max_size=4))
def test_any_text_comes_back_out_of_its_cell(row: list[str]) -> None:
    columns = [f"c{number}" for number in range(len(row))]
    lines = table({"rows": [row], "columns": columns})["markdown"].split("\n")
    assert len(lines) == 4
    assert [cell.strip() for cell in read_back("\n".join(lines))] == [cell.strip() for cell in row]


@given(st.lists(st.lists(cells, min_size=3, max_size=3), max_size=5))
def test_every_line_of_a_table_looks_equally_wide(rows: list[list[str]]) -> None:
    lines = table({"rows": rows, "columns": ["a", "b", "c"]})["markdown"].removesuffix("\n").split("\n")
    assert len({display_width(line) for line in lines}) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a|b", r"a\|b"),
        ("a\\|b", r"a\\\|b"),
        ("C:\\", r"C:\\"),
        ("snake_case __init__ _x_", r"snake_case \_\_init\_\_ \_x\_"),
        ("*x* `y` [z](u) ~w~", r"\*x\* \`y\` \[z](u) \~w\~"),
        ("<br> a & b &amp; &#124;", r"\<br> a & b \&amp; \&#124;"),
        ("a\tb\x00c", "a b\ufffdc"),
        ("1\n2\r\n3\r4", "1<br>2<br>3<br>4"),
    ],
)
def test_escapes(text: str, expected: str) -> None:
    assert escaped(text) == expected


@pytest.mark.parametrize(
    ("text", "width"), [("abc", 3), ("服务", 4), ("ＡＢ", 4), ("e\u0301", 1), ("，", 2), ("", 0)]
)
def test_display_width(text: str, width: int) -> None:
    assert display_width(text) == width


def test_padding() -> None:
    assert padded("务", 5, "left") == "务   "
    assert padded("务", 5, "right") == "   务"
    assert padded("务", 5, "center") == " 务  "
    assert padded("long", 2, "right") == "long"
