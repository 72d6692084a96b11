"""What of the news is worth a line, in plain words. Many of one kind at once make one line."""

from collections.abc import Iterable, Iterator, Sequence

from reach_worker.core.breaker import BreakerState
from reach_worker.core.duplicates import TaskState
from reach_worker.core.outcome import OutcomeClass, cut
from reach_worker.demo.board import Board
from reach_worker.demo.caller import Heard, Reply
from reach_worker.ports import BreakerMoved, Dispatched, Ended, OutcomeSeen
from reach_worker.store.tail import News

_LONGEST = 90


def told(heard: Iterable[Heard], news: Sequence[News], board: Board) -> list[str]:
    """Lines about what was heard and read just now. ``board`` has taken it in already."""
    return [*_failures(news), *_moves(news), *_moved_on(news, board), *_ends(news), *_unmatched(heard)]


def _moves(news: Sequence[News]) -> Iterator[str]:
    for row in news:
        if isinstance(row, BreakerMoved):
            opened = row.state == BreakerState.OPEN.value
            yield (
                f"breaker of {row.agent_id} opens, after {_short(row.reason)}"
                if opened
                else f"breaker of {row.agent_id} closes: its probe succeeded"
            )


def _failures(news: Sequence[News]) -> Iterator[str]:
    grouped: dict[tuple[str, OutcomeClass], list[OutcomeSeen]] = {}
    for row in news:
        if isinstance(row, OutcomeSeen) and row.outcome is not OutcomeClass.SUCCEEDED:
            grouped.setdefault((row.agent_id, row.outcome), []).append(row)
    for (agent_id, outcome), rows in grouped.items():
        yield f"{agent_id}: {len(rows)} × {outcome.value} ({_short(rows[0].message)})"


def _moved_on(news: Sequence[News], board: Board) -> Iterator[str]:
    grouped: dict[tuple[str, str], list[str]] = {}
    for row in news:
        if isinstance(row, Dispatched):
            before = [d for d in board.dispatches[row.task_id] if d.life == row.life and d.at < row.at]
            if before and before[-1].agent_id != row.agent_id:
                grouped.setdefault((before[-1].agent_id, row.agent_id), []).append(row.task_id)
    for (old, new), tasks in grouped.items():
        which = tasks[0] if len(tasks) == 1 else f"{len(tasks)} tasks"
        yield f"{which} re-routed from {old} to {new}"


def _ends(news: Sequence[News]) -> Iterator[str]:
    for row in news:
        if isinstance(row, Ended) and row.state is TaskState.DEAD_LETTER:
            yield f"{row.task_id} is a dead letter, {row.reason}: {_short(row.error)}"


def _unmatched(heard: Iterable[Heard]) -> Iterator[str]:
    for one in heard:
        if isinstance(one, Reply) and one.status == "unmatched":
            yield f"{one.name} is unmatched: {_short(one.error)}"


def _short(text: str) -> str:
    return cut(" ".join(text.split()), _LONGEST)
