"""What stands on stdout, and what beside it, while an agent speaks."""

import pytest

from reach_worker.cli.stream_printing import Printer
from reach_worker.core.stream_reading import Chunk, ChunksLost, Event, Progress, Rerouted, Result, Started


def chunk(value: object, seq: int = 0, attempt: int = 1) -> Chunk:
    return Chunk(value, seq, "poet", attempt)


def result(value: object, attempt: int = 1) -> Result:
    answer = {
        "task_id": "t",
        "status": "succeeded",
        "final": True,
        "agent": "poet",
        "attempt": attempt,
        "result": value,
    }
    return Result(value, "poet", attempt, answer)


def shown(capsys: pytest.CaptureFixture[str], *events: Event, lines: bool = False) -> tuple[str, list[str]]:
    printer = Printer(lines)
    for event in events:
        printer.show(event)
    printed = capsys.readouterr()
    return printed.out, printed.err.splitlines()


def test_texts_are_joined_and_what_is_said_of_them_is_beside(capsys: pytest.CaptureFixture[str]) -> None:
    out, beside = shown(
        capsys,
        Started("poet", 1),
        chunk("roses "),
        Progress(0.4, "half", "poet", 1),
        chunk("are"),
        ChunksLost(2),
        chunk(""),
        result("roses are red"),
    )

    assert out == "roses are\n"
    assert beside == [
        "agent poet, attempt 1",
        "40% half",
        "2 chunks were lost",
        "task t succeeded: agent poet, attempt 1",
    ]


def test_whole_lines_and_other_values_have_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    events = [chunk("one"), chunk("two"), chunk({"n": 3})]

    assert shown(capsys, *events, result(None), lines=True)[0] == 'one\ntwo\n{"n":3}\n'
    assert shown(capsys, *events, chunk("end\n"), result(None))[0] == 'onetwo\n{"n":3}\nend\n'


def test_an_attempt_that_begins_anew_begins_on_a_new_line(capsys: pytest.CaptureFixture[str]) -> None:
    out, beside = shown(
        capsys, chunk("ro"), Rerouted("bard", 2), chunk("violets", attempt=2), result("violets", 2)
    )

    assert out == "ro\nviolets\n"
    assert beside[0] == "begun anew: agent bard, attempt 2; what came before is worth nothing"


def test_the_result_of_an_attempt_that_said_nothing_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    silent = shown(capsys, Started("poet", 1), Progress(None, "", "poet", 1), result({"n": 1}))
    replaced = shown(capsys, chunk("ro"), Rerouted("bard", 2), result({"n": 2}, 2))

    assert silent == (
        '{\n  "n": 1\n}\n',
        ["agent poet, attempt 1", "it works", "task t succeeded: agent poet, attempt 1"],
    )
    assert replaced[0] == 'ro\n{\n  "n": 2\n}\n'


def test_nothing_that_an_agent_says_steers_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    out, beside = shown(
        capsys, chunk("\x1b[2J"), Progress(None, "\x1b]0;x\x07", "poet", 1), chunk(["\x9b"]), result(None)
    )

    assert "\x1b" not in out + "".join(beside)
    assert "\x9b" not in out
