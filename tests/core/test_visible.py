"""Nothing that somebody else wrote steers a terminal or forges a line of a log."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_worker.core.visible import indented, visible, visible_json

STEERING = [
    "\x1b[2J",
    "\x9b2J",
    "\x07",
    "\r",
    "\x08",
    "\x7f",
    "\u202e",
    "\u2066",
    "\u2028",
    "\x85",
    "\x00",
    "\ufeff",
]


@pytest.mark.parametrize("text", STEERING)
def test_what_steers_is_written_out(text: str) -> None:
    assert visible(f"a{text}b").isprintable()
    assert visible(f"a{text}b") != f"a{text}b"
    assert visible(f"a{text}b", lines=True).isprintable()


def test_plain_text_stays() -> None:
    assert visible("Grüße, 中文 🙈 … a\\x1b") == "Grüße, 中文 🙈 … a\\x1b"


def test_lines_stay_only_where_they_may() -> None:
    assert visible("a\nb") == "a\\nb"
    assert visible("a\nb\x1b", lines=True) == "a\nb\\x1b"
    assert indented("a\n2026-01-01 INFO forged") == "a\n    2026-01-01 INFO forged"


@given(st.text())
def test_json_says_the_same(text: str) -> None:
    shown = visible_json(json.dumps({text: text}, ensure_ascii=False))

    assert json.loads(shown) == {text: text}
    assert not any(
        character in shown for steering in STEERING for character in steering if character not in "[2J"
    )
