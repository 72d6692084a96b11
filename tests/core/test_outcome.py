"""The table of the outcome classes, and texts that can be sent."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_worker.core.outcome import (
    RULES,
    TEXT_LIMIT,
    Again,
    Attempt,
    BreakerEffect,
    DeadLetterReason,
    OutcomeClass,
    Success,
    cut,
)

ATTEMPT = Attempt(1, "a", "d1", "e1", OutcomeClass.FAILED, "boom", 10, 20)

ROWS = {
    # class: again, success, breaker, spends a retry, another agent first, may have run
    "succeeded": ("done", "+", "clears", False, False, False),
    "rate_limited": ("at_once", "nothing", "rests", False, False, False),
    "timeout": ("later", "-", "failure", True, True, True),
    "unavailable": ("later", "-", "failure", True, True, True),
    "failed": ("later", "-", "failure", True, True, True),
    "bad_request": ("never", "nothing", "nothing", False, False, False),
    "rejected": ("at_once", "rejection", "nothing", True, True, False),
    "cancelled": ("never", "nothing", "nothing", False, False, False),
    "handoff": ("handed_on", "+", "clears", False, False, False),
    "released": ("at_once", "nothing", "nothing", False, False, False),
}


@pytest.mark.parametrize("name", ROWS)
def test_what_each_class_means(name: str) -> None:
    rule = RULES[OutcomeClass(name)]

    assert (
        rule.again,
        rule.success,
        rule.breaker,
        rule.spends_retry,
        rule.excludes,
        rule.may_have_run,
    ) == ROWS[name]


def test_every_class_has_a_row() -> None:
    assert set(RULES) == set(OutcomeClass)
    assert set(ROWS) == {kind.value for kind in OutcomeClass}


@pytest.mark.parametrize("kind", OutcomeClass)
def test_what_counts_against_an_agent_is_what_moves_its_breaker(kind: OutcomeClass) -> None:
    rule = RULES[kind]

    assert (rule.success is Success.COUNTS_AGAINST) is (rule.breaker is BreakerEffect.FAILURE)
    assert (rule.again is Again.LATER) is (rule.breaker is BreakerEffect.FAILURE)


def test_the_reasons_of_dead_letters_are_a_closed_list() -> None:
    assert {reason.value for reason in DeadLetterReason} == {
        "undecodable",
        "invalid",
        "too_large",
        "payload_refused",
        "bad_request",
        "attempts_exhausted",
        "poison",
        "outcome_unknown",
        "expired",
        "hop_limit",
        "broker_refused",
    }


def test_an_attempt_reads_as_people_write() -> None:
    assert ATTEMPT.as_dict() == {
        "attempt": 1,
        "agent": "a",
        "dispatch": "d1",
        "decision": "e1",
        "outcome": "failed",
        "message": "boom",
        "dispatched_at": 10,
        "ended_at": 20,
    }
    assert Attempt.from_dict(ATTEMPT.as_dict()) == ATTEMPT


@pytest.mark.parametrize(
    "change",
    [
        {"attempt": "1"},
        {"attempt": None},
        {"agent": 5},
        {"outcome": "exploded"},
        {"outcome": None},
        {"message": b"x"},
        {"ended_at": 1.5},
    ],
)
def test_an_attempt_of_another_shape_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        Attempt.from_dict({**ATTEMPT.as_dict(), **change})


@given(
    st.recursive(
        st.none() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_what_is_no_attempt_is_refused(data: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        Attempt.from_dict(data)


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ("short", 600, "short"),
        ("a" * 600, 600, "a" * 600),
        ("a" * 40, 30, "aaaaaaa … (cut, 40 characters)"),
        ("a" * 40, 5, "aaaaa"),
        ("a" * 40, 0, ""),
        ("日本" * 20, 30, "日本日本日本日 … (cut, 40 characters)"),
        ("a\udc80b", 600, "a\\udc80b"),
    ],
)
def test_a_long_text_is_cut_and_says_so(text: str, limit: int, expected: str) -> None:
    assert cut(text, limit) == expected


@given(st.text(st.characters(exclude_categories=[])), st.integers(0, 700))
def test_a_text_that_was_cut_fits_and_can_be_sent(text: str, limit: int) -> None:
    shown = cut(text, limit)

    assert len(shown) <= limit
    assert orjson.loads(orjson.dumps(shown)) == shown == shown.encode().decode()
    assert cut(shown, limit) == shown


def test_a_cut_error_text_says_how_long_it_was() -> None:
    assert cut("x" * 10_000).endswith("… (cut, 10000 characters)")
    assert len(cut("x" * 10_000)) == TEXT_LIMIT
