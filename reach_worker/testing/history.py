"""What a world remembers of a task: its attempts, and why it went where it went."""

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from reach_worker.cli.history_tree import history_tree
from reach_worker.cli.output import tree_text
from reach_worker.clock import SystemClock
from reach_worker.core.outcome import OutcomeClass
from reach_worker.errors import BadInput
from reach_worker.ports import Accepted, Dispatched, Ended, OutcomeSeen, Row, Standing
from reach_worker.store import SqliteStore, StoreReader
from reach_worker.testing.broker import MemoryBroker


@dataclass(frozen=True, slots=True)
class Try:
    """One dispatch of a task. ``outcome`` is ``None`` while it is out; ``number`` counts the attempts from 1."""

    agent: str
    number: int
    outcome: OutcomeClass | None
    message: str
    instance: str


def tries(rows: Sequence[Row], task_id: str) -> list[Try]:
    """The dispatches of a task and of its legs, in order, each with its outcome."""
    ended = {
        row.dispatch_id: row
        for row in reversed(rows)
        if isinstance(row, OutcomeSeen) and row.standing is Standing.CURRENT
    }
    return [
        _try(row, ended.get(row.dispatch_id))
        for row in rows
        if isinstance(row, Dispatched) and (row.task_id == task_id or row.task_id.startswith(f"{task_id}~"))
    ]


def _try(sent: Dispatched, ended: OutcomeSeen | None) -> Try:
    if ended is None:
        return Try(sent.agent_id, sent.attempt, None, "", "")
    return Try(sent.agent_id, sent.attempt, ended.outcome, ended.message, ended.instance_id)


def explained(rows: Sequence[Row], task_id: str) -> str:
    """What ``reach explain`` prints. To be called in a thread: it makes a store and a loop of its own.

    Raises :class:`BadInput` if no row is of the task.
    """
    return asyncio.run(_explained(rows, task_id))


async def _explained(rows: Sequence[Row], task_id: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "reach.db"
        async with SqliteStore.open(path, clock=SystemClock()) as store:
            await store.record(rows)
        async with StoreReader.open(path) as reader:
            history = await reader.task(task_id)
            flow = [] if history is None else await reader.flow(history.task.flow_id)
    if history is None:
        raise BadInput(f"no router has written anything down about a task {task_id!r}")
    return tree_text(history_tree(history, flow))


def under_way(rows: Sequence[Row], broker: MemoryBroker) -> str:
    """Where everything is, for whoever has waited in vain."""
    ended = {row.task_id for row in rows if isinstance(row, Ended)}
    waiting = [f"{len(queue.ready)} in {name}" for name, queue in broker.queues.items() if queue.ready]
    lines = [f"connected: {', '.join(client.name for client in broker.clients) or 'nobody'}"]
    lines += [f"messages that wait: {', '.join(waiting) or 'none'}"]
    for row in rows:
        if isinstance(row, Accepted) and row.task_id not in ended:
            lines.append(f"task {row.task_id}: {tries(rows, row.task_id) or 'not sent to anybody yet'}")
    return "\n".join(lines)
