"""What sending a dead letter or an unmatched task on its way again sends, or why it stays."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from reach_worker.core.dead_letter import DeadLetter
from reach_worker.core.duplicates import KnownTask, TaskState
from reach_worker.core.envelope import Envelope
from reach_worker.core.tags import fold
from reach_worker.core.task import Refusal, Task, decode_task

MAX_REPLAYS: Final = 3
"""A message that was replayed so often is held back unless forced."""
PAST_LIMIT: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class HeldBack:
    """Not replayed, with why and what would change it."""

    why: str


def gone_on(letter: DeadLetter, known: KnownTask | None, *, force: bool) -> HeldBack | None:
    """Why a dead letter is past, by what the store knows of its task; ``None`` if it is not, or nobody knows.

    A success that turned up late resolves it. One whose task began anew is a copy that a crash left behind, or the
    publisher sent the task again: the routers would let a replay of it go, so that is not forced either.
    """
    if known is None or letter.nameless:
        return None
    if known.life > letter.envelope.life:
        state = _STATES[known.state]
        return HeldBack(
            f"its task began anew since (replayed, or published again) and {state}; drop this copy"
        )
    if known.life == letter.envelope.life and known.state is TaskState.SUCCEEDED and not force:
        return HeldBack("its task has succeeded after all; drop it, or --force runs the task once more")
    return None


_STATES: Final[Mapping[TaskState, str]] = {
    TaskState.UNDER_WAY: "is under way",
    TaskState.UNMATCHED: "waits among the unmatched",
    TaskState.SUCCEEDED: "has succeeded",
    TaskState.DEAD_LETTER: "has a later dead letter",
    TaskState.CANCELLED: "was cancelled",
}


@dataclass(frozen=True, slots=True)
class Anew:
    """How a dead letter begins anew.

    ``body`` replaces the task's own (an edited one). ``now_us``: UTC microseconds; the deadline counts from there.
    ``new_id``: for a message that never had one.
    """

    now_us: int
    max_bytes: int
    new_id: str
    to_agent: str | None = None
    body: bytes | None = None
    force: bool = False


def replayed(letter: DeadLetter, anew: Anew) -> tuple[Envelope, bytes] | HeldBack:
    """What replaying a dead letter sends to the routers: a new life, with a fresh budget and the old history kept.

    The same letter always makes the same life of the same task, so that a second copy is told from another replay.
    A task that was handed on begins anew with the stretch that died: what the agents before did is done.
    """
    if letter.is_outcome:
        return HeldBack("it is an agent's outcome, not a task; read it, then drop it")
    if letter.envelope.replays >= MAX_REPLAYS and not anew.force:
        return HeldBack(f"it was replayed {letter.envelope.replays} times already; --force replays it again")
    sent = letter.body if anew.body is None else anew.body
    task = decode_task(sent, max_bytes=anew.max_bytes)
    if isinstance(task, Refusal):
        return HeldBack(f"the body is no task ({task.reason.value}): {task.error}; --edit mends it")
    old = letter.envelope
    if letter.nameless:
        old = replace(old, task_id=anew.new_id, flow_id=task.flow_id or anew.new_id)
    past = [*(orjson.loads(old.past) if old.past else []), *(attempt.as_dict() for attempt in old.attempts)]
    envelope = replace(
        old,
        first_seen=old.first_seen or anew.now_us,
        life=old.life + 1,
        replays=old.replays + 1,
        attempts=(),
        released=(),
        crashes=0,
        past=_shortened(past),
        deadline=None if task.deadline_ms is None else anew.now_us + task.deadline_ms * 1000,
        not_before=0,
        capability=fold(task.capability or ""),
        to_agent=anew.to_agent or _chosen_by_agent(old, task),
        from_agent=_asker(old, task),
        hops=0,
        visited=(),
        side_effects=task.side_effects,
    )
    return envelope, sent


def _asker(old: Envelope, task: Task) -> str | None:
    """The agent for which the task is done, if it is for one: it was handed on, or is a call."""
    if task.handoff is not None:
        return task.handoff.from_agent
    return old.from_agent if old.from_agent == old.caller else None


def _chosen_by_agent(old: Envelope, task: Task) -> str | None:
    """The agent that another one handed it to by name; a person's choice is not made twice."""
    handed = task.handoff is not None and old.from_agent == task.handoff.from_agent
    return old.to_agent if handed else None


def assigned(
    letter: DeadLetter, *, to_agent: str | None, capability: str | None, max_bytes: int
) -> tuple[Envelope, bytes] | HeldBack:
    """What assigning an unmatched task sends to the routers: the same task, now for whom a person chose."""
    body = letter.body
    if capability is not None:
        body = _with_capability(body, capability)
    task = decode_task(body, max_bytes=max_bytes)
    if isinstance(task, Refusal):
        return HeldBack(f"the body is no task ({task.reason.value}): {task.error}")
    envelope = replace(
        letter.envelope, capability=fold(task.capability or ""), to_agent=to_agent, not_before=0
    )
    return envelope, body


def _with_capability(body: bytes, capability: str) -> bytes:
    """The task with another capability, in place of its intent if it had one. A body that is no object stays."""
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body
    if not isinstance(data, dict):
        return body
    return orjson.dumps(
        {**{name: value for name, value in data.items() if name != "intent"}, "capability": capability}
    )


def _shortened(past: list[Any]) -> str | None:
    """The history as JSON text; the oldest go first where it would not fit into the headers."""
    while past and len(orjson.dumps(past)) > PAST_LIMIT:
        past = past[1:]
    return orjson.dumps(past).decode() if past else None
