"""The verdict, on made-up ledgers and queues."""

import pytest

from reach_worker.chaos.board import Board
from reach_worker.chaos.faults import Window
from reach_worker.chaos.ledger import OK, Run
from reach_worker.chaos.tasks import Kind, PlannedTask
from reach_worker.chaos.verdict import (
    SLACK_US,
    Remains,
    Verdict,
    agrees,
    by_kind,
    judge,
    longest_stall_s,
    slope,
)

S = 1_000_000
END = {"state": "succeeded", "reason": None, "at": 1}
OTHER_END = {"state": "dead_letter", "reason": "expired", "at": 2}
DONE = {"t": ("succeeded", 5 * S)}


def board(kind: Kind = Kind.QUICK, *, answered: bool = False, confirmed: bool = True) -> Board:
    task = PlannedTask("t", kind, 0.0, b"{}", answered=answered)
    return Board({"t": task}, confirmed={"t": S} if confirmed else {})


def run(began_s: float, how: str | None = OK, agent: str = "chaos-1", dispatch: str = "d1") -> Run:
    began_us = int(began_s * S)
    return Run("t", 1, dispatch, agent, 1, False, began_us, None if how is None else began_us + 1, how)


def window(target: str, from_s: float, to_s: float) -> Window:
    return Window("some_fault", target, int(from_s * S), int(to_s * S))


def verdict(remains: Remains, *, of: Board | None = None) -> Verdict:
    return judge(of or board(), {}, remains, [])


def names(found: "Verdict") -> dict[str, list[str]]:
    lists = {
        "lost": found.lost,
        "stuck": found.stuck,
        "wrong": found.wrong_ends,
        "unanswered": found.unanswered,
        "unrecorded": found.unrecorded,
    }
    return {kind: [violation.name for violation in each] for kind, each in lists.items() if each}


# ---- Ends


@pytest.mark.parametrize(
    ("kind", "remains"),
    [
        (Kind.QUICK, Remains(DONE)),
        (Kind.BROKEN, Remains({"t": ("attempts_exhausted", S)}, letters={"t": ["attempts_exhausted"]})),
        (Kind.NOBODY, Remains({"t": ("unmatched", None)}, parked={"t": 1})),
        (Kind.PAY, Remains(DONE, letters={"t": ["outcome_unknown"]})),  # a late success resolved it
        (Kind.MALFORMED, Remains({}, unread=[("undecodable", b"{..t")])),
    ],
)
def test_one_end_is_as_it_should_be(kind: Kind, remains: Remains) -> None:
    found = verdict(remains, of=board(kind))
    assert names(found) == {}
    assert found.good
    assert sum(found.ends.values()) == 1


@pytest.mark.parametrize(
    ("kind", "remains", "why"),
    [
        (Kind.QUICK, Remains({}), "no queue has it"),
        (Kind.QUICK, Remains({"t": ("under_way", None)}), "under way; no queue has it"),
        (Kind.BROKEN, Remains({"t": ("attempts_exhausted", S)}), "the queue does not have it"),
        (Kind.NOBODY, Remains({"t": ("unmatched", None)}), "the queue does not have it"),
        (Kind.QUICK, Remains(DONE, letters={"t": ["poison"]}), "two ends"),
        (Kind.QUICK, Remains({}, letters={"t": ["poison"]}, parked={"t": 1}), "two ends"),
        (Kind.MALFORMED, Remains({}, unread=[("undecodable", b"nobody")]), "not among the dead letters"),
    ],
)
def test_no_end_or_two_is_lost(kind: Kind, remains: Remains, why: str) -> None:
    found = verdict(remains, of=board(kind))
    assert [why in violation.why for violation in found.lost] == [True]
    assert not found.good


def test_what_is_still_in_a_queue_is_stuck_and_says_where() -> None:
    found = verdict(Remains({"t": ("under_way", None)}, left={"t": ["chaos.retry.500"]}))
    assert names(found) == {"stuck": ["t"]}
    assert "chaos.retry.500" in found.stuck[0].why
    assert not found.good


def test_what_was_never_confirmed_is_nobodys_promise() -> None:
    assert names(verdict(Remains({}), of=board(confirmed=False))) == {}


def test_an_end_that_the_log_does_not_have_is_told() -> None:
    found = verdict(Remains({"t": ("under_way", None)}, letters={"t": ["poison"]}))
    assert names(found) == {"unrecorded": ["t"]}
    assert found.good


def test_an_end_that_this_kind_cannot_come_to_is_told() -> None:
    assert names(verdict(Remains(DONE), of=board(Kind.BROKEN))) == {"wrong": ["t"]}


def test_an_answer_that_did_not_come_is_told() -> None:
    asked = board(answered=True)
    assert names(verdict(Remains(DONE), of=asked)) == {"unanswered": ["t"]}
    asked.answers["t"] = [("succeeded", S)]
    assert names(verdict(Remains(DONE), of=asked)) == {}


def test_an_answer_is_an_end_where_the_log_has_none() -> None:
    asked = board(answered=True)
    asked.answers["t"] = [("succeeded", S)]
    assert names(verdict(Remains({}), of=asked)) == {"unrecorded": ["t"]}


def test_a_dead_letter_that_is_there_twice_is_counted() -> None:
    letters = Remains({"t": ("poison", S)}, letters={"t": ["poison", "poison"]})
    assert verdict(letters, of=board(Kind.POISON)).doubled_letters == ["t"]


# ---- Done twice


@pytest.mark.parametrize(
    ("windows", "explained"),
    [
        ([], False),
        ([window("broker", 12, 14)], True),
        ([window("store", 12, 14)], True),
        ([window("router-2", 12, 14)], True),
        ([window("chaos-1", 12, 14)], True),  # it did it first
        ([window("chaos-2", 12, 14)], True),  # it did it again
        ([window("chaos-3", 12, 14)], False),  # it had nothing to do with it
        ([window("broker", 5, 30)], True),
        ([window("broker", 20.5, 21)], False),  # after the second began
        ([window("broker", 1, 10 - SLACK_US / S + 0.1)], True),
        ([window("broker", 1, 10 - SLACK_US / S - 0.1)], False),
    ],
)
def test_two_successes_need_a_fault_between_their_starts(windows: list[Window], *, explained: bool) -> None:
    runs = {"t": [run(10), run(20, agent="chaos-2", dispatch="d2")]}
    found = judge(board(), runs, Remains(DONE), windows)
    assert list(found.doubled) == ["t"]
    assert bool(found.unexplained) is not explained
    assert found.good is explained


def test_each_repetition_needs_its_own_fault() -> None:
    runs = {"t": [run(10), run(20), run(40)]}
    found = judge(board(), runs, Remains(DONE), [window("broker", 12, 14)])
    assert [violation.name for violation in found.unexplained] == ["t"]


@pytest.mark.parametrize("how", ["RuntimeError", "CancelledError", "late", None])
def test_runs_that_did_not_succeed_are_no_doubles(how: str | None) -> None:
    found = judge(board(), {"t": [run(10, how), run(20)]}, Remains(DONE), [])
    assert found.doubled == {}
    assert found.good


@pytest.mark.parametrize("how", ["RuntimeError", None, OK])
def test_with_side_effects_a_second_start_is_a_fault_however_the_first_ended(how: str | None) -> None:
    runs = {"t": [run(10, how), run(20)]}
    found = judge(board(Kind.PAY), runs, Remains(DONE), [window("broker", 12, 14)])
    assert [violation.name for violation in found.repeated] == ["t"]
    assert not found.good


# ---- The audit


@pytest.mark.parametrize(
    ("audit", "status", "agreed"),
    [
        (None, 0, True),  # there is no such command
        ({"ok": True}, 0, True),
        ({"doubled": [{"task_id": "t"}]}, 1, True),  # done twice, and known why
        ({"doubled": [{"task_id": "t"}, {"task_id": "another"}]}, 1, False),
        ({"doubled": [{"task_id": "t"}], "orphans": [{"task_id": "lost"}]}, 1, False),
        ({"doubled": [{"task_id": "u", "ends": [END, END]}]}, 1, True),  # one end, written down twice
        ({"doubled": [{"task_id": "u", "ends": [END, OTHER_END]}]}, 1, False),
        ({"doubled": [], "unchecked": ["the broker did not answer"]}, 1, False),
        ({"doubled": []}, 1, False),  # it says no, and not why
        ("Traceback …", 1, False),
    ],
)
def test_the_audit_may_find_only_what_is_explained(audit: object, status: int, *, agreed: bool) -> None:
    runs = {"t": [run(10), run(20)]}
    found = judge(board(), runs, Remains(DONE), [window("broker", 12, 14)])
    assert agrees(audit, status, found) is agreed


def test_the_audit_does_not_excuse_what_is_unexplained() -> None:
    found = judge(board(), {"t": [run(10), run(20)]}, Remains(DONE), [])
    assert not agrees({"doubled": [{"task_id": "t"}]}, 1, found)


# ---- Figures


@pytest.mark.parametrize(
    ("confirmed", "ended", "longest"),
    [
        ({}, {}, 0.0),
        ({"a": 0}, {"a": 3 * S}, 3.0),
        ({"a": 0, "b": 0}, {"a": 1 * S, "b": 5 * S}, 4.0),
        ({"a": 0, "b": 60 * S}, {"a": 1 * S, "b": 62 * S}, 2.0),  # nobody waited for a minute
        ({"a": 0, "b": 1 * S}, {"a": 9 * S}, 9.0),  # one that never ended is another matter
        ({"a": 5 * S}, {"a": 4 * S}, 0.0),  # it ended before the caller heard of the confirm
    ],
)
def test_the_longest_stall_is_the_longest_wait_without_any_end(
    confirmed: dict[str, int], ended: dict[str, int], longest: float
) -> None:
    assert longest_stall_s(confirmed, ended) == longest


def test_the_slope_is_that_of_the_line() -> None:
    assert slope([(0, 10), (1, 12), (2, 14)]) == pytest.approx(2.0)
    assert slope([(0, 10), (1, 11), (2, 10), (3, 11)]) == pytest.approx(0.2)
    assert slope([(5, 10)]) == slope([(5, 10), (5, 20)]) == 0.0


def test_faults_are_counted_by_kind() -> None:
    windows = [Window("a", "x", 0, 1), Window("b", "x", 0, 1, done=False), Window("a", "y", 0, 1)]
    assert by_kind(windows, lambda window: window.done) == {"a": 2}
