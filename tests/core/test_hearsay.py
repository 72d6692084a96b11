"""What routers tell one another comes back as it was, and no bytes do harm."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_worker.core.announcement import Unreadable
from reach_worker.core.hearsay import (
    AT_ONCE,
    LONGEST_S,
    Hearsay,
    News,
    ProbeSent,
    Settled,
    hearsay_bodies,
    hearsay_from,
    hearsay_key,
)
from reach_worker.core.outcome import OutcomeClass

NAME = st.text(min_size=1, max_size=40)
SECONDS = st.floats(0, LONGEST_S).map(lambda value: round(value, 6))
NEWS: st.SearchStrategy[News] = st.one_of(
    st.builds(ProbeSent, NAME, NAME),
    st.builds(
        Settled,
        NAME,
        NAME,
        st.text(max_size=40),
        st.sampled_from(OutcomeClass),
        SECONDS,
        st.none() | st.floats(0, 1e6),
        st.none() | st.integers(0, 10**6),
    ),
)
SETTLED: dict[str, Any] = {
    "settled": "d1",
    "agent": "a",
    "capability": "c",
    "outcome": "failed",
    "age_s": 1.5,
}


def read(*news: Any, router: Any = "r1") -> Hearsay | Unreadable:
    return hearsay_from(orjson.dumps({"router": router, "news": list(news)}))


@given(NAME, st.lists(NEWS, max_size=5))
def test_it_comes_back_as_it_was_and_in_order(router: str, news: list[News]) -> None:
    told = [hearsay_from(body) for body in hearsay_bodies(router, news)]

    assert told == ([Hearsay(router, tuple(news))] if news else [])


def test_many_news_go_in_messages_of_a_bounded_size() -> None:
    news = [ProbeSent(f"d{number}", "a") for number in range(AT_ONCE * 2 + 1)]
    told = [hearsay_from(body) for body in hearsay_bodies("r1", news)]
    read = [one for part in told if isinstance(part, Hearsay) for one in part.news]

    assert (len(told), read) == (3, news)


def test_its_key_is_the_routers() -> None:
    assert hearsay_key("r1") == "hearsay.r1"


@pytest.mark.parametrize(
    "junk",
    [
        {},
        [],
        7,
        None,
        {"probe": "", "agent": "a"},
        {"probe": "d", "agent": 7},
        {"probe": "d" * 256, "agent": "a"},
        {**SETTLED, "outcome": "exploded"},
        {**SETTLED, "outcome": ["failed"]},
        {**SETTLED, "outcome": None},
        {**SETTLED, "capability": None},
        {**SETTLED, "agent": ""},
    ],
)
def test_what_it_cannot_read_is_left_out(junk: Any) -> None:
    assert read(junk, {"probe": "d2", "agent": "a"}) == Hearsay("r1", (ProbeSent("d2", "a"),))


@pytest.mark.parametrize(
    ("field", "value", "taken"),
    [
        ("age_s", -5, 0.0),
        ("age_s", "1", 0.0),
        ("age_s", True, 0.0),
        ("age_s", None, 0.0),
        ("age_s", 1e300, LONGEST_S),
        ("duration_ms", None, None),
        ("duration_ms", "fast", None),
        ("duration_ms", -1, 0.0),
        ("duration_ms", 12, 12.0),
        ("retry_after_ms", 1500.7, 1500),
        ("retry_after_ms", 1e300, int(LONGEST_S * 1000)),
        ("retry_after_ms", False, None),
    ],
)
def test_times_stay_within_bounds(field: str, value: Any, taken: Any) -> None:
    told = read({**SETTLED, field: value})

    assert isinstance(told, Hearsay)
    assert getattr(told.news[0], field) == taken


@pytest.mark.parametrize("router", ["", None, 7, "r" * 256])
def test_a_router_has_a_name(router: Any) -> None:
    assert isinstance(read(router=router), Unreadable)


@given(st.binary(max_size=60))
def test_no_bytes_make_it_raise(body: bytes) -> None:
    assert isinstance(hearsay_from(body), Hearsay | Unreadable)
