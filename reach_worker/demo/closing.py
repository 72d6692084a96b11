"""The end of a run: its figures, and what in it was not as it should be, read from the reach log and the answers."""

from collections.abc import Iterator
from dataclasses import dataclass

from reach_worker.core.outcome import DeadLetterReason
from reach_worker.demo.board import Board
from reach_worker.demo.verdict import Figures, differences, figures, moved_on, shortfalls
from reach_worker.store.history import StoreReader
from reach_worker.store.records import TaskHistory


@dataclass(frozen=True, slots=True)
class Closing:
    """What a run came to. ``moved``: tasks that another agent did after the one that had them was killed."""

    figures: Figures
    histories: dict[str, TaskHistory | None]
    moved: list[str]
    faults: list[str]


async def examine(reader: StoreReader, board: Board, killed: str, seconds: float) -> Closing:
    """Read the whole history of every task, and compare it with what was to be."""
    histories = {task.name: await reader.task(task.name) for task in board.tasks}
    counts = await reader.counts()
    result = figures(histories, await reader.breaker_moves(0), seconds)
    moved = moved_on(histories, killed)
    faults = [*_of_tasks(board, histories)]
    faults += shortfalls(
        result, moved, killed, doubled_ends=counts.doubled_ends, in_log=sum(counts.tasks.values())
    )
    return Closing(result, histories, moved, faults)


def _of_tasks(board: Board, histories: dict[str, TaskHistory | None]) -> Iterator[str]:
    for task in board.tasks:
        replayed = task.reason == DeadLetterReason.PAYLOAD_REFUSED
        replies = board.replies.get(task.name, [])
        for fault in differences(task, histories[task.name], replies, replayed=replayed):
            yield f"{task.name}: {fault}"


def summary(result: Figures) -> list[str]:
    """The figures for people."""
    return [
        f"{result.tasks} tasks in {result.seconds:g} s:",
        f"  {result.succeeded:4} done, {result.retried} of them after more than one attempt",
        f"  {result.rerouted:4} re-routed to another agent",
        f"  {result.dead_lettered:4} dead letters",
        f"  {result.unmatched:4} unmatched: no agent may take it, it waits for a person",
        f"  {result.breaker_opened:4} breaker openings",
    ]
