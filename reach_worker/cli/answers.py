"""How an answer is shown, and that there is none."""

import sys
from collections.abc import Mapping
from typing import Any

import orjson

from reach_worker.cli.output import print_json_line, put, say
from reach_worker.client import Answer
from reach_worker.core.task_errors import CallTimeout, TaskError, UnknownTask


def answer_of(content: Mapping[str, Any], task_id: str = "") -> Answer:
    """The answer that an object is. ``task_id``: where it does not say that itself."""
    return Answer(
        str(content.get("task_id", task_id)),
        str(content.get("status", "unreadable")),
        content.get("final") is not False,
        content,
    )


def print_answer(answer: Answer, *, as_json: bool, with_result: bool = True) -> None:
    """The result to stdout, who did it beside that; or what became of the task instead. ``as_json``: all, as a line."""
    if as_json:
        print_json_line(answer.content)
        return
    content = answer.content
    if answer.succeeded:
        agents = [one.get("agent") for one in content.get("answers", ()) if isinstance(one, dict)]
        who = f"agents {', '.join(map(str, agents))}" if agents else f"agent {content.get('agent')}"
        say(f"task {answer.task_id} succeeded: {who}, attempt {content.get('attempt')}")
        if with_result:
            sys.stdout.write(orjson.dumps(content.get("result"), option=orjson.OPT_INDENT_2).decode() + "\n")
    else:
        reason = f", {content['reason']}" if "reason" in content else ""
        error = f": {content['error']}" if content.get("error") else ""
        put(f"task {answer.task_id} {answer.status}{reason}{error}")
    sys.stdout.flush()


def print_task_error(error: TaskError, *, as_json: bool) -> None:
    """What became of a task that has no result. No answer says nothing of it, unless nobody knows it."""
    if error.answer:
        print_answer(answer_of(error.answer, error.task_id), as_json=as_json)
    elif as_json:
        kinds = {CallTimeout: "no_answer", UnknownTask: "unknown"}
        status = kinds.get(type(error), "lost")
        print_json_line({"task_id": error.task_id, "status": status, "final": False, "error": error.why})
    else:
        put(str(error))
