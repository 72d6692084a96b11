"""What is known and told while a run goes on."""

import io
import re

import pytest
from rich.console import Console

from reach_worker.core.duplicates import TaskState
from reach_worker.core.outcome import DeadLetterReason, OutcomeClass
from reach_worker.core.presence import Heartbeat
from reach_worker.demo.board import Board, board_of
from reach_worker.demo.caller import Reply, RouterUp
from reach_worker.demo.screen import Screen
from reach_worker.demo.tasks import DemoTask
from reach_worker.demo.telling import told
from reach_worker.ports import BreakerMoved, Dispatched, Ended, OutcomeSeen, Standing
from reach_worker.testing import SteppedClock

TASKS = [DemoTask("t1", b"", "succeeded"), DemoTask("t2", b"", "unmatched")]


@pytest.fixture
def board() -> Board:
    return board_of(TASKS, ["a", "b"])


def beat(agent: str, instance: str = "i1") -> Heartbeat:
    return Heartbeat(agent, instance, "mail", 4, (), "hash", "1", stopping=False)


def sent(dispatch: str, agent: str, at: int, task: str = "t1") -> Dispatched:
    return Dispatched(dispatch, task, 0, 1, agent, "c", "x", "r", at)


def outcome(
    dispatch: str, agent: str, kind: OutcomeClass, standing: Standing = Standing.CURRENT
) -> OutcomeSeen:
    return OutcomeSeen(dispatch, "t1", 0, 1, agent, "c", "i", kind, "why", 5, 1.0, standing)


def done(task: str) -> Ended:
    return Ended(task, 0, TaskState.SUCCEEDED, None, "", 6, 9, None)


def test_presence_is_by_heartbeats(board: Board) -> None:
    line = board.agents["a"]
    assert line.state(0.0, 1.0) == "starting"
    board.hear([RouterUp(), beat("a")], now=10.0)
    assert line.state(11.5, 1.0) == "active"
    assert line.state(14.0, 1.0) == "silent for 4 s"
    assert not board.everybody_there()
    board.hear([beat("b")], now=10.0)
    assert board.everybody_there()


def test_the_dead_do_not_speak_but_their_successors_do(board: Board) -> None:
    board.hear([RouterUp(), beat("a"), beat("b")], now=10.0)
    board.killed("a")
    board.hear([beat("a")], now=10.1)  # was on its way
    assert board.agents["a"].state(10.1, 1.0) == "killed"
    assert not board.everybody_there()
    board.hear([beat("a", "i2")], now=12.0)
    assert board.agents["a"].state(12.1, 1.0) == "active"


def test_an_agents_work_is_counted_from_the_reach_log(board: Board) -> None:
    a = board.agents["a"]
    board.read([sent("d1", "a", 1), sent("d2", "a", 2), sent("d3", "a", 3)])
    board.read([outcome("d1", "a", OutcomeClass.SUCCEEDED), outcome("d2", "a", OutcomeClass.FAILED)])
    board.read([outcome("d3", "a", OutcomeClass.FAILED, Standing.STALE)])
    assert (a.done, a.failed, a.returned, list(a.open)) == (1, 2, 2, ["d3"])
    board.read([outcome("d3", "a", OutcomeClass.RELEASED)])
    assert (a.done, a.failed, a.returned, list(a.open)) == (1, 2, 3, [])


def test_it_is_over_when_every_task_has_its_answer_and_its_end(board: Board) -> None:
    board.read([sent("d1", "a", 1), done("t1")])
    board.hear([Reply("t1", "succeeded", ""), Reply("t2", "unmatched", "nobody")], now=1.0)
    assert not board.all_settled(), "a dispatch is out"
    board.read([outcome("d1", "a", OutcomeClass.SUCCEEDED)])
    assert board.all_settled()


@pytest.mark.parametrize("missing", ["answer", "end"])
def test_it_is_not_over_before(board: Board, missing: str) -> None:
    board.hear([Reply("t2", "unmatched", "nobody")], now=1.0)
    if missing == "answer":
        board.read([done("t1")])
    else:
        board.hear([Reply("t1", "succeeded", "")], now=1.0)
    assert not board.all_settled()


def test_what_is_told(board: Board) -> None:
    news: list[BreakerMoved | Dispatched | Ended | OutcomeSeen] = [
        sent("d1", "a", 1),
        sent("d2", "a", 1, task="t2"),
        outcome("d1", "a", OutcomeClass.FAILED),
        outcome("d2", "a", OutcomeClass.FAILED),
        BreakerMoved("a", "r", "open", 5, "failed:\n  why"),
        sent("d3", "b", 6),
        sent("d4", "b", 6, task="t2"),
        BreakerMoved("a", "r", "closed", 7, "succeeded: "),
        Ended("t1", 0, TaskState.DEAD_LETTER, DeadLetterReason.EXPIRED, "too late", 8, 9, None),
    ]
    board.read(news)
    assert told([Reply("t2", "unmatched", "nobody")], news, board) == [
        "a: 2 × failed (why)",
        "breaker of a opens, after failed: why",
        "breaker of a closes: its probe succeeded",
        "2 tasks re-routed from a to b",
        "t1 is a dead letter, expired: too late",
        "t2 is unmatched: nobody",
    ]


def test_success_is_not_told(board: Board) -> None:
    news: list[BreakerMoved | Dispatched | Ended | OutcomeSeen] = [
        sent("d1", "a", 1),
        outcome("d1", "a", OutcomeClass.SUCCEEDED),
        done("t1"),
    ]
    board.read(news)
    assert told([Reply("t1", "succeeded", "")], news, board) == []


def test_plain_output_is_lines_and_says_how_far_it_is(board: Board) -> None:
    out, clock = io.StringIO(), SteppedClock()
    with Screen(Console(file=out), board, clock, beat_s=1.0) as screen:
        screen.show()
        clock.advance(2.0)
        board.hear([Reply("t1", "succeeded", "")], now=clock.now)
        board.published = 2
        screen.show()
        screen.show()
        clock.advance(0.5)
        screen.tell(["something happened " + 50 * "and went on "])
        board.hear([Reply("t2", "unmatched", "")], now=clock.now)
        screen.show()
    lines = out.getvalue().splitlines()
    assert lines[0] == "  2.0 s  1 of 2 answered, 2 published"
    assert lines[1].startswith("  2.5 s  something happened and went on")
    assert lines[2] == "  2.5 s  2 of 2 answered, 2 published"
    assert len(lines) == 3


def test_a_terminal_gets_a_table(board: Board) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, height=40, color_system=None)
    board.hear([beat("a")], now=1000.0)
    board.read([sent("d1", "a", 1), BreakerMoved("b", "r", "open", 5, "")])
    with Screen(console, board, SteppedClock(), beat_s=1.0) as screen:
        screen.tell(["something happened"])
        screen.show()
    screen.print(["and that was it"])
    shown = out.getvalue()
    assert re.search(r"a\s+│ active\s+│\s+1 │\s+0 │\s+0 │ closed", shown)
    assert re.search(r"b\s+│ starting\s+│\s+0 │\s+0 │\s+0 │ open", shown)
    assert "something happened" in shown
    assert shown.endswith("and that was it\n")
