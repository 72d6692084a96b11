"""Ids have one spelling and are safe in the names of queues and files."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_worker.core.identifier import MAX_BYTES, MAX_CHARACTERS, identifier


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("log.query", "log.query"),
        (" Log.Query ", "log.query"),
        ("日志.查询", "日志.查询"),
        ("हिन्दी", "हिन्दी"),
        ("a_b-c.9", "a_b-c.9"),
        ("\uff21\uff22", "ab"),
        ("9lives", "9lives"),
    ],
)
def test_an_id_is_folded(text: str, expected: str) -> None:
    assert identifier(text) == unicodedata.normalize("NFKC", expected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must not be empty"),
        ("   ", "must not be empty"),
        ("../etc", "begins with a letter or a digit, not with '.'"),
        ("-x", "begins with a letter or a digit, not with '-'"),
        ("a/b", "letters, digits and . _ - only, not '/'"),
        ("a b", "letters, digits and . _ - only, not ' '"),
        ("a#", "not '#'"),
        ("a\x00", "not '\\x00'"),
        ("a\ud800", "not '\\ud800'"),
        ("a" * (MAX_CHARACTERS + 1), "at most 100 characters and 200 bytes"),
        ("日" * 67, "at most 100 characters and 200 bytes"),
    ],
)
def test_what_is_no_id_is_refused_with_why(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=r"an id") as caught:
        identifier(text)
    assert message in str(caught.value)


@given(st.text(max_size=120))
def test_an_id_that_is_accepted_fits_and_stays(text: str) -> None:
    try:
        name = identifier(text)
    except ValueError:
        return
    assert identifier(name) == name
    assert 0 < len(name) <= MAX_CHARACTERS
    assert len(name.encode()) <= MAX_BYTES
    assert not set(name) & set("/\\ *#\0")
