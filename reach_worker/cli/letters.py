"""Dead letters and unmatched tasks on the screen."""

import base64
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, Final

import orjson

from reach_worker.cli.body_edits import set_out
from reach_worker.cli.human_times import local, local_second, took
from reach_worker.cli.output import Node, Table
from reach_worker.core.dead_letter import DeadLetter, error_group_id

ERROR_SHOWN: Final = 100
BODY_SHOWN: Final = 20_000


def letter_table(letters: Sequence[DeadLetter], past: Sequence[str | None] = ()) -> Table:
    """One row each. ``past``: why one is, where it is."""
    columns = ("TASK", "REASON", "CAPABILITY", "ATTEMPTS", "LAST AGENT", "REPLAYS", "DIED", "ERROR")
    return Table(columns, [_row(*each) for each in zip_longest(letters, past)])


def _row(letter: DeadLetter, past: str | None) -> Sequence[str]:
    envelope = letter.envelope
    last = envelope.attempts[-1].agent_id if envelope.attempts else "-"
    return (
        letter.task_id, letter.reason.value, envelope.capability or "-", str(len(envelope.attempts)), last,
        str(envelope.replays), moment(letter.died_at),
        first_line(f"[past: {past}] {letter.error}" if past else letter.error),
    )  # fmt: skip


def moment(at_us: int) -> str:
    """A time for a table; 0 stands for one that nobody knows."""
    return local_second(at_us) if at_us else "not known"


def first_line(text: str) -> str:
    """The first line of a text, cut to what a table can bear."""
    line = text.splitlines()[0] if text else ""
    return line if len(line) <= ERROR_SHOWN else line[:ERROR_SHOWN] + "…"


def letter_tree(letter: DeadLetter, past: str | None = None) -> Node:
    """All that one says. ``past``: why it is, where it is."""
    envelope = letter.envelope
    root = Node(f"task {letter.task_id}: {letter.reason.value}", "bold red")
    root.add(f"error: {letter.error or 'none is given'}")
    root.add(f"group of errors: {error_group_id(letter)}")
    if past:
        root.add(f"past: {past}", "yellow")
    root.add(f"{envelope.capability or 'no capability'} for {envelope.caller}, flow {envelope.flow_id}")
    seen, died = (local(at) if at else "not known" for at in (envelope.first_seen, letter.died_at))
    root.add(f"first seen {seen}, died {died}, replayed {envelope.replays} times")
    if letter.is_outcome:
        root.add(
            "this is an agent's outcome that nobody could read, not a task; it cannot be replayed", "yellow"
        )
    earlier = orjson.loads(envelope.past) if envelope.past else []
    add_attempts(root, "attempts", [attempt.as_dict() for attempt in envelope.attempts])
    add_attempts(root, "attempts before it was replayed", earlier)
    if envelope.visited:
        root.add(f"handed on or called for by {' → '.join(envelope.chain())}")
    add_body(root, letter.body)
    if letter.received != letter.body:
        add_body(root, letter.received, "as its caller sent it")
    return root


def add_attempts(root: Node, title: str, attempts: Sequence[Any]) -> None:
    """The attempts that came along in a message's headers; anything else in there is shown as it is."""
    if not attempts:
        return
    node = root.add(title)
    for attempt in attempts:
        node.add(_attempt(attempt))


def _attempt(attempt: Any) -> str:
    try:
        lasted = took(max(0, attempt["ended_at"] - attempt["dispatched_at"]) / 1e6)
        message = f": {attempt['message']}" if attempt["message"] else ""
        head = f"attempt {attempt['attempt']} → {attempt['agent']}: {attempt['outcome']}{message}"
        return f"{head} ({local(attempt['dispatched_at'])}, {lasted})"
    except (KeyError, TypeError):
        return orjson.dumps(attempt).decode()


def add_body(root: Node, body: bytes, what: str = "body") -> None:
    """The body, line by line: JSON set out for reading, all else as it came."""
    node = root.add(f"{what}, {len(body)} bytes")
    text = set_out(body).decode("utf-8", "backslashreplace")
    shown = (
        text if len(text) <= BODY_SHOWN else f"{text[:BODY_SHOWN]}\n… (cut; `reach dlq export` has all of it)"
    )
    for line in shown.splitlines():
        node.add(line)


def letter_data(letter: DeadLetter, past: str | None = None) -> dict[str, Any]:
    """Plain data; a body that is not UTF-8 comes in base64 as well. ``past``: why it is, where it is."""
    data = {**letter.as_dict(), "group": error_group_id(letter), "past": past}
    try:
        letter.body.decode()
    except UnicodeDecodeError:
        data["body_base64"] = base64.b64encode(letter.body).decode()
    return data
