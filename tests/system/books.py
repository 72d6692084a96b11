"""What the store and the queues say in the end, looked at from outside."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from pika.adapters.blocking_connection import BlockingChannel
from tenacity import RetryError

from reach_worker.core.backoff import RUNGS_MS
from reach_worker.core.names import Names
from reach_worker.ports import Standing
from reach_worker.store import StoreReader
from reach_worker.store.records import TaskHistory
from tests.system.letters import ready
from tests.tooling.observing import wait_until


def histories(store: Path) -> dict[str, TaskHistory]:
    """Everything that the store knows of every task."""

    async def read() -> dict[str, TaskHistory]:
        async with StoreReader.open(store) as reader:
            known = [task.task_id for task in await reader.recent(10_000)]
            found = {task_id: await reader.task(task_id) for task_id in known}
        return {task_id: history for task_id, history in found.items() if history is not None}

    return asyncio.run(read())


def assert_one_end_each(found: Mapping[str, TaskHistory], task_ids: Iterable[str]) -> None:
    """Every task has exactly one end, and nothing else is there."""
    assert found.keys() == set(task_ids)
    several = {task_id: history.ends for task_id, history in found.items() if len(history.ends) != 1}
    assert several == {}


def attempts(history: TaskHistory) -> list[tuple[str, str]]:
    """Agent and outcome of every attempt that counted, in order."""
    current = [seen for seen in history.outcomes if seen.standing is Standing.CURRENT]
    return [(seen.agent_id, seen.outcome.value) for seen in sorted(current, key=lambda seen: seen.at)]


def outcomes(found: Mapping[str, TaskHistory]) -> Counter[str]:
    """How often each class of outcome counted."""
    return Counter(outcome for history in found.values() for _, outcome in attempts(history))


def working_queues(names: Names, agents: Iterable[str], capabilities: Iterable[str]) -> Sequence[str]:
    """Every queue that must be empty when nobody has anything to do."""
    return [
        names.intake,
        names.returns,
        names.outcomes("router-1"),
        *(names.retry(rung) for rung in RUNGS_MS),
        *(names.agent(agent) for agent in agents),
        *(names.lane(capability) for capability in capabilities),
    ]


def until_empty(channel: BlockingChannel, queues: Sequence[str]) -> None:
    """Wait until nothing is left in these queues. Only once nobody consumes them does that mean anything."""
    with suppress(RetryError):
        wait_until(lambda: not any(ready(channel, queue) for queue in queues), 10)
    assert {queue: count for queue in queues if (count := ready(channel, queue))} == {}
