"""What is written is read back as the same data."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_worker.core.yaml_text import parse
from reach_worker.core.yaml_writing import write_yaml

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
SCALAR = (
    st.none()
    | st.booleans()
    | st.integers(-(10**18), 10**18)
    | st.floats(allow_nan=False, allow_infinity=False)
)
DATA = st.recursive(
    SCALAR | TEXT, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4)
)


@given(DATA)
def test_round_trip(data: object) -> None:
    assert parse(write_yaml({"data": data})).data == {"data": data}


@pytest.mark.parametrize(
    "text",
    ["1e3", "0o17", "0x1F", "017", "1_000", "12:30", "no", "on", "~", "", "null", "True", "<<", "=", ".inf", "+.5",
     "2026-11-30", "- a", "a: b", "# a", " a ", "a\nb\n", "\ttab", "é 报表", "\x07", "\ufeff", "\x85", "a\r\nb\u2028",
     "x" * 300],
)  # fmt: skip
def test_text_stays_text_as_a_value_and_as_a_key(text: str) -> None:
    assert parse(write_yaml({text: [text]})).data == {text: [text]}


def test_it_is_pleasant_to_read() -> None:
    same = {"type": "integer"}
    assert write_yaml({"b": 1, "a": [{"x": same, "y": same}], "none": []}) == (
        "b: 1\na:\n  - x:\n      type: integer\n    y:\n      type: integer\nnone: []\n"
    )
