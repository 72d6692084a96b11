"""The reach log as people ask for it: read only, also while routers write.

Every question raises ``StoreUnavailable`` where the file cannot be read (any more).
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from reach_worker.core.duplicates import TaskState
from reach_worker.ports import AnswerLost, BreakerMoved, Dispatched, ManifestSeen, Started
from reach_worker.store.counts import COLUMNS
from reach_worker.store.database import connect_to_read, our_errors, sense
from reach_worker.store.link import Link
from reach_worker.store.records import (
    AgentSuccess,
    Counts,
    StoredTask,
    TaskHistory,
    agent_success,
    decided,
    decision_of,
    ended,
    joined,
    outcome_seen,
    stored_task,
)

RecordT = TypeVar("RecordT")

BUSY_S: Final = 5.0
"""Patience with a lock; readers hardly ever meet one."""

_TASK: Final = """
SELECT
    t.task_id, t.life, t.accepted, t.flow_id, t.capability, t.caller, t.router, t.first_seen, t.state,
    t.dispatch_id, t.attempt, t.parked_reason, t.ended_at, t.reason, e.error, e.remember_until, e.answer
FROM tasks AS t
LEFT JOIN ends AS e ON e.task = t.id AND e.at = t.ended_at AND e.state = t.ended
"""

_NEWEST: Final = "NOT EXISTS (SELECT 1 FROM tasks AS n WHERE n.task_id = t.task_id AND n.life > t.life)"

_IN_STATE: Final[dict[TaskState | None, str]] = {
    None: "TRUE",
    TaskState.UNDER_WAY: "t.ended IS NULL AND t.state = 'under_way'",
    TaskState.UNMATCHED: "t.ended IS NULL AND t.state = 'unmatched'",
    TaskState.SUCCEEDED: "t.ended = 'succeeded'",
    TaskState.DEAD_LETTER: "t.ended <> 'succeeded' AND t.ended = 'dead_letter'",
    TaskState.CANCELLED: "t.ended <> 'succeeded' AND t.ended = 'cancelled'",
}
"""Written so that SQLite sees that a partial index will do: all but successes are few."""

PAGE: Final = 1000

_LOGGED: Final = """
SELECT d.id, d.detail, o.outcome FROM decisions AS d
LEFT JOIN dispatches AS p ON p.task = d.task AND p.decision_id = d.decision_id
LEFT JOIN outcomes AS o ON o.task = d.task AND o.dispatch_id = p.dispatch_id AND o.standing = 'current'
WHERE d.id > ? AND d.at >= ? AND d.at < ? AND d.verdict = 'chosen' ORDER BY d.id LIMIT ?
"""

_ATTEMPTS: Final = """
SELECT agent_id, capability, outcome, duration_ms, at FROM outcomes
WHERE standing = 'current' AND at >= ? ORDER BY id
"""

_PARTS: Final = {
    "lives": f"{_TASK} WHERE t.task_id = ? ORDER BY t.life",
    "decisions": """
        SELECT d.decision_id, t.task_id, t.life, d.attempt, d.at, d.router, d.detail
        FROM tasks AS t JOIN decisions AS d ON d.task = t.id WHERE t.task_id = ? ORDER BY d.at, d.id
    """,
    "dispatches": """
        SELECT
            d.dispatch_id, t.task_id, t.life, d.attempt, d.agent_id, d.capability, d.decision_id, d.router, d.at,
            d.after
        FROM tasks AS t JOIN dispatches AS d ON d.task = t.id WHERE t.task_id = ? ORDER BY d.at, d.id
    """,
    "starts": """
        SELECT s.dispatch_id, s.at
        FROM tasks AS t JOIN dispatches AS d ON d.task = t.id JOIN starts AS s ON s.dispatch_id = d.dispatch_id
        WHERE t.task_id = ? ORDER BY s.at
    """,
    "outcomes": """
        SELECT
            o.dispatch_id, t.task_id, t.life, o.attempt, o.agent_id, o.capability, o.instance_id, o.outcome,
            o.message, o.at, o.duration_ms, o.standing, o.cost, o.tokens_in, o.tokens_out
        FROM tasks AS t JOIN outcomes AS o ON o.task = t.id WHERE t.task_id = ? ORDER BY o.at, o.id
    """,
    "ends": """
        SELECT t.task_id, t.life, e.state, e.reason, e.error, e.at, e.remember_until, e.answer, e.dispatch_id
        FROM tasks AS t JOIN ends AS e ON e.task = t.id WHERE t.task_id = ? ORDER BY e.at, e.id
    """,
    "waiters": "SELECT task_id, reply_to, correlation_id, at FROM waiters WHERE task_id = ? ORDER BY at, id",
    "lost_answers": "SELECT task_id, reply_to, at FROM lost_answers WHERE task_id = ? ORDER BY at",
}

_READ: Final[Mapping[str, Callable[[Sequence[Any]], Any]]] = {
    "lives": stored_task,
    "decisions": decided,
    "dispatches": lambda row: Dispatched(*row),
    "starts": lambda row: Started(*row),
    "outcomes": outcome_seen,
    "ends": ended,
    "waiters": joined,
    "lost_answers": lambda row: AnswerLost(*row),
}


def recent_query(state: TaskState | None) -> str:
    """The tasks that came last, each in its newest life."""
    return f"""
        {_TASK} WHERE {_IN_STATE[state]} AND {_NEWEST}
        ORDER BY t.first_seen DESC, t.id DESC LIMIT ?
    """


_FLOW: Final = f"""
{_TASK}
WHERE (t.flow_id = ?1 AND t.flow_id <> t.task_id OR t.task_id = ?1 AND t.flow_id = t.task_id) AND {_NEWEST}
ORDER BY t.first_seen, t.id
"""

_FIND: Final = """
SELECT DISTINCT task_id FROM tasks WHERE task_id >= ?1 AND task_id < ?1 || char(0x10ffff)
ORDER BY task_id LIMIT ?2
"""

_STATES: Final = f"""
SELECT state, sum(lives) FROM (
    SELECT state, count(*) AS lives FROM tasks GROUP BY state
    UNION ALL
    SELECT t.state, -count(*) FROM tasks AS t
    WHERE t.task_id IN (SELECT task_id FROM tasks WHERE life > 0) AND NOT {_NEWEST} GROUP BY t.state
)
GROUP BY state
"""  # noqa: S608 - our names
"""All lives but those that a newer one replaced: few tasks have more than one, so only those are looked at twice."""

_DOUBLED: Final = """
SELECT count(*) FROM (SELECT task, count(*) AS times FROM ends GROUP BY task HAVING times > 1) AS d
WHERE NOT (
    times = 2 AND (
        SELECT sum(reason IS 'outcome_unknown') = 1 AND sum(state = 'succeeded') = 1
        FROM ends AS e WHERE e.task = d.task
    )
)
"""

_MOVES: Final = "SELECT agent_id, router, state, at, reason FROM breaker_moves WHERE at >= ? ORDER BY at"

_MANIFESTS: Final = """
SELECT agent_id, manifest_hash, version, body, max(last_seen) FROM manifests
GROUP BY agent_id ORDER BY agent_id
"""


class StoreReader:
    """A store's file, opened to read. To be entered with ``async with``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._link = Link(path, lambda: connect_to_read(path, BUSY_S))

    @classmethod
    def open(cls, path: Path) -> Self:
        """A reader that opens when it is entered.

        Entering it raises:
            StoreForeign: the file is something else.
            StoreNewer: a newer version of this package wrote it.
            StoreUnavailable: there is none, or it cannot be read.
        """
        return cls(path)

    async def __aenter__(self) -> Self:
        await self._link.get()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._link.drop()

    async def task(self, task_id: str) -> TaskHistory | None:
        """Everything about a task id; ``None`` if it was never seen."""
        parts: dict[str, Any] = {}
        await self._ask("BEGIN")  # all parts as they were at one moment, while routers write
        try:
            for name, sql in _PARTS.items():
                parts[name] = tuple(await self._read(_READ[name], sql, task_id))
        finally:
            await self._ask("COMMIT")
        return TaskHistory(**parts) if parts["lives"] else None

    async def find(self, prefix: str, limit: int = 20) -> list[str]:
        """Task ids that begin so, in alphabetical order."""
        return [task_id for (task_id,) in await self._ask(_FIND, prefix, limit)]

    async def flow(self, flow_id: str) -> list[StoredTask]:
        """The tasks of a flow, each in its newest life, in the order they came."""
        return await self._read(stored_task, _FLOW, flow_id)

    async def recent(self, limit: int, state: TaskState | None = None) -> list[StoredTask]:
        """The tasks that came last (in that state), each in its newest life, newest first."""
        return await self._read(stored_task, recent_query(state), limit)

    async def agents(self, now_us: int) -> list[AgentSuccess]:
        """Success statistics per agent and capability, as they are at ``now_us`` (UTC microseconds)."""
        sql = f"SELECT {COLUMNS} FROM success ORDER BY agent_id, capability"  # noqa: S608 - our names
        return await self._read(lambda row: agent_success(row, now_us), sql)

    async def logged(self, since_us: int, until_us: int) -> AsyncIterator[tuple[dict[str, Any], str | None]]:
        """Decisions that chose an agent in a period, in order, each with the outcome of its attempt if there is one."""
        after = 0
        while True:
            rows = await self._ask(_LOGGED, after, since_us, until_us, PAGE)
            for number, detail, outcome in rows:
                after = number
                with sense(self._path):
                    decision = decision_of(detail)
                yield decision, outcome
            if len(rows) < PAGE:
                return

    async def attempts(self, since_us: int) -> list[tuple[str, str, str, float | None, int]]:
        """Agent, capability, outcome, milliseconds it ran and time of every current outcome since then."""
        return [(a, c, o, d, at) for a, c, o, d, at in await self._ask(_ATTEMPTS, since_us)]

    async def breaker_moves(self, since_us: int) -> list[BreakerMoved]:
        """What the breakers did since then, in order."""
        return [BreakerMoved(*row) for row in await self._ask(_MOVES, since_us)]

    async def counts(self) -> Counts:
        """How many tasks are in each state, and how many lives ended more than once."""
        states = dict(await self._read(lambda row: (TaskState(row[0]), int(row[1])), _STATES))
        ((doubled,),) = await self._ask(_DOUBLED)
        return Counts({state: states.get(state, 0) for state in TaskState}, doubled)

    async def manifests(self) -> list[ManifestSeen]:
        """The manifest of every agent that was seen last."""
        return [ManifestSeen(*row) for row in await self._ask(_MANIFESTS)]

    async def _read(
        self, read: Callable[[Sequence[Any]], RecordT], sql: str, *parameters: object
    ) -> list[RecordT]:
        rows = await self._ask(sql, *parameters)
        with sense(self._path):
            return [read(row) for row in rows]

    async def _ask(self, sql: str, *parameters: object) -> Sequence[Sequence[Any]]:
        connection = await self._link.get()
        with our_errors(self._path):
            return list(await connection.execute_fetchall(sql, parameters))
