"""A task's history on the screen: what is unusual about it is labelled."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from reach_worker.cli.history_tree import history_tree
from reach_worker.cli.output import Node
from reach_worker.cli.why_not import why_not
from reach_worker.core.duplicates import TaskState
from reach_worker.core.outcome import DeadLetterReason, OutcomeClass
from reach_worker.ports import AnswerLost, Decided, Dispatched, Ended, Joined, OutcomeSeen, Standing, Started
from reach_worker.store.records import StoredTask, TaskHistory

T0 = 1_700_000_000_000_000
SECOND = 1_000_000
LIFE = StoredTask(
    "t",
    0,
    True,
    "flow-1",
    "text.echo",
    "anna",
    "r1",
    T0,
    TaskState.SUCCEEDED,
    "d1",
    1,
    None,
    T0,
    None,
    None,
    None,
    None,
)
DISPATCH = Dispatched("d1", "t", 0, 1, "quick", "text.echo", "e1", "r1", T0 + SECOND)
OUTCOME = OutcomeSeen(
    "d1",
    "t",
    0,
    1,
    "quick",
    "text.echo",
    "i1",
    OutcomeClass.SUCCEEDED,
    "",
    T0 + 3 * SECOND,
    1500.0,
    Standing.CURRENT,
)
END = Ended("t", 0, TaskState.SUCCEEDED, None, "", T0 + 4 * SECOND, T0, None)


def candidate(agent: str, score: float | None, **gates: str) -> dict[str, Any]:
    parts = (
        [] if score is None else [{"name": "cost", "raw": 1.0, "value": score, "weight": 1.0, "share": score}]
    )
    return {
        "agent": agent,
        "score": score,
        "gates": {"schema": True, "slots": True, **gates},
        "dimensions": parts,
    }


DECISION = {
    "task": "t",
    "capability": "text.echo",
    "policy": "declared",
    "verdict": "chosen",
    "agent": "quick",
    "score": 0.9,
    "margin": 0.2,
    "candidates": [
        candidate("busy", None, slots="at max concurrency 8/8"),
        candidate("quick", 0.9),
        candidate("slow", 0.7),
        candidate("twin", 0.9),
    ],
}
DECIDED = Decided("e1", "t", 0, 1, T0 + SECOND - 1, "r1", DECISION)


def history(**parts: Any) -> TaskHistory:
    whole: dict[str, Any] = {
        "lives": (LIFE,),
        "decisions": (DECIDED,),
        "dispatches": (DISPATCH,),
        "starts": (),
        "outcomes": (OUTCOME,),
        "ends": (END,),
        "waiters": (),
        "lost_answers": (),
    }
    return TaskHistory(**{**whole, **parts})


def lines(node: Node) -> Iterator[str]:
    yield node.text
    for child in node.children:
        yield from lines(child)


def drawn(**parts: Any) -> str:
    return "\n".join(lines(history_tree(history(**parts))))


def test_everything_comes_in_the_order_of_time() -> None:
    text = drawn()

    order = [
        "task t: succeeded",
        "text.echo for anna, flow flow-1",
        "decision at",
        "attempt 1 → quick",
        "end at",
    ]
    assert [text.index(each) for each in order] == sorted(text.index(each) for each in order)
    assert "2 s after it was sent; it ran 1.5 s, instance i1" in text


def test_candidates_are_ranked_and_those_that_gates_removed_come_last() -> None:
    text = drawn()

    order = ["✓ quick: score 0.900, chosen", "· twin: score 0.900", "· slow: score 0.700", "✗ busy: removed"]
    assert [text.index(each) for each in order] == sorted(text.index(each) for each in order)
    assert "gate slots: at max concurrency 8/8" in text
    assert "cost     0.900 × 1.00 = 0.900  (raw 1)" in text


def test_an_outcome_that_was_not_acted_on_is_late_or_stale() -> None:
    stale = replace(
        OUTCOME, outcome=OutcomeClass.FAILED, at=T0 + 2 * SECOND, standing=Standing.STALE, message="m"
    )
    late = replace(stale, at=T0 + 5 * SECOND, duration_ms=None, instance_id="")

    text = drawn(outcomes=(stale, OUTCOME, late))

    assert "stale, not acted on: failed: m" in text
    assert "late, not acted on: failed: m" in text
    assert "; its agent said nothing" in text


def test_an_outcome_whose_dispatch_is_not_known_is_shown_too() -> None:
    assert "succeeded" in drawn(dispatches=()).split("decision")[1]


def test_a_dispatch_without_outcome_is_still_out() -> None:
    text = drawn(outcomes=(), ends=(), starts=(Started("d1", T0 + 2 * SECOND),))

    assert "the agent said that it begins, 1 s after it was sent: the task has side effects, or" in text
    assert "no outcome yet" in text


def test_who_joined_and_whom_the_answer_did_not_find() -> None:
    text = drawn(waiters=(Joined("t", "q1", None, T0),), lost_answers=(AnswerLost("t", "q2", T0),))

    assert "published again at" in text
    assert "the answer goes to q1 too" in text
    assert "nobody took the answer at q2 any more" in text


def test_lives_are_told_apart() -> None:
    dead = replace(LIFE, state=TaskState.DEAD_LETTER, reason=DeadLetterReason.EXPIRED, error="too late")
    again = replace(LIFE, life=1)
    ends = (
        replace(END, state=TaskState.DEAD_LETTER, reason=DeadLetterReason.EXPIRED, error="too late"),
        replace(END, life=1),
    )

    text = drawn(lives=(dead, again), ends=ends)

    assert text.startswith("task t: succeeded\n")
    assert "first life: dead letter, expired: too late" in text
    assert "life 2, begun by replay or publishing again: succeeded" in text
    assert ": dead letter, expired: too late" in text.split("end at")[1]


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (
            replace(LIFE, state=TaskState.UNMATCHED, parked_reason="nobody"),
            "unmatched, waits for a person: nobody",
        ),
        (replace(LIFE, state=TaskState.UNDER_WAY), "under way"),
        (replace(LIFE, state=TaskState.CANCELLED), "cancelled"),
    ],
)
def test_the_head_says_how_it_stands(task: StoredTask, words: str) -> None:
    assert drawn(lives=(task,)).splitlines()[0] == f"task t: {words}"


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        ("quick", "quick was chosen"),
        ("busy", "busy: at max concurrency 8/8 (gate slots)"),
        ("slow", "slow scored 0.700, 0.200 less than quick (cost -0.200)"),
        ("twin", "twin scored the same as quick, and the tie went to that one"),
        ("other", "other has not the capability 'text.echo'"),
        ("slwo", "no agent 'slwo' is known, did you mean 'slow'?"),
        ("xyzzy", "no agent 'xyzzy' is known"),
    ],
)
def test_why_not_answers_by_name(agent: str, words: str) -> None:
    (answer,) = why_not(agent, [DECIDED], ["other"])

    assert answer.split(": ", 1)[1] == words


def test_a_race_says_who_ran_and_what_became_of_its_legs() -> None:
    decided = replace(DECIDED, decision={**DECISION, "mode": "race", "legs": ["a", "b"], "missing": {}})
    legs = [
        replace(LIFE, task_id="t~0.1.a", state=TaskState.CANCELLED, error="its caller took it back"),
        replace(LIFE, task_id="t~0.1.b"),
        LIFE,
    ]
    text = "\n".join(lines(history_tree(history(decisions=(decided,)), legs)))
    assert "race of a, b" in text
    assert "t~0.1.a: cancelled, its caller took it back" in text
    assert "t~0.1.b: succeeded" in text


def test_a_fan_out_says_who_is_missing() -> None:
    decided = replace(
        DECIDED, decision={**DECISION, "mode": "fanout", "legs": ["a"], "missing": {"b": "dead"}}
    )
    assert "without b: dead" in drawn(decisions=(decided,))


def test_a_large_flow_is_not_told_whole() -> None:
    others = [replace(LIFE, task_id=f"t{number}") for number in range(30)]
    text = "\n".join(lines(history_tree(history(), others)))
    assert "and 10 more: reach explain --flow flow-1" in text


def test_what_an_attempt_has_cost_is_shown() -> None:
    used = replace(OUTCOME, cost=0.125, tokens_in=10, tokens_out=7)
    assert "cost 0.125; 10 tokens in, 7 out" in drawn(dispatches=(DISPATCH,), outcomes=(used,))


def test_factors_bonus_and_exploration_are_shown() -> None:
    quick = {
        **candidate("quick", 0.5),
        "bonus": 0.05,
        "factors": [{"name": "trust", "raw": 0.9, "value": 0.81}],
    }
    slow = {
        **candidate("slow", 0.6),
        "bonus": 0.0,
        "factors": [{"name": "trust", "raw": None, "value": 0.25}],
    }
    explored = {
        **DECISION,
        "score": 0.5,
        "margin": -0.1,
        "exploration": 0.08,
        "explored": True,
        "probability": 0.0123,
    }
    decided = replace(DECIDED, decision={**explored, "candidates": [slow, quick]})

    text = drawn(decisions=(decided,))
    (answer,) = why_not("slow", [decided], [])

    assert "quick (score 0.500, margin -0.100, probability 1.23%, drawn to explore)" in text
    assert "bonus    +0.050" in text
    assert "× trust 0.810  (raw 0.9)" in text
    assert "× trust 0.250  (nothing known)" in text
    assert answer.endswith(
        "slow scored 0.600, more than quick: the draw of this decision was one of those that explore"
    )


def test_why_not_names_the_factors_that_made_the_difference() -> None:
    best = {**candidate("quick", 0.9), "factors": [{"name": "trust", "raw": 0.9, "value": 0.81}]}
    other = {**candidate("slow", 0.5), "factors": [{"name": "trust", "raw": 0.5, "value": 0.25}]}

    (answer,) = why_not("slow", [replace(DECIDED, decision={**DECISION, "candidates": [best, other]})], [])

    assert answer.endswith("(cost -0.400, × trust 0.250 against 0.810)")


def test_why_not_before_any_decision() -> None:
    assert why_not("quick", [], []) == ["no decision was made about this task yet"]


def test_why_not_where_nobody_could() -> None:
    waits = {
        **DECISION,
        "verdict": "wait",
        "reason": "all busy",
        "candidates": [candidate("busy", None, slots="full")],
    }
    del waits["agent"]

    (answer,) = why_not("busy", [replace(DECIDED, decision=waits)], [])

    assert answer.endswith("busy: full (gate slots)")


def test_a_task_that_was_handed_on_shows_by_whom_and_to_whom() -> None:
    handed = replace(OUTCOME, outcome=OutcomeClass.HANDOFF, message="to slow for text.hold: too long for me")
    second = Dispatched("d2", "t", 0, 2, "slow", "text.hold", "e2", "r1", T0 + 3 * SECOND, after="d1")
    done = replace(OUTCOME, dispatch_id="d2", attempt=2, agent_id="slow", at=T0 + 4 * SECOND)
    told = list(lines(history_tree(history(dispatches=(DISPATCH, second), outcomes=(handed, done)))))

    assert "handed on: quick → slow" in told
    assert "handoff: to slow for text.hold: too long for me" in told
    assert told.index("attempt 1 → quick") < told.index("attempt 2 → slow")


def test_what_an_agent_called_for_says_what_and_who() -> None:
    called = replace(LIFE, task_id="c1", capability="text.hold", caller="quick")
    told = list(lines(history_tree(history(), [LIFE, called])))

    assert "in the same flow" in told
    assert "c1: text.hold for quick, succeeded" in told
