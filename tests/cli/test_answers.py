"""What the command line says of an answer that is no success."""

from typing import Any

import pytest

from reach_worker.cli.answers import print_answer
from reach_worker.client import Answer


@pytest.mark.parametrize(
    ("status", "content", "line"),
    [
        ("cancelled", {}, "task t1 cancelled"),
        ("unmatched", {"error": "nobody"}, "task t1 unmatched: nobody"),
        (
            "dead_letter",
            {"reason": "rejected", "error": "not mine"},
            "task t1 dead_letter, rejected: not mine",
        ),
    ],
)
def test_one_line_says_what_became_of_it(
    status: str, content: dict[str, Any], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_answer(Answer("t1", status, final=True, content=content), as_json=False)
    assert capsys.readouterr().out == f"{line}\n"


@pytest.mark.parametrize(
    ("content", "who"),
    [
        ({"agent": "a", "attempt": 2, "result": 1}, "agent a, attempt 2"),
        ({"answers": [{"agent": "a"}, {"agent": "b"}], "attempt": 1, "result": {}}, "agents a, b, attempt 1"),
    ],
)
def test_a_success_says_who_it_was(
    content: dict[str, Any], who: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_answer(Answer("t1", "succeeded", final=True, content=content), as_json=False)
    assert capsys.readouterr().err == f"task t1 succeeded: {who}\n"
