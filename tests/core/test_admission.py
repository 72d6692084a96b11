"""From a message to a task, or to a dead letter that can be answered, shown and replayed."""

import itertools
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_worker.core.admission import (
    Admitted,
    Refused,
    admit_internal,
    admit_public,
    ask_of,
    has_own_id,
)
from reach_worker.core.envelope import Envelope
from reach_worker.core.message import Delivery
from reach_worker.core.names import Names
from reach_worker.core.outcome import Attempt, DeadLetterReason, OutcomeClass
from reach_worker.core.tags import TagTable
from reach_worker.core.task import LONGEST_DEADLINE_MS
from tests.core.wire import ENVELOPE, JUNK_HEADERS

NAMES = Names("reach.v1")
NOW = 1_800_000_000_700_000
"""UTC microseconds, 0.7 s after a full second."""


def body(**fields: Any) -> bytes:
    return orjson.dumps({"capability": "log.query", **fields})


def message(raw: bytes | None = None, **properties: Any) -> Delivery:
    return Delivery("reach.v1.intake", body() if raw is None else raw, object(), **properties)


def public(delivery: Delivery, *, max_bytes: int = 10_000) -> Admitted | Refused:
    ids = (f"made-{count}" for count in itertools.count(1))
    return admit_public(delivery, now_us=NOW, new_id=lambda: next(ids), max_bytes=max_bytes, names=NAMES)


def internal(delivery: Delivery, *, max_bytes: int = 10_000) -> Admitted | Refused:
    return admit_internal(delivery, now_us=NOW, new_id=lambda: "made-1", max_bytes=max_bytes)


def admitted(delivery: Delivery) -> Admitted:
    read = public(delivery)
    assert isinstance(read, Admitted), read
    return read


def refused(read: Admitted | Refused) -> Refused:
    assert isinstance(read, Refused), read
    return read


def test_a_plain_message_is_a_task_of_nobody() -> None:
    read = admitted(message())

    assert read.envelope == Envelope("made-1", "made-1", "log.query", "anonymous", NOW)
    assert read.body == body()


def test_the_properties_are_used_for_what_they_are_for() -> None:
    read = admitted(
        message(
            message_id="m-1",
            correlation_id="c-1",
            reply_to="my.answers",
            user_id="alice",
            content_type="application/json",
            headers={"traceparent": "00-ab-cd-01", "x-reach-caller": "root", "x-reach-life": 7},
        )
    )

    assert read.envelope == Envelope(
        "m-1",
        "m-1",
        "log.query",
        "alice",
        NOW,
        reply_to="my.answers",
        correlation_id="c-1",
        content_type="application/json",
        passed_on=(("traceparent", "00-ab-cd-01"),),
    )


@pytest.mark.parametrize(
    ("message_id", "task_id", "expected"),
    [
        ("m", "t", "t"),
        ("m", None, "m"),
        (None, "t", "t"),
        (None, None, "made-1"),
        ("", None, "made-1"),
        (" ", None, "made-1"),
        ("a\nb", None, "made-1"),
        ("m" * 201, None, "made-1"),
    ],
)
def test_where_the_id_comes_from(message_id: str | None, task_id: str | None, expected: str) -> None:
    raw = body() if task_id is None else body(task_id=task_id)

    assert admitted(message(raw, message_id=message_id)).envelope.task_id == expected


def test_an_id_as_we_make_them_is_nobody_elses() -> None:
    for made in (message(message_id="t~0.1.a"), message(body(task_id="~c1"), message_id="m")):
        read = refused(public(made))
        assert (read.reason, read.envelope.task_id in {"made-1", "m"}) == (DeadLetterReason.INVALID, True)
        assert "no '~'" in read.error
    assert refused(public(message(b"{", message_id="t~0.1.a"))).envelope.task_id == "made-1"
    assert admitted(message(body(task_id="t"), message_id="m~1")).envelope.task_id == "t"


def test_the_flow_is_the_task_unless_it_says_otherwise() -> None:
    assert admitted(message(body(task_id="t"))).envelope.flow_id == "t"
    assert admitted(message(body(task_id="t", flow_id="f"))).envelope.flow_id == "f"


@pytest.mark.parametrize("spelling", ["log.query", " LOG.Query ", "\uff4cog.query"])
def test_a_capability_has_one_spelling(spelling: str) -> None:
    assert admitted(message(body(capability=spelling))).envelope.capability == "log.query"


def test_a_capability_stays_short_even_folded() -> None:
    folded = admitted(message(body(capability="\ufdfa" * 200))).envelope.capability

    assert len(folded) == 200


def test_an_intent_is_a_task_without_a_capability() -> None:
    assert admitted(message(orjson.dumps({"intent": "count errors"}))).envelope.capability == ""


@pytest.mark.parametrize(
    ("deadline_ms", "expiration_ms", "timestamp_s", "left_ms"),
    [
        (None, None, None, None),
        (None, None, 1_800_000_000.0, None),
        (5_000, None, None, 5_000),
        (None, 4_000, None, 4_000),
        (5_000, 4_000, None, 4_000),
        (3_000, 4_000, None, 3_000),
        # sent 10.7 s ago; the timestamp is cut to seconds, so a second is added
        (None, 30_000, 1_799_999_990.0, 20_300),
        (30_000, None, 1_799_999_990.0, 20_300),
        # sent within this very second: nothing is lost of a short deadline
        (500, None, 1_800_000_000.0, 500),
        # a clock that runs ahead gains nothing
        (5_000, None, 1_800_009_999.0, 5_000),
        # long ago, and before all time
        (1_000, None, 1_000.0, 1_001_000 + 1_000 - 1_800_000_000_700),
        (1_000, None, -5.0, 1_000 - 1_800_000_000_700),
        (None, 0, None, 0),
        (None, 10**18, None, LONGEST_DEADLINE_MS),
    ],
)
def test_when_a_task_is_worthless(
    deadline_ms: int | None, expiration_ms: int | None, timestamp_s: float | None, left_ms: int | None
) -> None:
    raw = body() if deadline_ms is None else body(deadline_ms=deadline_ms)

    envelope = admitted(message(raw, expiration_ms=expiration_ms, timestamp_s=timestamp_s)).envelope

    left_us = envelope.remaining_us(NOW)
    assert left_us == (None if left_ms is None else left_ms * 1000)


@pytest.mark.parametrize(
    ("delivery", "reason", "error"),
    [
        (message(b""), "undecodable", "the body is empty"),
        (message(b"{"), "undecodable", "not JSON"),
        (message(b"[]"), "invalid", "a task is a JSON object, this is an array"),
        (message(body(paylod={})), "invalid", "unknown field 'paylod', did you mean 'payload'?"),
        (message(b" " * 10_001), "too_large", "the body has 10001 bytes, the limit is 10000"),
        (message(content_encoding="gzip"), "undecodable", "content encoding 'gzip' is not read"),
        (message(body(side_effects=True)), "invalid", "a task with side effects brings its own id"),
        (message(body(side_effects=True), message_id="\x00"), "invalid", "a task with side effects brings its own id"),
        (message(fault="a timestamp is beyond the year 9999"), "undecodable", "the message properties cannot be decoded"),
        (message(reply_to="reach.v1.intake"), "invalid", "reply_to 'reach.v1.intake' is one of the router's own queues"),
    ],
)  # fmt: skip
def test_what_cannot_be_routed_is_told(delivery: Delivery, reason: str, error: str) -> None:
    read = refused(public(delivery))

    assert read.reason is DeadLetterReason(reason)
    assert read.error.startswith(error)
    assert read.body is delivery.body
    assert read.envelope.task_id == read.envelope.flow_id == "made-1"


def test_a_dead_letter_can_be_answered() -> None:
    read = refused(public(message(b"{", message_id="m-1", reply_to="my.answers", correlation_id="c-1")))

    assert (read.envelope.task_id, read.envelope.reply_to, read.envelope.correlation_id) == (
        "m-1",
        "my.answers",
        "c-1",
    )


@pytest.mark.parametrize("properties", [{"reply_to": "reach.v1.dlq"}, {"fault": "f", "reply_to": "x"}])
def test_an_answer_never_goes_where_it_must_not(properties: dict[str, Any]) -> None:
    assert refused(public(message(**properties))).envelope.reply_to is None


@pytest.mark.parametrize("named", [{"message_id": "m-1"}, {"raw": body(side_effects=True, task_id="t-1")}])
def test_a_task_with_side_effects_has_a_name(named: dict[str, Any]) -> None:
    delivery = message(**{"raw": body(side_effects=True), **named})
    read = admitted(delivery)

    assert read.envelope.side_effects
    assert has_own_id(read.task, delivery)


def test_a_task_that_was_given_its_id_has_none_of_its_own() -> None:
    assert not has_own_id(admitted(message()).task, message())


PROPERTY = st.none() | st.text(max_size=20)


@given(
    st.builds(
        Delivery,
        queue=st.just("q"),
        body=st.binary(max_size=40) | st.just(body()) | st.just(body(deadline_ms=1)),
        receipt=st.none(),
        headers=JUNK_HEADERS,
        message_id=PROPERTY,
        correlation_id=PROPERTY,
        reply_to=PROPERTY,
        user_id=PROPERTY,
        content_type=PROPERTY,
        content_encoding=PROPERTY,
        expiration_ms=st.none() | st.integers(0, 10**18),
        timestamp_s=st.none() | st.floats(-1e14, 1e14),
        fault=PROPERTY,
    )
)
def test_no_message_makes_it_raise(delivery: Delivery) -> None:
    for read in (public(delivery), internal(delivery)):
        assert read.envelope.task_id
        assert read.envelope.flow_id
        for value in read.envelope.headers().values():
            assert isinstance(value, str) or value < 2**63


@given(ENVELOPE)
def test_our_own_headers_are_believed(envelope: Envelope) -> None:
    read = internal(Delivery("reach.v1.returns", body(), None, headers=envelope.headers()))

    assert isinstance(read, Admitted)
    assert read.envelope == replace(envelope, capability="log.query")


def test_what_came_back_without_headers_is_none_of_ours() -> None:
    read = refused(internal(message(message_id="m-1", user_id="bob")))

    assert read.reason is DeadLetterReason.INVALID
    assert "did not come through the intake queue" in read.error
    assert (read.envelope.task_id, read.envelope.caller, read.envelope.first_seen) == ("m-1", "bob", NOW)
    assert refused(internal(message())).envelope.task_id == "made-1"


OURS = Envelope("t", "f", "old", "alice", 5)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"{", "undecodable"),
        (body(x=1), "invalid"),
        (body(mode="race", side_effects=True), "invalid"),
        (b" " * 10_001, "too_large"),
    ],
)
def test_a_body_that_was_mended_badly_is_refused_with_its_history(raw: bytes, reason: str) -> None:
    read = refused(internal(message(raw, headers=OURS.headers())))

    assert (read.envelope, read.reason) == (OURS, DeadLetterReason(reason))


def test_a_mended_body_counts_as_it_is_now() -> None:
    read = internal(message(body(side_effects=True, capability="New"), headers=OURS.headers()))

    assert read.envelope == replace(OURS, capability="new", side_effects=True)


def test_side_effects_that_the_capability_declares_stay() -> None:
    assert internal(message(headers=replace(OURS, side_effects=True).headers())).envelope.side_effects


def test_the_ask_is_in_normalised_spelling() -> None:
    tags = TagTable({"report": ["报表", "daily_report"]})
    read = admitted(
        message(
            body(
                payload={"a": 1}, requires=["报表", "Daily_Report", " VISION "], domain=" Ops ", max_cost=2.5
            ),
            message_id="m-1",
            user_id="Alice",
        )
    )

    ask = ask_of(read, tags)

    assert ask.requires == ("report", "vision")
    assert (ask.domain, ask.caller, ask.max_cost, ask.payload) == ("ops", "Alice", 2.5, {"a": 1})
    assert (ask.task_id, ask.capability, ask.to_agent) == ("m-1", "log.query", None)


def test_the_ask_knows_who_failed() -> None:
    attempts = (
        Attempt(1, "a", "d1", "e1", OutcomeClass.FAILED, "", 1, 2),
        Attempt(2, "b", "d2", "e2", OutcomeClass.REJECTED, "", 3, 4),
    )
    read = admitted(message())
    ask = ask_of(
        replace(read, envelope=replace(read.envelope, attempts=attempts, to_agent="c")), TagTable({})
    )

    assert ask.excluded == {"a": "failed at attempt 1", "b": "rejected at attempt 2"}
    assert ask.rejected_by == {"b"}
    assert ask.to_agent == "c"
    assert ask.domain is None
