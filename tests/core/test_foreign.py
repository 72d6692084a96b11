"""Foreign workers: what they would say if they said anything, and what their replies mean."""

from dataclasses import replace
from typing import Any

import pytest

from reach_worker.core.dispatch import (
    DISPATCH,
    LONGEST_REST_MS,
    MESSAGE,
    OUTCOME,
    RETRY_AFTER_MS,
    SPOKE_NOTE,
    STARTED_NOTE,
    Dispatch,
)
from reach_worker.core.envelope import Envelope
from reach_worker.core.foreign import (
    BY_CONSUMERS,
    WAITS_FOR,
    answers,
    beat_of,
    is_foreign,
    is_lease,
    is_reply,
    time_is_up,
    told_by,
)
from reach_worker.core.message import Delivery
from reach_worker.core.outcome import TEXT_LIMIT, OutcomeClass
from reach_worker.core.recovery import TimeoutPolicy
from tests.core.agents import manifest

S = 1_000_000
DISPATCHED = Dispatch(
    Envelope("t1", "t1", "log.query", "anonymous", 0), "d1", "c1", "old", "r1", 100 * S, 160 * S, 8_000
)


def reply(body: bytes = b"17", correlation_id: str | None = "d1", **headers: Any) -> Delivery:
    named = {f"x-reach-{name.replace('_', '-')}": value for name, value in headers.items()}
    return Delivery("outcomes", body, None, named, correlation_id=correlation_id)


def test_its_consumers_are_one_instance_with_the_slots_that_are_declared() -> None:
    declared = manifest("old", presence="consumers", max_concurrency=3)
    beat = beat_of(declared)
    assert (beat.instance_id, beat.capacity, beat.mailbox, beat.completed) == (BY_CONSUMERS, 3, "", None)
    assert beat.manifest_hash == declared.hash
    assert (is_foreign(declared), is_foreign(manifest("ours"))) == (True, False)


@pytest.mark.parametrize(
    ("delivery", "replies"),
    [
        (reply(), True),
        (reply(outcome="failed"), True),
        (reply(dispatch="d1", agent="old"), True),
        (reply(correlation_id=None), False),
        (reply(instance=""), False),
        (reply(outcome=STARTED_NOTE), False),
        (reply(outcome=SPOKE_NOTE), False),
        (reply(lease=BY_CONSUMERS), False),
    ],
)
def test_a_reply_is_what_none_of_ours_wrote(delivery: Delivery, *, replies: bool) -> None:
    assert is_reply(delivery) is replies


def test_a_lease_is_one_of_a_router_and_no_outcome() -> None:
    assert is_lease(reply(lease=BY_CONSUMERS))
    assert not is_lease(reply(lease="host-1"))
    assert not is_lease(reply(lease=BY_CONSUMERS, outcome="timeout"))


def test_a_reply_that_waits_names_its_dispatch_in_a_header() -> None:
    waiting = Delivery("returns", b"", None, {DISPATCH: "d1", WAITS_FOR: "outcomes"})
    assert (answers(waiting), is_reply(waiting), answers(reply(dispatch="d2"))) == ("d1", True, "d1")


@pytest.mark.parametrize("kind", [kind for kind in OutcomeClass if kind is not OutcomeClass.HANDOFF])
def test_each_outcome_class_can_be_said(kind: OutcomeClass) -> None:
    told = told_by(reply(outcome=kind.value, message="why"), DISPATCHED, 5.0)
    succeeded = kind is OutcomeClass.SUCCEEDED
    assert (told.outcome, told.message) == (kind, "" if succeeded else "why")
    assert told.duration_ms == (5.0 if succeeded else None)
    unrun = {OutcomeClass.RELEASED, OutcomeClass.REJECTED, OutcomeClass.RATE_LIMITED}
    assert told.started is (kind not in unrun)
    assert (told.dispatch_id, told.task_id, told.agent_id) == ("d1", "t1", "old")


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({OUTCOME: "handoff"}, "a worker that only replies cannot hand a task on: 17"),
        ({OUTCOME: "oops"}, "x-reach-outcome says 'oops', which is no outcome class: 17"),
        ({OUTCOME: "failed", MESSAGE: "said"}, "said"),
        ({OUTCOME: "failed"}, "17"),
    ],
)
def test_whatever_it_says_is_an_end_with_a_reason(headers: dict[str, Any], message: str) -> None:
    told = told_by(replace(reply(), headers=headers), DISPATCHED, None)
    assert (told.outcome, told.message) == (OutcomeClass.FAILED, message)


def test_long_reasons_are_cut_and_long_rests_are_short() -> None:
    told = told_by(reply(b"\xff" * 10_000, outcome="failed"), DISPATCHED, None)
    assert len(told.message) <= TEXT_LIMIT
    rests = told_by(
        replace(reply(), headers={OUTCOME: "rate_limited", RETRY_AFTER_MS: 10**12}), DISPATCHED, None
    )
    assert rests.retry_after_ms == LONGEST_REST_MS
    assert told.retry_after_ms is None


def test_its_time_is_up_after_pick_up_limit_and_twice_the_backstop() -> None:
    policy = TimeoutPolicy(pickup_s=60, backstop_s=10)
    assert [time_is_up(DISPATCHED, at * S, policy) for at in (100, 187, 188)] == [False, False, True]
