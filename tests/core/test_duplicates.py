"""The same task id again: what it is, by what is known of it."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_worker.core.duplicates import (
    Fresh,
    KnownTask,
    Remembered,
    StaleCopy,
    TaskState,
    UnderWay,
    standing_of_published,
    standing_of_returned,
    why_not_current,
)
from reach_worker.core.envelope import Envelope
from reach_worker.core.outcome import Attempt, OutcomeClass

NOW = 1_000
ENDED = (TaskState.SUCCEEDED, TaskState.DEAD_LETTER, TaskState.CANCELLED)
OPEN = (TaskState.UNDER_WAY, TaskState.UNMATCHED)


def known(state: TaskState = TaskState.UNDER_WAY, **fields: Any) -> KnownTask:
    return replace(KnownTask("t", 0, state, "router-1", None, 0, 0, None), **fields)


def copy(**fields: Any) -> Envelope:
    return replace(Envelope("t", "t", "c", "anonymous", 1), **fields)


def attempts(count: int) -> tuple[Attempt, ...]:
    return tuple(
        Attempt(number, "a", f"d{number}", "e", OutcomeClass.FAILED, "", 1, 2)
        for number in range(1, count + 1)
    )


def test_an_unknown_id_is_fresh() -> None:
    assert standing_of_published(None, NOW) == Fresh(0)
    assert standing_of_returned(copy(life=3), None) == Fresh(3)


@pytest.mark.parametrize("state", OPEN)
@pytest.mark.parametrize("remember_until", [0, NOW, NOW * 2])
def test_published_again_while_it_is_under_way(state: TaskState, remember_until: int) -> None:
    assert standing_of_published(known(state, remember_until=remember_until), NOW) == UnderWay()


@pytest.mark.parametrize("state", ENDED)
@pytest.mark.parametrize("told", [b"{}", None])
@pytest.mark.parametrize(
    ("remember_until", "remembered"), [(0, False), (NOW, False), (NOW + 1, True), (NOW * 2, True)]
)
def test_published_again_after_its_end(
    state: TaskState, told: bytes | None, remember_until: int, remembered: bool
) -> None:
    standing = standing_of_published(known(state, life=2, remember_until=remember_until, answer=told), NOW)

    assert standing == (Remembered(told) if remembered else Fresh(3))


@pytest.mark.parametrize(
    ("envelope", "state", "expected"),
    [
        # of this life, nothing out
        (copy(), known(), Fresh(0)),
        (copy(), known(TaskState.UNMATCHED), Fresh(0)),
        (copy(attempts=attempts(2)), known(attempts_ended=2), Fresh(0)),
        (copy(attempts=attempts(3)), known(attempts_ended=2), Fresh(0)),
        # a replay
        (copy(life=1), known(TaskState.DEAD_LETTER), Fresh(1)),
        (copy(life=1), known(dispatch_id="d1"), Fresh(1)),
        # a copy of an earlier life
        (copy(), known(life=1), StaleCopy("it began anew since: life 1, this is 0")),
        # it has ended
        (copy(), known(TaskState.SUCCEEDED), StaleCopy("it has ended: succeeded")),
        (copy(), known(TaskState.DEAD_LETTER), StaleCopy("it has ended: dead_letter")),
        (copy(), known(TaskState.CANCELLED), StaleCopy("it has ended: cancelled")),
        # it has gone on
        (copy(), known(dispatch_id="d1"), StaleCopy("dispatch d1 of it is out")),
        (copy(attempts=attempts(1)), known(dispatch_id="d2"), StaleCopy("dispatch d2 of it is out")),
        (copy(), known(attempts_ended=1), StaleCopy("1 attempts have ended, this copy knows 0")),
        (
            copy(attempts=attempts(1)),
            known(attempts_ended=2),
            StaleCopy("2 attempts have ended, this copy knows 1"),
        ),
    ],
)
def test_a_copy_from_our_own_queues(
    envelope: Envelope, state: KnownTask, expected: Fresh | StaleCopy
) -> None:
    assert standing_of_returned(envelope, state) == expected


@pytest.mark.parametrize("envelope", [copy(attempts=attempts(1)), copy(released=("d1",))])
def test_a_store_that_is_behind_does_not_lose_the_only_copy(envelope: Envelope) -> None:
    """The outcome of d1 could not be recorded; what came back knows of it, so nothing is out."""
    assert standing_of_returned(envelope, known(dispatch_id="d1", attempts_ended=0)) == Fresh(0)


KNOWN = st.builds(
    KnownTask,
    task_id=st.just("t"),
    life=st.integers(0, 3),
    state=st.sampled_from(TaskState),
    router=st.just("r"),
    dispatch_id=st.none() | st.sampled_from(["d1", "d2", "d9"]),
    attempts_ended=st.integers(0, 3),
    remember_until=st.integers(0, 2 * NOW),
    answer=st.none() | st.just(b"{}"),
)


@given(KNOWN)
def test_a_published_task_is_never_done_twice_at_once(task: KnownTask) -> None:
    standing = standing_of_published(task, NOW)

    if isinstance(standing, Fresh):
        assert task.state in ENDED
        assert standing.life == task.life + 1


@given(KNOWN, st.integers(0, 3), st.integers(0, 3))
def test_a_copy_of_what_has_ended_is_never_done_again(task: KnownTask, life: int, ended: int) -> None:
    standing = standing_of_returned(copy(life=life, attempts=attempts(ended)), task)

    if isinstance(standing, Fresh):
        assert standing.life == life >= task.life
        assert life > task.life or task.state in OPEN


AGAIN = "the task was routed again since"


@pytest.mark.parametrize(
    ("envelope", "task", "recorded", "why"),
    [
        # nothing is known, or only of earlier lives: the outcome is all there is
        (copy(), None, False, None),
        (copy(), None, True, None),
        (copy(life=1), known(TaskState.DEAD_LETTER), False, None),
        # it is the one that is out
        (copy(), known(dispatch_id="d1"), True, None),
        (copy(), known(dispatch_id="d1"), False, None),
        # sent just before a crash, and never recorded
        (copy(), known(), False, None),
        (copy(attempts=attempts(2)), known(attempts_ended=2), False, None),
        (copy(attempts=attempts(2)), known(attempts_ended=1), False, None),
        # another one is out, or this one has ended
        (copy(), known(dispatch_id="d2"), True, AGAIN),
        (copy(), known(dispatch_id="d2"), False, AGAIN),
        (copy(), known(), True, AGAIN),
        (copy(attempts=attempts(1)), known(attempts_ended=2), False, AGAIN),
        # the task is elsewhere
        (copy(), known(life=1), True, "the task began anew since"),
        (copy(), known(TaskState.SUCCEEDED), True, "the task has ended: succeeded"),
        (copy(), known(TaskState.DEAD_LETTER), False, "the task has ended: dead_letter"),
        (copy(), known(TaskState.UNMATCHED), True, "the task has ended: unmatched"),
    ],
)
def test_an_outcome_counts_for_the_dispatch_that_is_out(
    envelope: Envelope, task: KnownTask | None, recorded: bool, why: str | None
) -> None:
    assert why_not_current(envelope, "d1", task, recorded=recorded) == why


@given(KNOWN, st.integers(0, 3), st.booleans())
def test_of_two_recorded_dispatches_at_most_one_is_current(
    task: KnownTask, life: int, recorded: bool
) -> None:
    envelope = copy(life=life)
    current = [d for d in ("d1", "d2") if why_not_current(envelope, d, task, recorded=True) is None]

    assert task.life < life or current in ([], [task.dispatch_id])
    if task.life == life and task.state in ENDED:
        assert why_not_current(envelope, "d1", task, recorded=recorded) is not None
