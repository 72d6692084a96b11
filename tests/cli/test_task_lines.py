"""Many tasks in a file: all wrong lines are named by number, before one is sent."""

from pathlib import Path

import pytest

from reach_worker.cli.task_lines import MOST_PROBLEMS, tasks_in
from reach_worker.errors import BadInput
from tests.cli.conftest import Call


def problems(content: str, max_bytes: int = 1000) -> list[str]:
    with pytest.raises(BadInput) as caught:
        tasks_in(content.encode(), file="f.jsonl", max_bytes=max_bytes)
    return [problem.render() for problem in caught.value.problems]


def test_each_line_is_a_task_and_empty_lines_are_none() -> None:
    content = (
        b'\xef\xbb\xbf{"capability": "a"}\r\n\n  \n{"capability": "b", "payload": {"x": "\xe4\xb8\xad"}}'
    )

    assert tasks_in(content, file="f", max_bytes=1000) == [
        {"capability": "a"},
        {"capability": "b", "payload": {"x": "中"}},
    ]


def test_every_wrong_line_is_named() -> None:
    content = '{"capability": "a"}\nnonsense\n[]\n\n{"capabilty": "a"}\n{"payload": {}}\n{"capability": "%s"}'

    found = problems(content % ("x" * 150), max_bytes=100)

    assert found[0].startswith("f.jsonl:2: not JSON: ")
    assert found[1] == "f.jsonl:3: a task is a JSON object"
    assert found[2].startswith("f.jsonl:5: unknown field 'capabilty', did you mean 'capability'?")
    assert found[3] == "f.jsonl:6: a task names either a capability or an intent, exactly one of them"
    assert found[4] == "f.jsonl:7: the task has 168 bytes, the limit is 100 (intake.max_body_bytes)"


def test_an_id_that_no_answer_could_carry_is_refused() -> None:
    line = '{"capability": "a", "task_id": "%s"}' % ("中" * 100)

    assert problems(line) == ["f.jsonl:1: the task_id has 300 bytes, its answer can carry 255"]


def test_one_id_twice_is_a_mistake() -> None:
    line = '{"capability": "a", "task_id": "t"}\n'

    assert problems(line + line) == ["f.jsonl:2: task_id 't' is in line 1 already; it would be done once"]


def test_of_very_many_wrong_lines_some_are_shown() -> None:
    found = problems("nonsense\n" * 200)

    assert len(found) == MOST_PROBLEMS + 1
    assert found[-1] == "f.jsonl: and 150 more lines are wrong"


def test_a_file_without_tasks_is_wrong() -> None:
    assert problems("\n \n") == [
        'f.jsonl: holds no task (one object a line: {"capability": …, "payload": …})'
    ]


def test_the_command_refuses_before_it_looks_for_a_broker(call: Call, folder: Path) -> None:
    (folder / "tasks.jsonl").write_text('{"capability": "a"}\n{"capabilty": "b"}\n')

    from_file = call("publish", "--from", "tasks.jsonl")
    from_stdin = call("publish", "--from", "-", stdin="nonsense")

    assert (from_file.exit_code, from_stdin.exit_code) == (2, 2)
    assert from_file.stderr.startswith("Error: tasks.jsonl:2: unknown field 'capabilty'")
    assert from_stdin.stderr.startswith("Error: standard input:1: not JSON")
