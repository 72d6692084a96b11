"""Templates: values stay where they were put, whatever they hold."""

from urllib.parse import parse_qsl, unquote, urlsplit

from hypothesis import given
from hypothesis import strategies as st

from reach_worker.adapters.http import address
from reach_worker.adapters.templates import Place, Values, Variable, filled_json, template
from reach_worker.agent.outcomes import BadRequest

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT, lambda inner: st.lists(inner, max_size=3)
)


def test_the_parts_of_a_text() -> None:
    assert template("a{{b}} {c.d?}${E}{@task_id}").parts == (
        "a",
        "{",
        "b",
        "}",
        " ",
        Place(("c", "d"), optional=True),
        Variable("E"),
        Place(("task_id",), fact=True),
    )


@given(TEXT)
def test_a_text_with_its_braces_doubled_is_itself(text: str) -> None:
    doubled = text.replace("{", "{{").replace("}", "}}")
    assert template(doubled).filled(Values({}, {})) == text


@given(TEXT)
def test_a_value_is_never_read_as_a_template(value: str) -> None:
    text = template("<{x}|${V}>").within({"V": value})
    assert text.filled(Values({"x": value, "task_id": 1}, {})) == f"<{value}|{value}>"


@given(TEXT, TEXT, TEXT)
def test_a_value_stays_in_its_place_of_an_address(one: str, two: str, three: str) -> None:
    values = Values({"one": one, "two": two, "three": three}, {})
    try:
        found = address(template("http://h:1/a/{one}/b{two}?f=1"), {"q": template("{three}")}, values)
    except BadRequest:
        assert {one, two} & {"", ".", ".."}
        return
    parts = urlsplit(found)
    assert (parts.scheme, parts.netloc, parts.fragment) == ("http", "h:1", "")
    assert [unquote(part) for part in parts.path.split("/")] == ["", "a", one, f"b{two}"]
    assert parse_qsl(parts.query, keep_blank_values=True) == [("f", "1"), ("q", three)]


@given(JSON)
def test_a_text_that_is_one_place_becomes_the_value_itself(value: object) -> None:
    filled = filled_json({"a": ["{x?}"], "b": "{x?}"}, Values({"x": value}, {}), {})
    assert filled == ({"a": []} if value is None else {"a": [value], "b": value})
