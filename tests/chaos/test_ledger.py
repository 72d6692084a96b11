"""What handlers write down of themselves."""

import logging
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from reach_worker.agent.context import Context, FlowLogger
from reach_worker.chaos.ledger import LATE, OK, Ledger, Ledgers, OutOfTime
from reach_worker.testing import SteppedClock


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def ledger(tmp_path: Path, clock: SteppedClock) -> Iterator[Ledger]:
    ledger = Ledger(tmp_path, "chaos-1", clock)
    yield ledger
    ledger.close()


def context(task_id: str, dispatch_id: str = "d1", attempt: int = 1) -> Context:
    log = FlowLogger(logging.getLogger("test"), {})
    return Context(task_id, task_id, attempt, "chaos.quick", "anonymous", {}, None, 5.0, log, dispatch_id)


def test_a_run_has_a_beginning_and_an_end(tmp_path: Path, ledger: Ledger, clock: SteppedClock) -> None:
    with ledger.run(context("t1"), side_effects=True):
        clock.advance(2)
    (run,) = Ledgers.read(tmp_path).runs["t1"]
    assert (run.how, run.agent_id, run.attempt, run.dispatch_id, run.side_effects) == (
        OK,
        "chaos-1",
        1,
        "d1",
        True,
    )
    assert run.ended_us is not None
    assert run.ended_us - run.began_us == 2_000_000


def test_what_raises_says_so(tmp_path: Path, ledger: Ledger) -> None:
    with pytest.raises(ZeroDivisionError), ledger.run(context("t1")):
        raise ZeroDivisionError
    assert [run.how for run in Ledgers.read(tmp_path).runs["t1"]] == ["ZeroDivisionError"]


def test_what_is_done_after_it_was_told_to_stop_is_no_success(tmp_path: Path, ledger: Ledger) -> None:
    late = context("t1")
    with pytest.raises(OutOfTime), ledger.run(late):
        late.cancelled.set()
    assert [run.how for run in Ledgers.read(tmp_path).runs["t1"]] == [LATE]


def test_a_process_that_died_left_runs_without_an_end() -> None:
    ledgers = Ledgers.of([line("t1", "d1", 10), line("t1", "d2", 20), line("t1", "d2", 30, how=OK)])
    assert [(run.dispatch_id, run.how) for run in ledgers.runs["t1"]] == [("d1", None), ("d2", OK)]


def test_a_dispatch_that_ran_twice_in_one_process_is_two_runs() -> None:
    lines = [
        line("t1", "d1", 10),
        line("t1", "d1", 20, how=OK),
        line("t1", "d1", 30),
        line("t1", "d1", 40, how=OK),
    ]
    assert [(run.began_us, run.ended_us) for run in Ledgers.of(lines).runs["t1"]] == [(10, 20), (30, 40)]


def test_runs_are_in_the_order_in_which_they_began_whichever_process_wrote_first() -> None:
    ledgers = Ledgers.of([line("t1", "d2", 50, pid=2), line("t1", "d1", 10, pid=1)])
    assert [run.dispatch_id for run in ledgers.runs["t1"]] == ["d1", "d2"]


def test_legs_and_calls_are_with_the_task_that_they_are_for() -> None:
    ledgers = Ledgers.of(
        [line("t1~0.1.chaos-1", "d1", 10, flow="t1"), line("~c0ffee", "d2", 20, flow="t1", hop=1)]
    )
    assert [(run.task_id, run.hop) for run in ledgers.runs["t1"]] == [("t1~0.1.chaos-1", 0), ("~c0ffee", 1)]


def test_a_line_that_cannot_be_read_is_counted() -> None:
    ledgers = Ledgers.of([b'{"task": "t1", "at', line("t2", "d1", 10)])
    assert (ledgers.unreadable, list(ledgers.runs)) == (1, ["t2"])


def line(
    task: str, dispatch: str, at: int, *, how: str | None = None, pid: int = 1, flow: str = "", hop: int = 0
) -> bytes:
    content = {
        "task": task,
        "attempt": 1,
        "dispatch": dispatch,
        "agent": "chaos-1",
        "pid": pid,
        "effects": False,
        "flow": flow or task,
        "hop": hop,
    }
    return orjson.dumps({**content, "at": at} | ({} if how is None else {"how": how}))
