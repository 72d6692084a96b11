"""What travels with a task survives the way over the broker, and fits into it."""

from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_worker.core.envelope import (
    ANONYMOUS,
    ATTEMPTS,
    FIRST_SEEN,
    FLOW,
    HISTORY_BYTES,
    LARGEST_NUMBER,
    LONGEST_PASSED_ON,
    MOST_RELEASED,
    RELEASED,
    TASK,
    BadHeaders,
    Envelope,
    envelope_from,
    number,
    passed_on,
    text,
)
from reach_worker.core.outcome import Attempt, OutcomeClass
from tests.core.wire import ENVELOPE, JUNK, JUNK_HEADERS

PLAIN = Envelope("t1", "f1", "log.query", "alice", 1_000)
MOST_DISPATCHES = 40


def attempt(agent_id: str, outcome: OutcomeClass, number: int = 1, *, message: str = "") -> Attempt:
    return Attempt(number, agent_id, f"d{number}", f"e{number}", outcome, message, 1, 2)


def read(headers: dict[str, Any]) -> Envelope:
    envelope = envelope_from(headers)
    assert isinstance(envelope, Envelope), envelope
    return envelope


def test_what_is_not_set_is_left_out() -> None:
    assert PLAIN.headers() == {
        "x-reach-task": "t1",
        "x-reach-flow": "f1",
        "x-reach-capability": "log.query",
        "x-reach-caller": "alice",
        "x-reach-first-seen": 1_000,
    }


def test_what_the_reader_takes_for_granted_is_left_out() -> None:
    own_flow = Envelope("t1", "t1", "log.query", ANONYMOUS, 1_000)

    assert own_flow.headers().keys() == {TASK, "x-reach-capability", FIRST_SEEN}
    assert read(own_flow.headers()) == own_flow


def test_what_comes_from_an_agent_always_names_its_flow() -> None:
    """A call without one is refused: nobody could tell what it belongs to."""
    assert replace(PLAIN, flow_id="t1", from_agent="a").headers()[FLOW] == "t1"


@given(ENVELOPE)
def test_an_envelope_comes_back_as_it_was(envelope: Envelope) -> None:
    assert read(envelope.headers()) == envelope


@given(ENVELOPE)
def test_headers_hold_only_what_amqp_can_carry(envelope: Envelope) -> None:
    for name, value in envelope.headers().items():
        assert name.isascii()
        assert isinstance(value, str) or -(2**63) <= value < 2**63


@given(JUNK_HEADERS)
def test_no_headers_make_it_raise(headers: dict[str, Any]) -> None:
    assert isinstance(envelope_from(headers), Envelope | BadHeaders)


@given(JUNK_HEADERS)
def test_what_was_read_from_junk_can_be_sent_on(headers: dict[str, Any]) -> None:
    envelope = envelope_from({TASK: "t1", FIRST_SEEN: 1, **headers})

    if isinstance(envelope, Envelope):
        assert read(envelope.headers()) == envelope


@pytest.mark.parametrize("missing", [TASK, FIRST_SEEN])
def test_without_id_or_time_it_did_not_come_through_intake(missing: str) -> None:
    headers = {name: value for name, value in PLAIN.headers().items() if name != missing}

    problem = envelope_from(headers)

    assert isinstance(problem, BadHeaders)
    assert (
        problem.error
        == "x-reach-task or x-reach-first-seen is missing: this did not come through the intake queue"
    )


def test_little_is_needed() -> None:
    assert read({TASK: "t1", FIRST_SEEN: 0}) == Envelope("t1", "t1", "", ANONYMOUS, 0)
    assert read({TASK: "t1", FIRST_SEEN: 0, FLOW: ""}).flow_id == "t1"


@pytest.mark.parametrize(
    "raw", ["{}", "[1]", "[[]]", '"x"', "7", "null", "no json", '[{"attempt": 1}]', "[" * 2000]
)
def test_a_history_that_is_not_ours_is_told(raw: str) -> None:
    problem = envelope_from({**PLAIN.headers(), ATTEMPTS: raw})

    assert isinstance(problem, BadHeaders)
    assert problem.error.startswith("x-reach-attempts cannot be read: ")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0),
        (LARGEST_NUMBER, LARGEST_NUMBER),
        (LARGEST_NUMBER + 1, None),
        (-1, None),
        (True, None),
        ("7", None),
        (7.0, None),
        (None, None),
        ([7], None),
    ],
)
def test_a_number_is_a_whole_one_that_can_be_sent_on(value: object, expected: int | None) -> None:
    assert number({"n": value}, "n") == expected
    assert number({}, "n") is None


@given(JUNK)
def test_a_text_is_text(value: object) -> None:
    assert text({"t": value}, "t") == (value if isinstance(value, str) else None)


def test_attempts_count_from_one() -> None:
    once = PLAIN.with_attempt(attempt("a", OutcomeClass.FAILED))

    assert PLAIN.next_attempt == 1
    assert once.next_attempt == 2
    assert once.attempts == (attempt("a", OutcomeClass.FAILED),)


def test_retries_are_spent_by_what_speaks_against_somebody() -> None:
    kinds = [kind for kind in OutcomeClass if kind is not OutcomeClass.HANDOFF]
    envelope = replace(PLAIN, attempts=tuple(attempt("a", kind) for kind in kinds))

    assert envelope.retries_spent == 4  # timeout, unavailable, failed, rejected


def test_who_failed_steps_back_with_the_reason() -> None:
    envelope = replace(
        PLAIN,
        attempts=(
            attempt("a", OutcomeClass.FAILED, 1),
            attempt("b", OutcomeClass.RATE_LIMITED, 2),
            attempt("a", OutcomeClass.TIMEOUT, 3),
            attempt("c", OutcomeClass.REJECTED, 4),
        ),
    )

    assert envelope.excluded() == {"a": "timeout at attempt 3", "c": "rejected at attempt 4"}
    assert envelope.rejected_by() == {"c"}


def test_releases_are_kept_until_the_next_attempt() -> None:
    envelope = PLAIN.with_release("d1").with_release("d2")

    assert envelope.released == ("d1", "d2")
    assert envelope.headers()[RELEASED] == "d1 d2"
    assert envelope.next_attempt == 1
    assert envelope.with_attempt(attempt("a", OutcomeClass.FAILED)).released == ()


def test_of_many_releases_the_last_are_kept() -> None:
    envelope = PLAIN
    for count in range(20):
        envelope = envelope.with_release(f"d{count}")

    assert envelope.released == tuple(f"d{count}" for count in range(20 - MOST_RELEASED, 20))


def test_a_copy_knows_which_dispatches_have_ended() -> None:
    envelope = PLAIN.with_attempt(attempt("a", OutcomeClass.FAILED, 1)).with_release("d2")

    assert [envelope.knows_end_of(dispatch_id) for dispatch_id in ("d1", "d2", "d3")] == [True, True, False]


def test_the_time_that_is_left() -> None:
    assert PLAIN.remaining_us(5) is None
    assert replace(PLAIN, deadline=50).remaining_us(20) == 30
    assert replace(PLAIN, deadline=50).remaining_us(70) == -20


@pytest.mark.parametrize("character", ["x", "日", "\x01", "\udc80", '"', "🙂"])
def test_the_longest_history_fits_and_loses_no_attempt(character: str) -> None:
    many = tuple(
        Attempt(
            count, "a" * 200, "d" * 32, "e" * 32, OutcomeClass.RATE_LIMITED, character * 600, 2**51, 2**51
        )
        for count in range(1, MOST_DISPATCHES + 1)
    )
    history = replace(PLAIN, attempts=many).headers()[ATTEMPTS]

    assert isinstance(history, str)
    assert len(history.encode()) <= HISTORY_BYTES
    assert [one["attempt"] for one in orjson.loads(history)] == list(range(1, MOST_DISPATCHES + 1))


def test_even_a_history_that_is_too_long_loses_no_attempt() -> None:
    """A lost one would be tried again; the settings allow no such history."""
    many = tuple(attempt("a" * 200, OutcomeClass.RATE_LIMITED, number) for number in range(1, 100))

    assert len(read(replace(PLAIN, attempts=many).headers()).attempts) == 99


def test_a_short_history_keeps_its_messages() -> None:
    message = "it went wrong because " + "x" * 500
    headers = PLAIN.with_attempt(attempt("a", OutcomeClass.FAILED, message=message)).headers()

    assert read(headers).attempts[0].message == message


def test_only_the_trace_context_travels_on() -> None:
    headers = {"traceparent": "00-ab-cd-01", "tracestate": "a=1", "x-reach-task": "forged", "secret": "s"}

    assert passed_on(headers) == (("traceparent", "00-ab-cd-01"), ("tracestate", "a=1"))


@pytest.mark.parametrize("value", ["x" * (LONGEST_PASSED_ON + 1), "日", "a\nb", b"00", 7, None, ["a"]])
def test_a_trace_context_that_is_none_is_left_out(value: object) -> None:
    assert passed_on({"traceparent": value, "tracestate": "a=1"}) == (("tracestate", "a=1"),)


@given(st.dictionaries(st.sampled_from(["traceparent", "tracestate", "baggage"]), JUNK))
def test_passing_on_never_raises(headers: dict[str, Any]) -> None:
    assert all(value.isascii() for _, value in passed_on(headers))
