"""Race and fan-out, the rules: who takes part, what a leg's end says, when it is over and with what."""

from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_worker.core.answer import cancelled, dead_letter, of_group, succeeded, unmatched
from reach_worker.core.envelope import Envelope
from reach_worker.core.gates import GateKind, Verdict
from reach_worker.core.group import (
    MOST_LEGS,
    Gathered,
    Leg,
    LegEnd,
    Open,
    Round,
    RoundFailed,
    Won,
    aggregate,
    cannot_work,
    fanout_agents,
    fanout_verdict,
    leg_end,
    leg_envelope,
    leg_id,
    nobody,
    race_agents,
    race_verdict,
    round_from,
    without_result,
)
from reach_worker.core.outcome import Attempt, DeadLetterReason, OutcomeClass
from reach_worker.core.routing import Candidate, Chosen, Decision, Wait
from reach_worker.core.scoring import Scored
from reach_worker.core.task import LONGEST_ID, Refusal, Task, task_from

A, B, C = Leg("t~0.1.a", "a"), Leg("t~0.1.b", "b"), Leg("t~0.1.c", "c")
ENVELOPE = Envelope("t", "f", "text.echo", "ann", 5, reply_to="mine", correlation_id="m")


def end(leg: Leg, kind: OutcomeClass = OutcomeClass.SUCCEEDED, result: Any = None) -> LegEnd:
    return LegEnd(leg.agent_id, kind, "" if kind is OutcomeClass.SUCCEEDED else "why", result)


def ends(*told: tuple[Leg, OutcomeClass]) -> dict[str, LegEnd]:
    return {leg.task_id: end(leg, kind) for leg, kind in told}


def closed(gate: str, kind: GateKind, reason: str = "so") -> Verdict:
    return Verdict(gate, kind, passed=False, reason=reason)


def scored(score: float) -> Scored:
    return Scored({}, (), (), (), 0.0, 0.0, score, score)


def decision(*candidates: Candidate) -> Decision:
    best = max((c for c in candidates if c.score is not None), key=lambda c: c.score or 0, default=None)
    choice = (
        Wait("nobody") if best is None else Chosen(best.agent_id, best.score or 0, None, 1.0, explored=False)
    )
    return Decision("t", "text.echo", "declared", choice, candidates)


# -- who takes part


def test_a_race_is_run_by_the_chosen_agent_and_the_best_other_that_is_free() -> None:
    candidates = [Candidate(name, (), scored(score)) for name, score in (("a", 0.2), ("b", 0.9), ("c", 0.5))]
    assert race_agents(decision(*candidates)) == ["b", "c"]


def test_a_race_of_one_and_of_none() -> None:
    busy = Candidate("b", (closed("slots", GateKind.NOT_NOW),))
    assert race_agents(decision(Candidate("a", (), scored(0.5)), busy)) == ["a"]
    assert race_agents(decision(busy)) == []


def test_a_fan_out_goes_to_all_that_may_and_can_and_names_those_that_cannot() -> None:
    agents, missing = fanout_agents(
        decision(
            Candidate("free", (), scored(0.5)),
            Candidate("busy", (closed("slots", GateKind.NOT_NOW),)),
            Candidate("dead", (closed("presence", GateKind.NOT_NOW, "dead, silent for 50 s"),)),
            Candidate("open", (closed("breaker", GateKind.NOT_NOW, "breaker open for 5 s more"),)),
            Candidate("other", (closed("schema", GateKind.MAY_NOT),)),
        )
    )
    assert agents == ["free", "busy"]
    assert missing == [("dead", "dead, silent for 50 s"), ("open", "breaker open for 5 s more")]


def test_a_fan_out_is_bounded() -> None:
    crowd = [Candidate(f"a{number:03}", (), scored(0.5)) for number in range(MOST_LEGS + 3)]
    agents, missing = fanout_agents(decision(*crowd))
    assert len(agents) == MOST_LEGS
    assert [name for name, _ in missing] == ["a100", "a101", "a102"]


@pytest.mark.parametrize(
    ("verdicts", "gone"),
    [
        ((closed("presence", GateKind.NOT_NOW),), True),
        ((closed("breaker", GateKind.NOT_NOW), closed("slots", GateKind.NOT_NOW)), True),
        ((closed("schema", GateKind.MAY_NOT),), True),
        ((closed("slots", GateKind.NOT_NOW),), False),
        ((), False),
    ],
)
def test_an_agent_that_is_only_busy_can_still_work(verdicts: tuple[Verdict, ...], gone: bool) -> None:
    other = Candidate("b", (closed("sent_to", GateKind.MAY_NOT),))
    assert cannot_work(decision(Candidate("a", verdicts), other), "a") is gone


def test_an_agent_nobody_knows_any_more_cannot_work() -> None:
    assert cannot_work(decision(), "a")


# -- what travels


@given(
    st.text(st.characters(codec="utf-8", categories=("L", "N", "P")), min_size=1, max_size=LONGEST_ID),
    st.text("abc-.", min_size=1, max_size=100),
    st.integers(0, 10**6),
)
def test_the_id_of_a_leg_is_one_and_tells_rounds_and_agents_apart(
    task_id: str, agent: str, life: int
) -> None:
    envelope = Envelope(task_id, "f", "c", "ann", 5, life=life)
    found = leg_id(envelope, agent)
    assert found == leg_id(envelope, agent)
    assert len(found) <= LONGEST_ID
    assert len(found.encode()) <= 255
    assert found not in (task_id, leg_id(envelope, agent + "x"))
    assert found != leg_id(Envelope(task_id, "f", "c", "ann", 5, life=life + 1), agent)


def test_a_leg_has_an_id_and_a_history_of_its_own_and_the_callers_address() -> None:
    tried = ENVELOPE.with_attempt(Attempt(1, "z", "d", "", OutcomeClass.FAILED, "", 1, 2))
    of = Round(2, "r1", 99, (A,))
    leg = leg_envelope(tried, A, of, race=True)
    assert (leg.task_id, leg.flow_id, leg.attempts, leg.deadline) == ("t~0.1.a", "f", (), 99)
    assert (leg.group, leg.group_owner, leg.group_round, leg.race, leg.to_agent) == ("t", "r1", 2, True, "a")
    assert (leg.reply_to, leg.correlation_id, leg.caller) == ("mine", "m", "ann")


def test_a_round_reads_back() -> None:
    of = Round(3, "r1", None, (A, B), (("c", "dead"),))
    assert round_from({"x-reach-round": of.header()}) == of


NO_NUMBER = '{"number": "x", "owner": "r", "until": 1, "legs": [["t", "a"]], "missing": []}'
NO_LEGS = '{"number": 1, "owner": "r", "until": 1, "legs": [], "missing": []}'
HUGE = '{"number": 1e300, "owner": "r", "until": 1, "legs": [["t", "a"]], "missing": []}'
FOR_EVER = '{"number": 1, "owner": "r", "until": 1e30, "legs": [["t", "a"]], "missing": []}'


@pytest.mark.parametrize("wrong", [None, "", "[]", "{}", "null", NO_NUMBER, NO_LEGS, HUGE, FOR_EVER, 7])
def test_what_is_no_round_is_none(wrong: Any) -> None:
    assert round_from({"x-reach-round": wrong}) is None


# -- how a leg ended


def test_ends_as_the_answers_of_legs_tell_them() -> None:
    envelope = leg_envelope(ENVELOPE, A, Round(1, "r1", None, (A,)), race=True)
    attempt = Attempt(1, "a", "d1", "x1", OutcomeClass.FAILED, "broken", 1, 2)
    failed = dead_letter(envelope.with_attempt(attempt), DeadLetterReason.ATTEMPTS_EXHAUSTED, "broken")
    good = succeeded(envelope, "a", 1, b'{"n": 1}')
    assert leg_end(good, A) == LegEnd("a", OutcomeClass.SUCCEEDED, "", {"n": 1}, size=len(good))
    assert leg_end(failed, A) == LegEnd("a", OutcomeClass.FAILED, "broken", attempt=attempt)
    expired = dead_letter(envelope, DeadLetterReason.EXPIRED, "too late")
    assert leg_end(expired, A) == LegEnd("a", OutcomeClass.RELEASED, "too late")
    assert leg_end(cancelled(envelope), A) == LegEnd("a", OutcomeClass.CANCELLED, "cancelled")
    assert leg_end(unmatched(envelope, "nobody"), A) is None


@pytest.mark.parametrize(
    "wrong", [b"", b"[]", b"{}", b'{"status": "odd"}', b'{"status": "dead_letter", "error": 3}']
)
def test_what_is_no_end_is_none(wrong: bytes) -> None:
    assert leg_end(wrong, A) is None


def test_attempts_that_cannot_be_read_are_none() -> None:
    body = orjson.dumps({"status": "dead_letter", "error": "x", "attempts": [{"odd": 1}]})
    assert leg_end(body, A) == LegEnd("a", OutcomeClass.RELEASED, "x")


# -- races

SPOKEN = [OutcomeClass.SUCCEEDED, OutcomeClass.FAILED, OutcomeClass.BAD_REQUEST]
SILENT = [kind for kind in OutcomeClass if kind not in SPOKEN]


@pytest.mark.parametrize("kind", [OutcomeClass.FAILED, OutcomeClass.BAD_REQUEST])
def test_an_error_that_is_the_first_word_is_the_races_own(kind: OutcomeClass) -> None:
    told = ends((B, kind), (A, OutcomeClass.SUCCEEDED))
    assert race_verdict((A, B), told, None) == RoundFailed(told[B.task_id])


@pytest.mark.parametrize("kind", SILENT)
def test_who_left_without_a_word_leaves_the_race_to_the_others(kind: OutcomeClass) -> None:
    assert race_verdict((A, B), ends((A, kind)), None) == Open()
    told = ends((A, kind), (B, OutcomeClass.SUCCEEDED))
    assert race_verdict((A, B), told, None) == Won(told[B.task_id])
    assert race_verdict((A, B), ends((A, kind), (B, kind)), None) == RoundFailed(end(B, kind))


@pytest.mark.parametrize("kind", [kind for kind in OutcomeClass if kind is not OutcomeClass.SUCCEEDED])
def test_who_spoke_first_has_won_even_if_it_fails_later_and_another_is_done(kind: OutcomeClass) -> None:
    done = ends((B, OutcomeClass.SUCCEEDED))
    assert race_verdict((A, B), done, A.task_id) == Open()
    assert race_verdict((A, B), done | ends((A, kind)), A.task_id) == RoundFailed(end(A, kind))


@given(st.permutations([A, B, C]), st.lists(st.sampled_from(list(OutcomeClass)), min_size=3, max_size=3))
def test_a_race_is_over_when_all_have_ended_and_never_by_someone_who_was_silent(
    order: list[Leg], kinds: list[OutcomeClass]
) -> None:
    told: dict[str, LegEnd] = {}
    verdict: object = Open()
    for leg, kind in zip(order, kinds, strict=True):
        told[leg.task_id] = end(leg, kind)
        verdict = race_verdict((A, B, C), told, None)
        if len(told) < 3 and kind in SILENT and all(one.outcome in SILENT for one in told.values()):
            assert verdict == Open()
        if isinstance(verdict, Won):
            first = next(one for one in told.values() if one.outcome in SPOKEN)
            assert verdict.end == first
    assert verdict != Open()


# -- fan-outs


def fanout(**fields: Any) -> Task:
    task = task_from({"capability": "c", "mode": "fanout", **fields})
    assert not isinstance(task, Refusal)
    return task


OF = Round(1, "r1", 100, (A, B, C), (("d", "dead"),))


def test_a_fan_out_waits_for_the_slowest() -> None:
    two = ends((A, OutcomeClass.SUCCEEDED), (B, OutcomeClass.FAILED))
    assert fanout_verdict(fanout(), OF, two, {}, now_us=50) == Open()
    all_of_them = two | ends((C, OutcomeClass.SUCCEEDED))
    assert fanout_verdict(fanout(), OF, all_of_them, {}, now_us=50) == Gathered(
        tuple(all_of_them.values()), (("d", "dead"),)
    )


def test_or_until_its_deadline_and_names_who_is_missing_and_why() -> None:
    one = ends((A, OutcomeClass.SUCCEEDED))
    found = fanout_verdict(fanout(), OF, one, {B.task_id: "no answer in time: busy"}, now_us=100)
    assert found == Gathered(
        tuple(one.values()), (("d", "dead"), ("b", "no answer in time: busy"), ("c", "no answer in time"))
    )


def test_the_first_ones_are_enough_if_no_more_are_wanted() -> None:
    task = fanout(aggregate="first_n", first_n=1)
    assert fanout_verdict(task, OF, ends((A, OutcomeClass.FAILED)), {}, now_us=1) == Open()
    found = fanout_verdict(
        task, OF, ends((A, OutcomeClass.FAILED), (B, OutcomeClass.SUCCEEDED)), {}, now_us=1
    )
    assert isinstance(found, Gathered)
    assert found.missing[-1] == ("c", "not needed any more")


def test_a_vote_is_over_when_nothing_can_change_it() -> None:
    task = fanout(aggregate="vote")
    same = {leg.task_id: end(leg, result={"x": 1, "y": [2]}) for leg in (A, B)}
    assert fanout_verdict(task, OF, {A.task_id: same[A.task_id]}, {}, now_us=1) == Open()
    assert isinstance(fanout_verdict(task, OF, same, {}, now_us=1), Gathered)
    differ = {A.task_id: end(A, result=1), B.task_id: end(B, result=2)}
    assert fanout_verdict(task, OF, differ, {}, now_us=1) == Open()


def gathered(*of: LegEnd) -> Gathered:
    return Gathered(of, (("d", "dead"),))


def test_all_answers_by_agent_with_who_failed_and_who_is_missing() -> None:
    found = aggregate(fanout(), gathered(end(A, result=1), end(B, OutcomeClass.FAILED), end(C, result=3)))
    assert found == {
        "mode": "fanout",
        "answers": [{"agent": "a", "result": 1}, {"agent": "c", "result": 3}],
        "failed": [{"agent": "b", "outcome": "failed", "error": "why"}],
        "missing": [{"agent": "d", "why": "dead"}],
        "result": {"a": 1, "c": 3},
    }


def test_a_result_that_is_too_large_even_alone_is_a_dead_letter_that_says_so() -> None:
    left_out = without_result(replace(end(A, result=1), size=9_000_000), A)
    assert fanout_verdict(fanout(aggregate="vote"), OF, {A.task_id: left_out}, {}, now_us=1) == Open()
    assert aggregate(fanout(), gathered(left_out)) is None
    reason, error = nobody(gathered(left_out))
    assert reason is DeadLetterReason.TOO_LARGE
    assert error == (
        "no result that could be told: a: succeeded: its result has 9000000 bytes, too many beside the others: "
        "`reach fetch t~0.1.a` gets it; d: dead"
    )


@pytest.mark.parametrize(
    ("wanted", "result", "complete"), [(1, {"b": 2}, True), (3, {"b": 2, "a": 1}, False)]
)
def test_the_first_answers_in_the_order_they_came(wanted: int, result: Any, complete: bool) -> None:
    found = aggregate(
        fanout(aggregate="first_n", first_n=wanted), gathered(end(B, result=2), end(A, result=1))
    )
    assert found is not None
    assert (found["result"], found["complete"]) == (result, complete)


def test_the_vote_goes_by_what_is_the_same_json() -> None:
    told = (end(A, result={"x": 1, "y": 2}), end(B, result=7), end(C, result={"y": 2, "x": 1}))
    found = aggregate(fanout(aggregate="vote"), gathered(*told))
    assert found is not None
    assert found["result"] == {"x": 1, "y": 2}
    assert [one["votes"] for one in found["votes"]] == [2, 1]


def test_a_tied_vote_goes_to_what_came_first() -> None:
    found = aggregate(fanout(aggregate="vote"), gathered(end(B, result=7), end(A, result=1)))
    assert found is not None
    assert found["result"] == 7


def test_nobody_succeeded_is_told_of_each() -> None:
    none = gathered(end(A, OutcomeClass.FAILED))
    assert aggregate(fanout(), none) is None
    assert nobody(none) == (
        DeadLetterReason.ATTEMPTS_EXHAUSTED,
        "no agent succeeded: a: failed: why; d: dead",
    )
    assert nobody(gathered())[0] is DeadLetterReason.EXPIRED


# -- what no group can tell


@pytest.mark.parametrize("way", ["race", "all", "first_n", "vote"])
@pytest.mark.parametrize("depth", [1, 200, 247, 250, 252, 254, 255, 1000, 5000])
def test_a_result_of_any_depth_has_an_answer(way: str, depth: int) -> None:
    """What is too deep to be written again is its agent's error, and stops nobody."""
    end = leg_end(succeeded(ENVELOPE, "a", 1, b"[" * depth + b"]" * depth), A)
    assert end is not None
    if not end.good:
        assert (depth > 240, "nested too deep" in end.message) == (True, True)
        return
    assert depth < 255 or isinstance(end.result, str)
    if way == "race":
        assert of_group(ENVELOPE, {"agent": "a", "mode": "race", "result": end.result})
        return
    wanted = {"first_n": 1} if way == "first_n" else {}
    task = task_from({"capability": "c", "mode": "fanout", "aggregate": way, **wanted})
    assert isinstance(task, Task)
    fields = aggregate(task, Gathered((end,), ()))
    assert fields is not None
    assert of_group(ENVELOPE, fields)
