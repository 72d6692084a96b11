"""What the callers of races and fan-outs have to be told."""

from typing import Any

import pytest

from reach_worker.chaos.agents import capable
from reach_worker.chaos.kinds import Kind
from reach_worker.chaos.tasks import PlannedTask
from reach_worker.chaos.told import wrong_answer

A, B, C = capable(Kind.FANOUT)


def fanout(*good: str, failed: tuple[str, ...] = (), missing: tuple[str, ...] = (), **fields: Any) -> Any:
    answers = [{"agent": agent, "result": {"by": agent}} for agent in good]
    return {
        "status": "succeeded",
        "answers": answers,
        "failed": [{"agent": agent} for agent in failed],
        "missing": [{"agent": agent} for agent in missing],
        "result": {agent: {"by": agent} for agent in good},
        **fields,
    }


def wrong(kind: Kind, answer: Any) -> bool:
    return wrong_answer(PlannedTask("t", kind, 0.0, b"{}"), answer) is not None


@pytest.mark.parametrize(
    ("answer", "is_wrong"),
    [
        (fanout(A, B, C), False),
        (fanout(A, failed=(C,), missing=(B,)), False),
        (fanout(A, B), True),  # somebody was forgotten
        (fanout(A, B, C, missing=(C,)), True),  # or counted twice
        (fanout(A, B, failed=("chaos-6",)), True),  # or had no business there
        (fanout(A, B, C, result={A: {"by": A}}), True),
        ({"status": "dead_letter", "error": f"no agent succeeded: {A}: …; {B}: …; {C}: …"}, False),
        ({"status": "dead_letter", "error": f"no agent succeeded: {A}: …; {C}: …"}, True),
        ({"status": "cancelled"}, False),
    ],
)
def test_a_fanout_names_every_agent_that_could_have_had_it(answer: Any, *, is_wrong: bool) -> None:
    assert wrong(Kind.FANOUT, answer) is is_wrong


def test_of_the_first_two_the_result_is_theirs_and_says_whether_there_were_two() -> None:
    one, two, three = capable(Kind.FIRST)
    assert not wrong(Kind.FIRST, fanout(one, two, missing=(three,), complete=True))
    assert not wrong(Kind.FIRST, fanout(one, failed=(two, three), complete=False))
    assert wrong(Kind.FIRST, fanout(one, failed=(two, three), complete=True))


def test_a_vote_counts_every_answer() -> None:
    agents = capable(Kind.VOTE)
    won = {"result": {"odd": False}, "votes": 2}
    lost = {"result": {"odd": True}, "votes": 1}
    assert not wrong(Kind.VOTE, fanout(*agents, result=won["result"], votes=[won, lost]))
    assert wrong(Kind.VOTE, fanout(*agents, result=won["result"], votes=[won]))
    assert wrong(Kind.VOTE, fanout(*agents, result=lost["result"], votes=[won, lost]))


def test_who_won_a_race_is_who_gave_the_answer() -> None:
    assert not wrong(Kind.RACE, {"status": "succeeded", "agent": A, "result": {"by": A}})
    assert wrong(Kind.RACE, {"status": "succeeded", "agent": A, "result": {"by": B}})
