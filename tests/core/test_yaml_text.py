"""YAML text becomes exactly what JSON could hold, and every fault has its line and column."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_worker.core.document import Place
from reach_worker.core.yaml_text import MAX_DEPTH, parse
from reach_worker.errors import BadInput, Problem


def refused(text: str) -> tuple[Problem, ...]:
    with pytest.raises(BadInput) as caught:
        parse(text, file="f.yaml")
    return caught.value.problems


def test_every_key_and_value_knows_its_place() -> None:
    document = parse("id: a\nlist:\n  - x: 1\n    y/z: [2, 3]\n", file="f.yaml")

    assert document.data == {"id": "a", "list": [{"x": 1, "y/z": [2, 3]}]}
    assert document.keys["/list/0/y~1z"] == Place("f.yaml", 4, 5)
    assert document.values["/list/0/y~1z/1"] == Place("f.yaml", 4, 14)
    assert document.values["/id"] == Place("f.yaml", 1, 5)


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("no", "no"),
        ("on", "on"),
        ("Yes", "Yes"),
        ("true", True),
        ("FALSE", False),
        ("~", None),
        ("null", None),
        ("12:30", "12:30"),
        ("2024-01-01", "2024-01-01"),
        ("1_000", "1_000"),
        ("010", 10),
        ("0o17", 15),
        ("0x1F", 31),
        ("-7", -7),
        ("1.10", 1.1),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("'1'", "1"),
        ('!!int "3"', 3),
        ("!!str 3", "3"),
        ("!!null null", None),
        ("=", "="),
    ],
)
def test_scalars_are_read_by_yaml_1_2(text: str, data: object) -> None:
    assert parse(f"a: {text}").data == {"a": data}


def test_keys_are_text_whatever_they_look_like() -> None:
    assert parse("{200: a, yes: b, null: c, 1.5: d}").data == {
        "200": "a",
        "yes": "b",
        "null": "c",
        "1.5": "d",
    }


def test_what_stood_without_quotes_is_kept() -> None:
    document = parse("a: 1.10\nb: '1.10'\nc: no\nd:\n")

    assert document.bare == {"/a": "1.10", "/d": ""}


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n"])
def test_no_content_is_no_data(text: str) -> None:
    assert parse(text).data is None


def test_aliases_are_written_out() -> None:
    assert parse("a: &x [1, {b: 2}]\nc: *x").data == {"a": [1, {"b": 2}], "c": [1, {"b": 2}]}


def test_a_byte_order_mark_is_let_go() -> None:
    assert parse("\ufeffa: 1").data == {"a": 1}


def test_all_duplicate_keys_are_named_with_both_lines() -> None:
    first, second = refused("a: 1\nb: {c: 1,\n  c: 2}\na: 2\n")

    assert (first.line, first.column, first.field) == (3, 3, "/b/c")
    assert first.message == "is written twice, first in line 2"
    assert (second.line, second.column, second.field) == (4, 1, "/a")
    assert second.message == "is written twice, first in line 1"


@pytest.mark.parametrize(
    ("text", "line", "column", "message", "hint"),
    [
        ("a: [1", 1, 6, "expected ',' or ']'", "flow sequence"),
        ("a:\n\t- b", 2, 1, "cannot start any token", "indent with spaces"),
        ("a: b: c", 1, 5, "mapping values are not allowed", "needs quotes"),
        ("a: 'x", 1, 6, "unexpected end of stream", "quoted scalar"),
        ("a: 1\n---\nb: 2", 2, 1, "another document", "single document"),
        ("a: *x", 1, 4, "undefined alias 'x'", ""),
        ("a: 1\nb: x\x07", 2, 5, "character U+0007 is not allowed", ""),
        ("\x07", 1, 1, "character U+0007 is not allowed", ""),
        ("a: %", 1, 4, "cannot start any token", ""),
    ],
)
def test_wrong_yaml_has_line_and_column(text: str, line: int, column: int, message: str, hint: str) -> None:
    (problem,) = refused(text)

    assert (problem.file, problem.line, problem.column) == ("f.yaml", line, column)
    assert problem.message.startswith("not YAML: ")
    assert message in problem.message
    assert hint in (problem.hint or "")


@pytest.mark.parametrize(
    ("text", "field", "column", "message"),
    [
        ("a: .inf", "/a", 4, "must be a finite number"),
        ("a: -.INF", "/a", 4, "must be a finite number"),
        ("a: .nan", "/a", 4, "must be a finite number"),
        ("a: 1e999", "/a", 4, "must be a finite number"),
        ("a: " + "9" * 5000, "/a", 4, "this number has too many digits"),
        ("a: !!int foo", "/a", 4, "'foo' cannot be read as int"),
        ("a: !!set {x}", "/a", 4, "the tag !!set is not read here"),
        ("a: !!binary aGk=", "/a", 4, "the tag !!binary is not read here"),
        (
            "a: !!python/object/apply:os.system [x]",
            "/a",
            4,
            "the tag !!python/object/apply:os.system is not read here",
        ),
        ("a: !own x", "/a", 4, "the tag !own is not read here"),
        ("<<: {a: 1}", "/<<", 1, "merge keys (<<) are not read here"),
        ("? [a]\n: 1", "", 3, "a key must be text"),
        (r'a: "\ud800"', "/a", 4, "holds half of a character pair"),
        (r'"\ud800": 1', "/\ud800", 1, "holds half of a character pair"),
        (r'a: "\ude00\ud83d"', "/a", 4, "holds half of a character pair"),
    ],
)
def test_what_json_cannot_hold_is_refused(text: str, field: str, column: int, message: str) -> None:
    (problem,) = refused(text)

    assert (problem.file, problem.line, problem.column) == ("f.yaml", 1, column)
    assert (problem.field, problem.message) == (field, message)


def test_a_quoted_merge_key_is_a_key() -> None:
    assert parse("'<<': 1").data == {"<<": 1}


@pytest.mark.parametrize(
    "bomb",
    [
        "&a [*a]",
        "&a {x: *a}",
        "x0: &x0 [" + "1, " * 20 + "]\n"
        + "".join(f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 20)}]\n" for n in range(1, 9)),
        "a: &a '" + "x" * 100_000 + "'\nb: [" + "*a, " * 100 + "]",
    ],
)  # fmt: skip
def test_aliases_cannot_make_it_endless_or_huge(bomb: str) -> None:
    (problem,) = refused(bomb)

    assert problem.message == "is too large or endless once its aliases are written out"
    assert problem.line is not None


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_depth_is_bounded(opening: str) -> None:
    (problem,) = refused(opening * 5000)

    assert problem.message == "not YAML: nested too deep"
    assert problem.line == 1


def test_a_depth_that_people_reach_is_read() -> None:
    depth = MAX_DEPTH - 2
    assert parse("[" * depth + "]" * depth).data is not None


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**18), 10**18)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("abc/~", max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(JSON)
def test_json_is_yaml(data: Any) -> None:
    assert parse(json.dumps(data).replace("\x7f", "\\u007f")).data == data


@given(st.text(max_size=200) | st.text("ab:-[]{}&*!'\"\n #\t<?|>,1.", max_size=60))
def test_any_text_is_read_or_refused_with_its_line(text: str) -> None:
    try:
        document = parse(text, file="f.yaml")
    except BadInput as error:
        problems = error.problems
    else:
        problems = ()
        json.dumps(document.data, allow_nan=False)
    assert all(problem.file == "f.yaml" and problem.line for problem in problems)


@given(JSON)
def test_every_value_has_a_place(data: Any) -> None:
    document = parse(json.dumps(data).replace("\x7f", "\\u007f"))

    def places(value: Any) -> int:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return 1 + sum(places(each) for each in inner)

    assert len(document.values) == places(document.data)
