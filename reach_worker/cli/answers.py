"""How an answer is shown."""

import sys

import orjson

from reach_worker.cli.output import print_json_line, put, say
from reach_worker.client import Answer


def print_answer(answer: Answer, *, as_json: bool) -> None:
    """The result to stdout, who did it beside that; or what became of the task instead. ``as_json``: all, as a line."""
    if as_json:
        print_json_line(answer.content)
        return
    content = answer.content
    if answer.succeeded:
        say(
            f"task {answer.task_id} succeeded: agent {content.get('agent')}, attempt {content.get('attempt')}"
        )
        sys.stdout.write(orjson.dumps(content.get("result"), option=orjson.OPT_INDENT_2).decode() + "\n")
    else:
        reason = f", {content['reason']}" if "reason" in content else ""
        error = f": {content['error']}" if content.get("error") else ""
        put(f"task {answer.task_id} {answer.status}{reason}{error}")
    sys.stdout.flush()
