"""Following the reach log while routers write it: what was recorded since one last looked."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from reach_worker.ports import BreakerMoved, Dispatched, Ended, OutcomeSeen
from reach_worker.store.database import connect_to_read, our_errors
from reach_worker.store.link import Link
from reach_worker.store.records import ended, outcome_seen

BUSY_S: Final = 5.0
AT_ONCE: Final = 1000
"""Rows of a kind that one look brings at most; the next look brings the next ones."""

News = Dispatched | OutcomeSeen | Ended | BreakerMoved

_NEW: Final[Mapping[str, tuple[str, Callable[[Sequence[Any]], News]]]] = {
    "dispatches": (
        """
        SELECT
            d.id, d.dispatch_id, t.task_id, t.life, d.attempt, d.agent_id, d.capability, d.decision_id, d.router,
            d.at, d.after
        FROM dispatches AS d JOIN tasks AS t ON t.id = d.task WHERE d.id > ? ORDER BY d.id LIMIT ?
        """,
        lambda row: Dispatched(*row),
    ),
    "outcomes": (
        """
        SELECT
            o.id, o.dispatch_id, t.task_id, t.life, o.attempt, o.agent_id, o.capability, o.instance_id, o.outcome,
            o.message, o.at, o.duration_ms, o.standing, o.cost, o.tokens_in, o.tokens_out
        FROM outcomes AS o JOIN tasks AS t ON t.id = o.task WHERE o.id > ? ORDER BY o.id LIMIT ?
        """,
        outcome_seen,
    ),
    "ends": (
        """
        SELECT
            e.id, t.task_id, t.life, e.state, e.reason, e.error, e.at, e.remember_until, e.answer, e.dispatch_id
        FROM ends AS e JOIN tasks AS t ON t.id = e.task WHERE e.id > ? ORDER BY e.id LIMIT ?
        """,
        ended,
    ),
}

_MOVES: Final = """
SELECT agent_id, router, state, at, reason FROM breaker_moves WHERE at >= ? ORDER BY at LIMIT ?
"""
"""These have no running number, so those of the last moment are read again and told from the new ones by hand."""


class Tail:
    """Follows one store's file from its beginning. To be entered with ``async with``.

    Entering and looking raise ``StoreUnavailable`` where there is no store (yet), or it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._link = Link(path, lambda: connect_to_read(path, BUSY_S))
        self._upto = dict.fromkeys(_NEW, 0)
        self._moves: list[BreakerMoved] = []

    async def __aenter__(self) -> Self:
        await self._link.get()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._link.drop()

    async def news(self) -> list[News]:
        """What was recorded since the last call, in the order of time; the same row never twice."""
        await self._ask("BEGIN")  # all kinds as they were at one moment: no outcome before its dispatch
        try:
            found = [row for kind in _NEW for row in await self._new(kind)]
            found += await self._new_moves()
        finally:
            await self._ask("COMMIT")
        return sorted(found, key=lambda row: row.at)

    async def _new(self, kind: str) -> list[News]:
        sql, read = _NEW[kind]
        rows = await self._ask(sql, self._upto[kind], AT_ONCE)
        if rows:
            self._upto[kind] = rows[-1][0]
        return [read(row[1:]) for row in rows]

    async def _new_moves(self) -> list[BreakerMoved]:
        since = self._moves[-1].at if self._moves else 0
        read = [BreakerMoved(*row) for row in await self._ask(_MOVES, since, AT_ONCE)]
        new = [move for move in read if move not in self._moves]
        self._moves = read or self._moves
        return new

    async def _ask(self, sql: str, *parameters: int) -> Sequence[Sequence[Any]]:
        connection = await self._link.get()
        with our_errors(self._path):
            return list(await connection.execute_fetchall(sql, parameters))
