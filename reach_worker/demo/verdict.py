"""What a run came to, by the reach log and the answers, and where that is not what it should be."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from reach_worker.core.breaker import BreakerState
from reach_worker.core.duplicates import TaskState
from reach_worker.core.outcome import OutcomeClass
from reach_worker.demo.caller import Reply
from reach_worker.demo.tasks import DemoTask
from reach_worker.ports import BreakerMoved, Standing
from reach_worker.store.records import StoredTask, TaskHistory

Histories = Mapping[str, TaskHistory | None]


@dataclass(frozen=True, slots=True)
class Figures:
    """A run in numbers.

    ``succeeded``, ``dead_lettered`` and ``unmatched`` are the ends of first lives, so they add up to ``tasks``;
    ``replayed`` counts dead letters that succeeded in another life. ``retried``: tasks with more than one attempt
    (being released is none: it never ran). ``rerouted``: tasks that were sent to more than one agent.
    """

    tasks: int
    succeeded: int
    retried: int
    rerouted: int
    dead_lettered: int
    unmatched: int
    breaker_opened: int
    replayed: int
    seconds: float


def figures(histories: Histories, moves: Iterable[BreakerMoved], seconds: float) -> Figures:
    """Count."""
    known = [history for history in histories.values() if history is not None]
    first = [history.lives[0].state for history in known]
    return Figures(
        tasks=len(histories),
        succeeded=first.count(TaskState.SUCCEEDED),
        retried=sum(_retried(history) for history in known),
        rerouted=sum(len(agents_of(history)) > 1 for history in known),
        dead_lettered=first.count(TaskState.DEAD_LETTER),
        unmatched=first.count(TaskState.UNMATCHED),
        breaker_opened=sum(move.state == BreakerState.OPEN.value for move in moves),
        replayed=sum(_replayed(history) for history in known),
        seconds=round(seconds, 1),
    )


def agents_of(history: TaskHistory) -> list[str]:
    """The agents that a task was sent to, in order, each once."""
    return list(dict.fromkeys(dispatch.agent_id for dispatch in history.dispatches))


def _retried(history: TaskHistory) -> bool:
    return any(dispatch.attempt > 1 for dispatch in history.dispatches)


def _replayed(history: TaskHistory) -> bool:
    return any(life.life > 0 and life.state is TaskState.SUCCEEDED for life in history.lives)


def moved_on(histories: Histories, agent_id: str) -> list[str]:
    """Tasks that this agent had and could not do, and another agent did."""
    return [
        name
        for name, history in histories.items()
        if history is not None
        and any(o.agent_id == agent_id and o.outcome is not OutcomeClass.SUCCEEDED for o in history.outcomes)
        and any(o.agent_id != agent_id and o.outcome is OutcomeClass.SUCCEEDED for o in history.outcomes)
    ]


# ---- What differs


def differences(
    task: DemoTask, history: TaskHistory | None, replies: Sequence[Reply], *, replayed: bool
) -> list[str]:
    """What of one task is not as it should be. ``replayed``: it was repaired and began another life."""
    if history is None:
        return ["the reach log does not know it"]
    expected = [(task.expect, task.reason), *([("succeeded", None)] if replayed else [])]
    return [
        *_ends(expected, history),
        *_answers([state for state, _ in expected], replies),
        *_dispatches(history),
    ]


def _ends(expected: Sequence[tuple[str, str | None]], history: TaskHistory) -> Iterator[str]:
    if len(history.lives) != len(expected):
        yield f"it has {len(history.lives)} lives, not {len(expected)}"
    for life, (state, reason) in zip(history.lives, expected, strict=False):
        ended, wanted = _shown(life), f"{state} ({reason})" if reason else state
        if ended != wanted:
            yield f"it is {ended}, not {wanted}"
        ends = sum(end.life == life.life for end in history.ends)
        should = 0 if state == TaskState.UNMATCHED.value else 1
        if ends != should:
            yield f"life {life.life} has {ends} ends, not {should}"
        if not life.accepted:
            yield f"the reach log does not say how life {life.life} began"


def _shown(life: StoredTask) -> str:
    return f"{life.state.value} ({life.reason.value})" if life.reason else life.state.value


def _answers(expected: Sequence[str], replies: Sequence[Reply]) -> Iterator[str]:
    got = [reply.status for reply in replies]
    if got != list(expected):
        yield f"its answers are {', '.join(got) or 'none'}, not {', '.join(expected)}"


def _dispatches(history: TaskHistory) -> Iterator[str]:
    settled = {o.dispatch_id for o in history.outcomes if o.standing is Standing.CURRENT}
    for dispatch in history.dispatches:
        if dispatch.dispatch_id not in settled:
            yield f"what became of attempt {dispatch.attempt} at {dispatch.agent_id} is not known"


def shortfalls(
    result: Figures, moved: Sequence[str], killed: str, doubled_ends: int, in_log: int
) -> Iterator[str]:
    """What of the whole is not as it should be."""
    if result.breaker_opened < 1:
        yield "no breaker opened"
    if result.rerouted < 1:
        yield "no task was re-routed"
    if not moved:
        yield f"nothing of what {killed} had when it was killed was done by another agent"
    if result.replayed != 1:
        yield f"{result.replayed} dead letters were replayed, not 1"
    if doubled_ends:
        yield f"{doubled_ends} lives of tasks ended twice"
    if in_log != result.tasks:
        yield f"the reach log has {in_log} tasks, not {result.tasks}"
