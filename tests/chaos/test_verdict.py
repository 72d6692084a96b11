"""The verdict, on made-up ledgers and queues."""

from collections.abc import Iterable, Mapping

import pytest

from reach_worker.chaos.board import Board
from reach_worker.chaos.faults import Window
from reach_worker.chaos.findings import Remains, Verdict
from reach_worker.chaos.kinds import Kind
from reach_worker.chaos.ledger import OK, Run
from reach_worker.chaos.sums import by_kind, longest_stall_s, slope
from reach_worker.chaos.tasks import PlannedTask
from reach_worker.chaos.verdict import SLACK_US, agrees, judge

S = 1_000_000
END = {"state": "succeeded", "reason": None, "at": 1}
OTHER_END = {"state": "dead_letter", "reason": "expired", "at": 2}
DONE = {"t": ("succeeded", 5 * S)}


def board(kind: Kind = Kind.QUICK, *, answered: bool = False, confirmed: bool = True) -> Board:
    task = PlannedTask("t", kind, 0.0, b"{}", answered=answered)
    return Board({"t": task}, confirmed={"t": S} if confirmed else {})


def run(
    began_s: float,
    how: str | None = OK,
    agent: str = "chaos-1",
    dispatch: str = "d1",
    *,
    part: str = "t",
    hop: int = 0,
    effects: bool = False,
) -> Run:
    began_us = int(began_s * S)
    ended_us = None if how is None else began_us + 1
    return Run(part, 1, dispatch, agent, 1, effects, began_us, ended_us, how, "t", hop)


WON = {"status": "succeeded", "final": True, "agent": "chaos-1", "result": {"by": "chaos-1"}}


def raced(answers: Iterable[Mapping[str, object]] = (WON,)) -> Board:
    race = board(Kind.RACE, answered=True)
    for answer in answers:
        race.hear("t", answer, S)
    return race


def window(target: str, from_s: float, to_s: float) -> Window:
    return Window("some_fault", target, int(from_s * S), int(to_s * S))


def verdict(remains: Remains, *, of: Board | None = None) -> Verdict:
    return judge(of or board(), {"t": [run(2)]}, remains, [])


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
    runs = {"t": [run(10, how, effects=True), run(20, effects=True)]}
    found = judge(board(Kind.PAY), runs, Remains(DONE), [window("broker", 12, 14)])
    assert [violation.name for violation in found.repeated] == ["t"]
    assert not found.good


# ---- Parts: legs, calls, stretches


def test_the_two_legs_of_a_race_are_no_double_and_one_leg_done_twice_is() -> None:
    first, second = run(10, part="t~0.1.chaos-1"), run(10, part="t~0.1.chaos-3", agent="chaos-3")
    assert judge(raced(), {"t": [first, second]}, Remains(DONE), []).doubled == {}
    again = run(20, part="t~0.1.chaos-3", agent="chaos-3", dispatch="d2")
    found = judge(raced(), {"t": [first, second, again]}, Remains(DONE), [])
    assert list(found.doubled) == ["t~0.1.chaos-3"]
    assert [(one.name, one.part) for one in found.unexplained] == [("t", "t~0.1.chaos-3")]


@pytest.mark.parametrize(("windows", "explained"), [([], False), ([window("broker", 12, 14)], True)])
def test_a_round_with_more_legs_than_a_race_has_was_begun_twice(
    windows: list[Window], *, explained: bool
) -> None:
    legs = {f"t~0.1.chaos-{number}": "cancelled" for number in (1, 3, 4)}
    runs = {"t": [run(10, part="t~0.1.chaos-1"), run(20, "Cancelled", part="t~0.1.chaos-3")]}
    found = judge(raced(), runs, Remains(DONE, parts={"t": legs}), windows)
    assert list(found.doubled) == ["t"]
    assert bool(found.unexplained) is not explained


def test_a_retried_race_has_legs_of_its_own() -> None:
    legs = {f"t~0.{number}.chaos-{agent}": "succeeded" for number in (1, 2) for agent in (1, 3)}
    found = judge(raced(), {"t": [run(10, part="t~0.2.chaos-1")]}, Remains(DONE, parts={"t": legs}), [])
    assert found.good
    assert found.doubled == {}


def test_each_stretch_of_what_is_handed_on_is_done_once() -> None:
    handed = [run(10), run(11, agent="chaos-3", dispatch="d2", hop=1)]
    assert judge(board(Kind.HANDOFF), {"t": handed}, Remains(DONE), []).doubled == {}
    again = run(12, agent="chaos-3", dispatch="d3", hop=1)
    assert list(judge(board(Kind.HANDOFF), {"t": [*handed, again]}, Remains(DONE), []).doubled) == ["t"]


def test_side_effects_that_begin_only_after_a_handoff_begin_once() -> None:
    desk_twice = [run(10), run(11), run(12, dispatch="d2", hop=1, effects=True)]
    around = [window("broker", 9, 14)]
    assert judge(board(Kind.PAY_HANDED), {"t": desk_twice}, Remains(DONE), around).good
    again = run(13, dispatch="d3", hop=1, effects=True)
    found = judge(board(Kind.PAY_HANDED), {"t": [*desk_twice, again]}, Remains(DONE), around)
    assert [violation.name for violation in found.repeated] == ["t"]


@pytest.mark.parametrize(
    ("part", "state", "letters", "found"),
    [
        ("t~0.1.chaos-1", "attempts_exhausted", {}, []),  # a leg is no dead letter
        ("t~0.1.chaos-1", "under_way", {}, ["lost"]),
        ("~c0ffee", "attempts_exhausted", {"~c0ffee": ["attempts_exhausted"]}, []),
        ("~c0ffee", "attempts_exhausted", {}, ["lost"]),
        ("~c0ffee", "under_way", {}, ["lost"]),
        ("~c0ffee", "cancelled", {}, []),
    ],
)
def test_every_leg_and_call_has_its_end(
    part: str, state: str, letters: dict[str, list[str]], found: list[str]
) -> None:
    remains = Remains(DONE, letters=letters, parts={"t": {part: state}})
    assert [violation.kind for violation in verdict(remains).violations()] == found


def test_a_leg_that_is_still_in_a_queue_is_stuck() -> None:
    remains = Remains(DONE, left={"t~leg": ["chaos.returns"]}, parts={"t": {"t~leg": "under_way"}})
    assert [violation.part for violation in verdict(remains).stuck] == ["t~leg"]


def test_a_success_that_nobody_did_is_lost() -> None:
    assert [v.why for v in judge(board(), {}, Remains(DONE), []).lost] == [
        "it succeeded, and no handler did it"
    ]


# ---- What the caller was told


def test_who_reads_an_answer_has_to_get_one_and_only_one_end() -> None:
    assert [v.why for v in verdict(Remains(DONE), of=raced(())).garbled] == ["its caller got no final answer"]
    two = raced(({"status": "succeeded", "final": True}, {"status": "dead_letter", "final": True}))
    found = verdict(Remains(DONE), of=two)
    assert ["several ends" in v.why for v in found.garbled] == [True]
    assert not found.good


def test_what_has_no_end_yet_has_no_answer_either_and_is_told_as_that() -> None:
    found = verdict(Remains({"t": ("under_way", None)}, left={"t": ["chaos.returns"]}), of=raced(()))
    assert [violation.kind for violation in found.violations()] == ["stuck"]


def test_the_verdict_tells_what_the_listener_to_a_stream_found_wrong() -> None:
    heard = board(Kind.STREAM, answered=True)
    heard.hear("t", {"status": "succeeded", "final": True, "agent": "chaos-1", "result": []}, S)
    heard.listeners["t"].wrong.append("it was mixed")
    assert [v.why for v in verdict(Remains(DONE), of=heard).garbled] == ["it was mixed"]


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
