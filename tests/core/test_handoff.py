"""Handing a task on: what the next agent gets, where it may go, and where it ends."""

from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_worker.core.backoff import RetryPolicy
from reach_worker.core.envelope import Envelope
from reach_worker.core.fleet import Fleet
from reach_worker.core.handoff import (
    BadHandoff,
    Handoff,
    HandoffPolicy,
    HandOn,
    Stretch,
    hand_on,
    handoff_from,
    next_stretch,
    outcome_body,
    said,
    split,
)
from reach_worker.core.outcome import Attempt, DeadLetterReason, OutcomeClass
from reach_worker.core.recovery import Bury
from reach_worker.core.visits import Visit, been_at, visits_from, work_name, written
from tests.core.agents import fleet_of, manifest
from tests.core.wire import ENVELOPE, JUNK

LIMITS, RETRY = HandoffPolicy(), RetryPolicy()
BODY = orjson.dumps(
    {"capability": "text.one", "payload": {"n": 1}, "requires": ["x"], "metadata": {"order": "17"}}
)
TASK = Envelope("t1", "f1", "text.one", "alice", 0)


def fleet() -> Fleet:
    return fleet_of(
        [
            manifest("a", capability="text.one"),
            manifest("b", capability="text.two"),
            manifest("c", capability="text.one"),
            manifest("d", capabilities=[{"id": "text.two"}, {"id": "text.three", "side_effects": True}]),
        ]
    )


def stretch(
    handoff: Handoff, own: bytes = BODY, envelope: Envelope = TASK, agent_id: str = "a"
) -> Stretch | BadHandoff:
    return next_stretch(handoff, own, envelope, agent_id=agent_id, fleet=fleet(), max_bytes=10_000)


def good(handoff: Handoff, own: bytes = BODY, envelope: Envelope = TASK, agent_id: str = "a") -> Stretch:
    found = stretch(handoff, own, envelope, agent_id)
    assert isinstance(found, Stretch), found
    return found


def attempt(kind: OutcomeClass = OutcomeClass.HANDOFF, agent_id: str = "a", number: int = 1) -> Attempt:
    return Attempt(number, agent_id, f"d{number}", f"e{number}", kind, "", 5, 10)


# ---- on the wire


def test_a_handoff_names_somebody() -> None:
    with pytest.raises(ValueError, match="to_agent, or capability, or both"):
        Handoff(reason="not mine")


@given(st.binary(max_size=50))
def test_what_is_said_and_the_tasks_own_body_are_told_apart(own: bytes) -> None:
    handoff = Handoff(to_agent="b", capability="text.two", reason="why", context={"k": [1]}, payload={"n": 2})
    headers: dict[str, Any] = {}

    text, back = split(headers, own)
    assert (text, back) == (b"", own)

    body = outcome_body(headers, said(handoff), own)
    text, back = split(headers, body)
    assert back == own
    assert handoff_from(text) == handoff


@given(
    JUNK | st.dictionaries(st.sampled_from(["to_agent", "capability", "reason", "context", "payload"]), JUNK)
)
def test_whatever_an_agent_says_can_be_read_or_not(junk: Any) -> None:
    try:
        text = orjson.dumps(junk)
    except TypeError:
        text = repr(junk).encode("utf-8", "replace")
    assert isinstance(handoff_from(text), Handoff | BadHandoff)


def test_names_are_read_in_the_spelling_of_manifests() -> None:
    loud, quiet = Handoff(to_agent="B", capability="Text.TWO"), Handoff(to_agent="b", capability="text.two")

    assert handoff_from(said(loud)) == quiet


@given(st.lists(st.builds(Visit, st.text(), st.text()), max_size=4))
def test_visits_come_back_as_they_were(visits: list[Visit]) -> None:
    assert visits_from(written(visits)) == tuple(visits)


@pytest.mark.parametrize("raw", ["{", "{}", "[1]", '[["a"]]', '[["a", 1]]', '"a"'])
def test_visits_that_are_none_are_an_error(raw: str) -> None:
    with pytest.raises(ValueError, match=r"list of pairs|unexpected|EOF|end of data|column"):
        visits_from(raw)


def test_a_stretch_is_a_capability_and_a_payload_in_any_order_of_keys() -> None:
    name = work_name("text.one", {"a": 1, "b": 2})

    assert name == work_name("text.one", {"b": 2, "a": 1})
    assert name != work_name("text.two", {"a": 1, "b": 2})
    assert name != work_name("text.one", {"a": 1, "b": 3})
    assert been_at((Visit("a", name), Visit("b", "x")), name) == {"a"}


# ---- what the next agent gets


def test_the_next_stretch_is_the_task_with_what_is_new() -> None:
    found = good(Handoff(capability="text.two", reason="needs a two", context={"k": 1}, payload={"n": 2}))

    assert orjson.loads(found.body) == {
        "capability": "text.two",
        "payload": {"n": 2},
        "metadata": {"order": "17"},
        "handoff": {"from_agent": "a", "reason": "needs a two", "context": {"k": 1}, "origin": BODY.decode()},
    }
    assert found.holders == {"b", "d"}
    assert found.words == "to whoever has text.two: needs a two"
    assert found.visit == Visit("a", work_name("text.one", {"n": 1}))


def test_without_a_new_payload_it_stays_and_so_do_the_required_tags_of_the_same_capability() -> None:
    found = good(Handoff(to_agent="c"))

    assert (found.task.payload, found.task.requires) == ({"n": 1}, ["x"])
    assert (found.to_agent, found.capability, found.words) == ("c", "text.one", "to c for text.one")


def test_the_task_as_it_was_received_goes_through_all_stretches() -> None:
    first = good(Handoff(capability="text.two", payload={"n": 2}))
    second = good(
        Handoff(to_agent="c", capability="text.one"), first.body, replace(TASK, capability="text.two"), "b"
    )

    assert second.task.handoff is not None
    assert second.task.handoff.origin == BODY.decode()
    assert second.task.handoff.from_agent == "b"


@pytest.mark.parametrize(
    ("handoff", "why"),
    [
        (Handoff(to_agent="bb"), "it hands on to 'bb', and no such agent is known"),
        (
            Handoff(capability="text.tow"),
            "it hands on to 'text.tow', which no known agent has, did you mean 'text.two'?",
        ),
        (
            Handoff(to_agent="b", capability="text.one"),
            "which has not the capability 'text.one'; it has text.two",
        ),
        (
            Handoff(to_agent="d"),
            "has not 'text.one', so the handoff has to name a capability; it has text.two, text.three",
        ),
        (Handoff(to_agent="c", payload={"n": "x" * 20_000}), "is no task: the body has"),
    ],
)
def test_a_handoff_that_cannot_be_followed_says_why(handoff: Handoff, why: str) -> None:
    found = stretch(handoff)

    assert isinstance(found, BadHandoff)
    assert why in found.why


def test_an_agent_with_one_capability_needs_only_its_name() -> None:
    assert good(Handoff(to_agent="b")).capability == "text.two"


def test_what_is_nested_too_deep_is_the_handing_agents_failure() -> None:
    deep: Any = {}
    for _ in range(300):
        deep = {"n": deep}
    own = b'{"capability": "text.one", "payload": ' + b'{"n":' * 300 + b"1" + b"}" * 300 + b"}"

    found = stretch(Handoff(to_agent="c"), own)

    assert isinstance(found, BadHandoff)
    assert "cannot be written" in found.why


@pytest.mark.parametrize(("capability", "expected"), [("text.two", False), ("text.three", True)])
def test_side_effects_are_those_of_the_next_stretch(capability: str, expected: bool) -> None:
    found = good(Handoff(capability=capability))
    step = hand_on(replace(TASK, side_effects=True), attempt(), found, limits=LIMITS, retry=RETRY)

    assert isinstance(step, HandOn)
    assert step.envelope.side_effects is expected


def test_the_callers_word_on_side_effects_stays() -> None:
    own = orjson.dumps({"capability": "text.one", "side_effects": True})

    assert good(Handoff(capability="text.two"), own).side_effects


# ---- what follows


def test_the_next_stretch_goes_on_with_the_history_and_a_budget_of_its_own() -> None:
    failed = replace(TASK, attempts=(attempt(OutcomeClass.FAILED, "c", 1),), crashes=1, deadline=1_000)
    found = good(Handoff(to_agent="b"))
    step = hand_on(failed, attempt(number=2), found, limits=LIMITS, retry=RETRY)

    assert isinstance(step, HandOn)
    envelope = step.envelope
    assert [one.number for one in envelope.attempts] == [1, 2]
    assert (envelope.next_attempt, envelope.retries_spent, envelope.excluded()) == (3, 0, {})
    assert (envelope.capability, envelope.to_agent, envelope.from_agent) == ("text.two", "b", "a")
    assert (envelope.hops, envelope.chain("b"), envelope.crashes) == (1, ("a", "b"), 0)
    assert (envelope.deadline, envelope.flow_id, envelope.tip) == (1_000, "f1", "d2")


def test_whoever_had_this_very_work_ends_the_circle() -> None:
    there = hand_on(TASK, attempt(), good(Handoff(to_agent="b")), limits=LIMITS, retry=RETRY)
    assert isinstance(there, HandOn)
    back = good(Handoff(to_agent="a", capability="text.one"), there.stretch.body, there.envelope, "b")

    step = hand_on(there.envelope, attempt(number=2, agent_id="b"), back, limits=LIMITS, retry=RETRY)

    assert isinstance(step, Bury)
    assert step.reason is DeadLetterReason.HOP_LIMIT
    assert step.error == (
        "it comes back in a circle: a → b → a, which had text.one with this very payload before"
    )


def test_another_payload_is_other_work_and_another_agent_may_do_the_same() -> None:
    there = hand_on(TASK, attempt(), good(Handoff(to_agent="b")), limits=LIMITS, retry=RETRY)
    assert isinstance(there, HandOn)
    for handoff in (Handoff(to_agent="a", payload={"n": 2}), Handoff(capability="text.one")):
        back = good(handoff, there.stretch.body, there.envelope, "b")
        step = hand_on(there.envelope, attempt(number=2, agent_id="b"), back, limits=LIMITS, retry=RETRY)
        assert isinstance(step, HandOn), step


def test_the_hops_end() -> None:
    far = replace(TASK, hops=8, visited=tuple(Visit(name, name) for name in "xyxyxyxy"))
    step = hand_on(far, attempt(), good(Handoff(to_agent="b")), limits=LIMITS, retry=RETRY)

    assert isinstance(step, Bury)
    assert step.reason is DeadLetterReason.HOP_LIMIT
    assert step.error.endswith("(handoff.hops): x → y → x → y → x → y → x → y → a → b")


def test_so_do_its_dispatches_and_its_time() -> None:
    found = good(Handoff(to_agent="b"))
    many = replace(TASK, attempts=tuple(attempt(OutcomeClass.RATE_LIMITED, number=n) for n in range(1, 20)))
    late = replace(TASK, deadline=10)

    for envelope, reason in ((many, DeadLetterReason.ATTEMPTS_EXHAUSTED), (late, DeadLetterReason.EXPIRED)):
        step = hand_on(envelope, attempt(number=envelope.next_attempt), found, limits=LIMITS, retry=RETRY)
        assert isinstance(step, Bury)
        assert step.reason is reason


@given(ENVELOPE, st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=12))
def test_however_it_is_handed_on_it_ends_and_every_way_is_told(envelope: Envelope, ways: list[str]) -> None:
    """Nothing of what travels is lost by it, and the hops only grow."""
    envelope = replace(envelope, capability="text.one", attempts=(), hops=0, visited=(), deadline=None)
    own, holder = BODY, "a"
    for count, to in enumerate(ways):
        capability = "text.two" if to in "bd" else "text.one"
        found = good(Handoff(to_agent=to, capability=capability, payload={"m": count}), own, envelope, holder)
        step = hand_on(
            envelope, attempt(agent_id=holder, number=count + 1), found, limits=LIMITS, retry=RETRY
        )
        assert isinstance(step, HandOn) is (count < LIMITS.hops)
        assert [one.outcome for one in step.envelope.attempts] == [OutcomeClass.HANDOFF] * (count + 1)
        if isinstance(step, Bury):
            return
        assert (step.envelope.task_id, step.envelope.flow_id, step.envelope.caller, step.envelope.reply_to) == (
            envelope.task_id, envelope.flow_id, envelope.caller, envelope.reply_to
        )  # fmt: skip
        envelope, own, holder = step.envelope, step.stretch.body, to
        assert envelope.chain() == ("a", *ways[:count])


@pytest.mark.parametrize(
    "own",
    [
        b"",
        b"[1]",
        b"null",
        b'"x"',
        b"{}",
        b'{"capability": "text.one", "handoff": [1]}',
        b"\xff",
        b"[" * 2000,
    ],
)
def test_a_handoff_whose_own_task_is_odd_raises_nothing(own: bytes) -> None:
    assert isinstance(stretch(Handoff(to_agent="b"), own), Stretch | BadHandoff)
