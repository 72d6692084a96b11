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
        (copy(attempts=attempts(2)), known(sent=(("d1", ""), ("d2", "d1"))), Fresh(0)),
        (copy(attempts=attempts(3)), known(sent=(("d1", ""), ("d2", "d1"))), Fresh(0)),
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
        (copy(), known(sent=(("d1", ""),)), StaleCopy("it went on with dispatch d1")),
        (
            copy(attempts=attempts(1)),
            known(sent=(("d1", ""), ("d2", "d1"))),
            StaleCopy("it went on with dispatch d2"),
        ),
        (
            copy(released=("d1",)),
            known(sent=(("d1", ""), ("d2", "d1"))),
            StaleCopy("it went on with dispatch d2"),
        ),
        # it forked: the branch that was recorded first counts
        (
            copy(attempts=attempts(1)),
            known(sent=(("x", ""), ("d1", ""))),
            StaleCopy("it went on with dispatch x"),
        ),
        (copy(attempts=attempts(1)), known(sent=(("d1", ""), ("x", ""))), Fresh(0)),
        # what is not recorded gives no reason to let anything go
        (copy(attempts=attempts(1)), known(sent=(("x", "y"),)), Fresh(0)),
    ],
)
def test_a_copy_from_our_own_queues(
    envelope: Envelope, state: KnownTask, expected: Fresh | StaleCopy
) -> None:
    assert standing_of_returned(envelope, state) == expected


@pytest.mark.parametrize("envelope", [copy(attempts=attempts(1)), copy(released=("d1",))])
def test_a_store_that_is_behind_does_not_lose_the_only_copy(envelope: Envelope) -> None:
    """The outcome of d1 could not be recorded; what came back knows of it, so nothing is out."""
    assert standing_of_returned(envelope, known(dispatch_id="d1", sent=(("d1", ""),))) == Fresh(0)


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
    ("envelope", "task", "why"),
    [
        # nothing is known, or only of earlier lives: the outcome is all there is
        (copy(), None, None),
        (copy(life=1), known(TaskState.DEAD_LETTER), None),
        # it is the one that is out, or one that was sent just before a crash and never recorded
        (copy(), known(sent=(("d1", ""),)), None),
        (copy(), known(), None),
        (copy(attempts=attempts(2)), known(sent=(("d1", ""), ("d2", "d1"))), None),
        # another one was sent in its place, or after it
        (copy(), known(sent=(("x", ""), ("d9", ""))), AGAIN),
        (copy(), known(sent=(("x", ""),)), AGAIN),
        (copy(), known(sent=(("d9", ""), ("x", ""))), None),
        (copy(), known(sent=(("d9", ""), ("x", "d9"))), AGAIN),
        # the task is elsewhere
        (copy(), known(life=1), "the task began anew since"),
        (copy(), known(TaskState.SUCCEEDED), "the task has ended: succeeded"),
        (copy(), known(TaskState.DEAD_LETTER), "the task has ended: dead_letter"),
        (copy(), known(TaskState.UNMATCHED), "the task has ended: unmatched"),
    ],
)
def test_an_outcome_counts_for_the_dispatch_that_is_out(
    envelope: Envelope, task: KnownTask | None, why: str | None
) -> None:
    dispatch_id = "d9" if not envelope.attempts else "d3"
    given = task
    if task is not None and task.sent == (("d1", ""),):
        dispatch_id = "d1"
    assert why_not_current(envelope, dispatch_id, given) == why


@st.composite
def forks(draw: st.DrawFn) -> list[tuple[str, str]]:
    """Dispatches, each after another one or none, in the order in which they were recorded."""
    count = draw(st.integers(1, 8))
    made = [
        (f"d{n}", "" if n == 0 else draw(st.sampled_from(["", *(f"d{m}" for m in range(n))])))
        for n in range(count)
    ]
    return draw(st.permutations(made))


@given(forks())
def test_of_a_fork_one_branch_always_goes_on(sent: list[tuple[str, str]]) -> None:
    """Somewhere there is a dispatch whose outcome counts and whose copy goes on: else the task would be lost."""
    before = dict(sent)
    task = known(sent=tuple(sent))
    going_on = [
        dispatch_id
        for dispatch_id, after in sent
        if why_not_current(copy(released=(after,) if after else ()), dispatch_id, task) is None
        and standing_of_returned(copy(released=(dispatch_id,)), task) == Fresh(0)
    ]
    counted, at = [], ""
    while (first := task.next_after(at)) is not None:
        counted.append(first)
        at = first
    assert counted[-1] in going_on
    for dispatch_id in going_on:
        assert dispatch_id == task.next_after(before[dispatch_id])


@given(forks(), st.data())
def test_what_is_recorded_later_never_changes_what_counts(
    sent: list[tuple[str, str]], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(1, len(sent)))
    early, late = known(sent=tuple(sent[:cut])), known(sent=tuple(sent))
    for dispatch_id, after in sent[:cut]:
        assert early.next_after(after) == late.next_after(after)
        assert early.rival_of(dispatch_id) == late.rival_of(dispatch_id)


@given(forks())
def test_of_a_fork_exactly_one_line_counts_to_its_end(sent: list[tuple[str, str]]) -> None:
    task = known(sent=tuple(sent))
    line = [one for one, _ in sent if task.counts(one)]

    at, expected = "", []
    while (following := task.next_after(at)) is not None:
        expected.append(following)
        at = following
    assert sorted(line) == sorted(expected)
    assert not task.counts("not recorded")
