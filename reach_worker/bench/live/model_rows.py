"""What the store is told of a task that succeeds at its first attempt: the rows of its whole life."""

from collections.abc import Iterator, Mapping
from itertools import cycle
from typing import Any, Final

import orjson

from reach_worker.bench.live.known_fleet import CAPABILITIES, known_fleet
from reach_worker.core.duplicates import TaskState
from reach_worker.core.gates import Ask
from reach_worker.core.outcome import OutcomeClass
from reach_worker.core.policy import RoutingPolicy
from reach_worker.core.record import DecisionRecord
from reach_worker.core.routing import plan
from reach_worker.ports import Accepted, Decided, Dispatched, Ended, OutcomeSeen, Row, Standing

AGENTS: Final = 4
ROWS: Final = 5
"""Of each task."""
ANSWER: Final = b'{"task_id": "t", "status": "succeeded", "final": true, "result": {}}'


def model_tasks(now_us: int) -> Iterator[list[Row]]:
    """The rows of one task after the other, without end; agents and capabilities take turns, ids count up."""
    fleet = known_fleet(AGENTS, 1_000.0)
    agents = cycle(sorted(fleet.agents))
    decisions: dict[str, Mapping[str, Any]] = {}
    for number in _count():
        capability = CAPABILITIES[number // AGENTS % len(CAPABILITIES)]
        if capability not in decisions:
            ask = Ask("model", capability, {"text": "x"})
            planned = plan(ask, fleet, RoutingPolicy(), 1_000.0)
            decisions[capability] = orjson.loads(DecisionRecord(planned).json())
        yield _rows(number, next(agents), capability, decisions[capability], now_us + number)


def _rows(number: int, agent: str, capability: str, decision: Mapping[str, Any], at: int) -> list[Row]:
    task_id, dispatch_id, decision_id = f"task-{number:026}", f"dispatch-{number:022}", f"d-{number:030}"
    return [
        Accepted(task_id, 0, task_id, capability, "anonymous", "router-1", at),
        Decided(decision_id, task_id, 0, 1, at, "router-1", {**decision, "task": task_id}),
        Dispatched(dispatch_id, task_id, 0, 1, agent, capability, decision_id, "router-1", at),
        OutcomeSeen(
            dispatch_id, task_id, 0, 1, agent, capability, "instance-1", OutcomeClass.SUCCEEDED, "", at + 9, 5.0,
            Standing.CURRENT,
        ),
        Ended(task_id, 0, TaskState.SUCCEEDED, None, "", at + 10, at + 60_000_000, ANSWER),
    ]  # fmt: skip


def _count() -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += 1
