"""Many tasks from a JSON-lines file, all checked before one is sent."""

from collections.abc import Iterator
from typing import Any, Final

import orjson

from reach_worker.client import LONGEST_ID
from reach_worker.core.task import Refusal, task_from
from reach_worker.errors import BadInput, Problem

MOST_PROBLEMS: Final = 50


def tasks_in(content: bytes, *, file: str, max_bytes: int) -> list[dict[str, Any]]:
    """The tasks, one object a line; empty lines are none. Raises one ``BadInput`` that names each wrong line."""
    tasks: list[dict[str, Any]] = []
    problems: list[Problem] = []
    lines_by_id: dict[str, int] = {}
    for number, line in _lines(content):
        found = _task(line, max_bytes)
        if isinstance(found, str):
            problems.append(Problem(found, file=file, line=number))
            continue
        first = lines_by_id.setdefault(found["task_id"], number) if "task_id" in found else number
        if first != number:
            message = f"task_id {found['task_id']!r} is in line {first} already; it would be done once"
            problems.append(Problem(message, file=file, line=number))
        tasks.append(found)
    if problems:
        raise BadInput(_some(problems, file))
    if not tasks:
        raise BadInput(
            Problem("holds no task", file=file, hint='one object a line: {"capability": …, "payload": …}')
        )
    return tasks


def _lines(content: bytes) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if line.strip():
            yield number, line


def _task(line: bytes, max_bytes: int) -> dict[str, Any] | str:
    """The task, or what is wrong with it."""
    try:
        data = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return f"not JSON: {error}"
    if not isinstance(data, dict):
        return "a task is a JSON object"
    if len(line) > max_bytes:
        return f"the task has {len(line)} bytes, the limit is {max_bytes} (intake.max_body_bytes)"
    checked = task_from(data)
    if isinstance(checked, Refusal):
        return checked.error
    size = len((checked.task_id or "").encode())
    return f"the task_id has {size} bytes, its answer can carry {LONGEST_ID}" if size > LONGEST_ID else data


def _some(problems: list[Problem], file: str) -> list[Problem]:
    """The first of them, where they are very many."""
    left = len(problems) - MOST_PROBLEMS
    if left <= 0:
        return problems
    return [*problems[:MOST_PROBLEMS], Problem(f"and {left} more lines are wrong", file=file)]
