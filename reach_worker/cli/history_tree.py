"""A task's whole history as a tree, in the order in which it happened."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from reach_worker.cli.decision_tree import CLOSED, OPEN, QUIET, add_decision
from reach_worker.cli.human_times import local, took
from reach_worker.cli.output import Node
from reach_worker.core.duplicates import TaskState
from reach_worker.core.outcome import OutcomeClass
from reach_worker.ports import Dispatched, Ended, OutcomeSeen, Standing
from reach_worker.store.records import StoredTask, TaskHistory

MOST_OTHERS: Final = 20
SAYS_SO: Final = "the task has side effects, or a process that had it died"
_STYLES: Final = {
    TaskState.SUCCEEDED: "bold green",
    TaskState.DEAD_LETTER: "bold red",
    TaskState.UNMATCHED: "bold yellow",
}


def history_tree(history: TaskHistory, others: Sequence[StoredTask] = ()) -> Node:
    """The tree. ``others``: tasks of the same flow, this one may be among them."""
    task = history.task
    root = Node(f"task {task.task_id}: {state_words(task)}", _STYLES.get(task.state, "bold"))
    root.add(f"{task.capability or 'no capability'} for {task.caller}, flow {task.flow_id}")
    for life in history.lives:
        place = root if len(history.lives) == 1 else root.add(_life_words(life), "bold")
        place.add(f"first seen {local(life.first_seen)}, taken by router {life.router}")
        if chain := _chain(history, life.life):
            place.add(f"handed on: {' → '.join(chain)}")
        _add_life(place, history, life)
    _add_callers(root, history)
    _add_flow(root, [other for other in others if other.task_id != task.task_id], task.caller)
    return root


def state_words(task: StoredTask) -> str:
    """The state of a task, with its reason."""
    state = task.state.value.replace("_", " ")
    match task.state:
        case TaskState.DEAD_LETTER:
            return f"{state}, {task.reason.value if task.reason else 'no reason'}: {task.error}"
        case TaskState.CANCELLED if task.error:
            return f"{state}, {task.error}"
        case TaskState.UNMATCHED:
            return f"{state}, waits for a person: {task.parked_reason}"
        case _:
            return state


def _life_words(life: StoredTask) -> str:
    began = "first life" if life.life == 0 else f"life {life.life + 1}, begun by replay or publishing again"
    return f"{began}: {state_words(life)}"


def _chain(history: TaskHistory, life: int) -> list[str]:
    """The agents that had it one after the other in this life; nothing where it was not handed on."""
    handed = {
        outcome.dispatch_id
        for outcome in history.outcomes
        if outcome.outcome is OutcomeClass.HANDOFF and outcome.standing is Standing.CURRENT
    }
    sent = [dispatch for dispatch in history.dispatches if dispatch.life == life]
    chain = [dispatch.agent_id for dispatch in sent if dispatch.dispatch_id in handed]
    if chain and sent[-1].dispatch_id not in handed:
        chain.append(sent[-1].agent_id)
    return chain


@dataclass(frozen=True, slots=True)
class _Event:
    at: int
    rank: int
    part: object


def _add_life(place: Node, history: TaskHistory, life: StoredTask) -> None:
    for event in sorted(_events(history, life.life), key=lambda event: (event.at, event.rank)):
        match event.part:
            case Dispatched() as dispatch:
                _add_attempt(place, dispatch, history)
            case OutcomeSeen() as outcome:
                _add_outcome(place, outcome, history)
            case Ended() as end:
                _add_end(place, end)
            case node:
                place.children.append(node)  # type: ignore[arg-type]  # the decisions, drawn before


def _events(history: TaskHistory, life: int) -> Iterator[_Event]:
    for decided in history.decisions:
        if decided.life == life:
            drawn = add_decision(Node(""), decided.decision, f"decision at {local(decided.at)}")
            yield _Event(decided.at, 0, drawn)
    known = {dispatch.dispatch_id for dispatch in history.dispatches}
    for dispatch in history.dispatches:
        if dispatch.life == life:
            yield _Event(dispatch.at, 1, dispatch)
    for outcome in history.outcomes:
        if outcome.life == life and outcome.dispatch_id not in known:
            yield _Event(outcome.at, 2, outcome)
    for end in history.ends:
        if end.life == life:
            yield _Event(end.at, 3, end)


def _add_attempt(place: Node, dispatch: Dispatched, history: TaskHistory) -> None:
    node = place.add(f"attempt {dispatch.attempt} → {dispatch.agent_id}", "bold")
    node.add(f"sent {local(dispatch.at)} by router {dispatch.router}, dispatch {dispatch.dispatch_id}", QUIET)
    for started in history.starts:
        if started.dispatch_id == dispatch.dispatch_id:
            node.add(f"the agent said that it begins, {_after(dispatch.at, started.at)}: {SAYS_SO}")
    outcomes = [each for each in history.outcomes if each.dispatch_id == dispatch.dispatch_id]
    for outcome in outcomes:
        _add_outcome(node, outcome, history, sent_at=dispatch.at)
    if not outcomes:
        node.add("no outcome yet", QUIET)


def _ran(outcome: OutcomeSeen) -> str:
    """How long, and where. Without an instance it is the router's own conclusion, and nobody has said how long."""
    if not outcome.instance_id:
        return "its agent said nothing"
    ran = "it did not run" if outcome.duration_ms is None else f"it ran {took(outcome.duration_ms / 1000)}"
    return f"{ran}, instance {outcome.instance_id}"


def _add_outcome(
    place: Node, outcome: OutcomeSeen, history: TaskHistory, *, sent_at: int | None = None
) -> None:
    message = f": {outcome.message}" if outcome.message else ""
    node = place.add(f"{_label(outcome, history)}{outcome.outcome.value}{message}", _style(outcome))
    came = local(outcome.at) if sent_at is None else f"{local(outcome.at)}, {_after(sent_at, outcome.at)}"
    node.add(f"{came}; {_ran(outcome)}", QUIET)
    if used := _used(outcome):
        node.add(used, QUIET)


def _used(outcome: OutcomeSeen) -> str:
    """What the attempt has cost, empty if it says nothing of that."""
    parts = []
    if outcome.cost:
        parts.append(f"cost {outcome.cost:.6g}")
    if outcome.tokens_in or outcome.tokens_out:
        parts.append(f"{outcome.tokens_in} tokens in, {outcome.tokens_out} out")
    return "; ".join(parts)


def _label(outcome: OutcomeSeen, history: TaskHistory) -> str:
    """What is unusual about an outcome: it was recorded, and not acted on."""
    if outcome.standing is Standing.CURRENT:
        return ""
    ends = [end.at for end in history.ends if end.life == outcome.life]
    return "late, not acted on: " if ends and min(ends) <= outcome.at else "stale, not acted on: "


def _style(outcome: OutcomeSeen) -> str:
    if outcome.standing is not Standing.CURRENT:
        return "yellow"
    if outcome.outcome in (OutcomeClass.SUCCEEDED, OutcomeClass.HANDOFF):
        return OPEN
    return "" if outcome.outcome in (OutcomeClass.RELEASED, OutcomeClass.CANCELLED) else CLOSED


def _after(since_us: int, at_us: int) -> str:
    return f"{took(max(0, at_us - since_us) / 1e6)} after it was sent"


def _add_end(place: Node, end: Ended) -> None:
    why = (
        f", {end.reason.value}: {end.error}"
        if end.reason is not None
        else f": {end.error}"
        if end.error
        else ""
    )
    state = end.state.value.replace("_", " ")
    place.add(f"end at {local(end.at)}: {state}{why}", _STYLES.get(end.state, "bold"))


def _add_flow(root: Node, others: Sequence[StoredTask], caller: str) -> None:
    """What else belongs to it: the legs of a race or fan-out, what its agents asked of others."""
    if not others:
        return
    node = root.add("in the same flow", "bold")
    for other in others[:MOST_OTHERS]:
        what = "" if other.caller == caller else f"{other.capability} for {other.caller}, "
        node.add(f"{other.task_id}: {what}{state_words(other)}", _STYLES.get(other.state, ""))
    if len(others) > MOST_OTHERS:
        node.add(f"and {len(others) - MOST_OTHERS} more: reach explain --flow {others[0].flow_id}", QUIET)


def _add_callers(root: Node, history: TaskHistory) -> None:
    """Who else asked for it, and whom the answer did not find."""
    for joined in history.waiters:
        root.add(f"published again at {local(joined.at)}, the answer goes to {joined.reply_to} too")
    for lost in history.lost_answers:
        root.add(f"nobody took the answer at {lost.reply_to} any more, {local(lost.at)}", "yellow")
