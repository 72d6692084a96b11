"""Durations and times as people read and write them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_worker.cli.human_times import ago, local, seconds_in, took


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 ms"),
        (0.0005, "0.5 ms"),
        (0.35, "350 ms"),
        (0.9996, "1 s"),
        (2.4, "2.4 s"),
        (59.4, "59.4 s"),
        (59.97, "1 min"),
        (60, "1 min"),
        (185, "3 min 5 s"),
        (3599.9, "1 h"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
        (86_400 * 3 + 3600 * 4, "3 d 4 h"),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert took(seconds) == text


@given(st.floats(min_value=0, max_value=1e9))
def test_a_duration_is_never_said_in_too_small_a_unit(seconds: float) -> None:
    number, _unit, *_ = took(seconds).split()

    assert float(number) < 1000 or seconds >= 86_400


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30),
        ("10m", 600),
        ("2h", 7200),
        ("1d", 86_400),
        ("2w", 1_209_600),
        ("1h30m", 5400),
        ("1.5s", 1.5),
        ("300ms", 0.3),
    ],
)
def test_a_duration_is_read(text: str, seconds: float) -> None:
    assert seconds_in(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "10", "m", "10 m", "10x", "-5m", "1h-5m", "ten", "5m?"])
def test_what_is_no_duration_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(
        ValueError, match=re.escape(f"{text!r} is no duration; write 30s, 10m, 2h, 1d or 1h30m")
    ):
        seconds_in(text)


def test_a_time_is_local_and_names_its_zone() -> None:
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.123[+-]\d\d:\d\d", local(1_700_000_000_123_456))


def test_what_was_is_ago_and_never_in_the_future() -> None:
    assert ago(1_000_000, 181_000_000) == "3 min ago"
    assert ago(2_000_000, 1_000_000) == "0 ms ago"
