"""Dispatches and outcomes survive the way over the broker."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from reach_worker.core.dispatch import (
    AGENT,
    DISPATCH,
    DISPATCHED_AT,
    LONGEST_REST_MS,
    MESSAGE,
    OUTCOME,
    OWNER,
    RETRY_AFTER_MS,
    STARTED,
    STARTED_NOTE,
    TIMEOUT_MS,
    Dispatch,
    dispatch_from,
    outcome_from,
    outcome_headers,
    unchanged,
)
from reach_worker.core.envelope import ATTEMPTS, CRASHES, FIRST_SEEN, TASK, BadHeaders, Envelope
from reach_worker.core.outcome import TEXT_LIMIT, Outcome, OutcomeClass
from tests.core import wire
from tests.core.wire import JUNK_HEADERS

SENT = Dispatch(
    envelope=Envelope("t1", "f1", "log.query", "alice", 1_000),
    dispatch_id="d1",
    decision_id="e1",
    agent_id="a",
    owner="router-1",
    dispatched_at=2_000,
    start_by=3_000,
    timeout_ms=8_000,
)
DONE = Outcome("d1", "t1", "a", "a-1", OutcomeClass.SUCCEEDED)


@given(wire.DISPATCH)
def test_a_dispatch_comes_back_as_it_was(dispatch: Dispatch) -> None:
    assert dispatch_from(dispatch.headers()) == dispatch


@given(wire.DISPATCH, wire.OUTCOME)
def test_an_outcome_brings_its_dispatch_back(dispatch: Dispatch, outcome: Outcome) -> None:
    outcome = replace(
        outcome,
        dispatch_id=dispatch.dispatch_id,
        task_id=dispatch.envelope.task_id,
        agent_id=dispatch.agent_id,
    )
    headers = outcome_headers(dispatch.headers(), outcome)

    assert dispatch_from(headers) == dispatch
    assert outcome_from(headers, dispatch) == outcome
    assert unchanged(headers, dispatch.headers())


@given(wire.DISPATCH, wire.DISPATCH)
def test_only_headers_that_tell_of_the_very_same_dispatch_are_unchanged(
    sent: Dispatch, told: Dispatch
) -> None:
    assert unchanged(outcome_headers(told.headers(), DONE), sent.headers()) == (told == sent)


@pytest.mark.parametrize(
    "said",
    [{AGENT: "b"}, {CRASHES: 1}, {ATTEMPTS: "[]"}, {"x-reach-newer": "1"}, {"traceparent": "00-1"}],
)
def test_headers_that_were_changed_or_added_are_not_unchanged(said: dict[str, Any]) -> None:
    headers = outcome_headers(SENT.headers(), DONE)

    assert unchanged(headers, SENT.headers())
    assert not unchanged({**headers, **said}, SENT.headers())
    for name in SENT.headers():
        assert not unchanged({n: word for n, word in headers.items() if n != name}, SENT.headers())


@given(JUNK_HEADERS)
def test_no_headers_make_reading_raise(headers: dict[str, Any]) -> None:
    assert isinstance(dispatch_from(headers), Dispatch | BadHeaders)
    assert isinstance(outcome_from(headers, SENT), Outcome | BadHeaders)


@given(JUNK_HEADERS)
def test_no_headers_make_answering_raise(headers: dict[str, Any]) -> None:
    told = outcome_headers(headers, DONE)

    assert told[OUTCOME] == "succeeded"
    assert all(name.startswith("x-reach-") or name == "traceparent" for name in told)


@pytest.mark.parametrize(
    ("missing", "error"),
    [
        (
            DISPATCH,
            "x-reach-dispatch, x-reach-agent or x-reach-owner is missing: this is no dispatch of a router",
        ),
        (
            AGENT,
            "x-reach-dispatch, x-reach-agent or x-reach-owner is missing: this is no dispatch of a router",
        ),
        (
            OWNER,
            "x-reach-dispatch, x-reach-agent or x-reach-owner is missing: this is no dispatch of a router",
        ),
        (TIMEOUT_MS, "x-reach-timeout-ms is missing: nobody could run this in no time"),
        (TASK, "x-reach-task or x-reach-first-seen is missing: this did not come through the intake queue"),
        (
            FIRST_SEEN,
            "x-reach-task or x-reach-first-seen is missing: this did not come through the intake queue",
        ),
    ],
)
def test_what_no_router_sent_is_told(missing: str, error: str) -> None:
    headers = {name: value for name, value in SENT.headers().items() if name != missing}

    assert dispatch_from(headers) == BadHeaders(error)


def test_what_is_less_important_has_a_stand_in() -> None:
    headers = {name: value for name, value in SENT.headers().items() if name != DISPATCHED_AT}

    assert dispatch_from(headers) == replace(SENT, dispatched_at=SENT.envelope.first_seen)


@pytest.mark.parametrize("said", [None, "exploded", STARTED_NOTE, 7, b"failed", ["failed"]])
def test_an_ending_that_is_none_is_told(said: object) -> None:
    problem = outcome_from({OUTCOME: said}, SENT)

    assert isinstance(problem, BadHeaders)
    assert problem.error.endswith("which is no outcome class")


def test_a_long_error_text_is_cut() -> None:
    told = outcome_headers(SENT.headers(), replace(DONE, outcome=OutcomeClass.FAILED, message="x" * 5000))

    assert len(told[MESSAGE]) == TEXT_LIMIT
    assert told[MESSAGE].endswith("… (cut, 5000 characters)")


def test_an_error_text_that_cannot_be_encoded_is_written_out() -> None:
    told = outcome_headers(SENT.headers(), replace(DONE, message="no file \udce4"))

    assert told[MESSAGE] == "no file \\udce4"


def test_what_an_earlier_outcome_said_does_not_stay() -> None:
    first = outcome_headers(
        SENT.headers(), replace(DONE, outcome=OutcomeClass.FAILED, message="m", started=True)
    )

    again = outcome_headers(first, replace(DONE, outcome=OutcomeClass.RELEASED))

    assert again[OUTCOME] == "released"
    assert MESSAGE not in again
    assert STARTED not in again


def test_only_our_headers_and_the_trace_come_back() -> None:
    headers: dict[str, Any] = {**SENT.headers(), "x-death": [{}], "secret": "s", "traceparent": "00-ab-cd-01"}

    told = outcome_headers(headers, DONE)

    assert set(told) - set(SENT.headers()) == {OUTCOME, "x-reach-instance", "traceparent"}


@pytest.mark.parametrize(
    ("asked", "granted"),
    [(None, None), (0, 0), (1500, 1500), (10**15, LONGEST_REST_MS), (-5, None), ("5", None)],
)
def test_nobody_rests_for_years(asked: object, granted: int | None) -> None:
    outcome = outcome_from({OUTCOME: "rate_limited", RETRY_AFTER_MS: asked}, SENT)

    assert isinstance(outcome, Outcome)
    assert outcome.retry_after_ms == granted
