"""What the router asks the store: bounded in time, and answered with what there is.

A question is answered from the database, completed by the rows that are not written yet; those are looked at
first, so that a row which is written in between is seen in one place or the other. A question that fails is
counted, and answered from memory alone.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import orjson

from reach_worker.core.duplicates import KnownTask
from reach_worker.core.outcome import OutcomeClass
from reach_worker.core.success import Track, TrackRecord
from reach_worker.errors import OutsideWorld, StoreUnavailable
from reach_worker.ports import Claimed, Clock, Ended, Joined, KnownDispatch, Standing
from reach_worker.store.at_once import AtOnce, Haste
from reach_worker.store.counts import COUNTS_AND_TIMES, track_of
from reach_worker.store.database import StoreBusy, connect_to_read, our_errors, sense
from reach_worker.store.facts import Life, OfLife, completed, learn, with_claim
from reach_worker.store.link import Link, Seen
from reach_worker.store.records import ended, joined, known_dispatch, sound
from reach_worker.store.stats import StoreStats, worth_saying
from reach_worker.store.unwritten import Unwritten

log = logging.getLogger(__name__)
ReadT = TypeVar("ReadT")

KnownTasks = Callable[[Sequence[str]], Awaitable[dict[str, KnownTask]]]

START_S: Final = 10.0
"""Patience for what is asked once, at the start, and may be long."""

_TASKS: Final = """
SELECT
    t.task_id, max(t.life), t.router, t.attempt, t.dispatched_at, t.dispatch_id, t.holder, t.parked_at, t.caller,
    e.state, e.reason, e.error, e.at, e.remember_until, e.answer,
    (
        SELECT json_group_array(json_array(o.dispatch_id, o.outcome, o.standing)) FROM outcomes AS o
        WHERE o.task = t.id
    ),
    (
        SELECT json_group_array(json_array(
            d.id, d.dispatch_id, d.after, EXISTS (SELECT 1 FROM unsent AS u WHERE u.dispatch_id = d.dispatch_id)
        )) FROM dispatches AS d
        WHERE d.task = t.id AND d.after IS NOT NULL
    )
FROM tasks AS t
LEFT JOIN ends AS e ON e.task = t.id AND e.at = t.ended_at AND e.state = t.ended
WHERE t.task_id IN (SELECT value FROM json_each(?1))
GROUP BY t.task_id
UNION ALL
SELECT task_id, life, router, at, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM claims WHERE task_id IN (SELECT value FROM json_each(?1))
"""
"""Tasks, and then the claims; those have no outcomes."""

_DISPATCH: Final = """
SELECT
    d.dispatch_id, t.task_id, t.life, d.attempt, d.agent_id, d.capability, d.decision_id, d.router, d.at,
    EXISTS (SELECT 1 FROM starts AS s WHERE s.dispatch_id = d.dispatch_id) AS started,
    EXISTS (
        SELECT 1 FROM outcomes AS o
        WHERE o.task = d.task AND o.dispatch_id = d.dispatch_id AND o.standing = 'current'
    ) AS settled
"""

_DISPATCHES: Final = f"""
{_DISPATCH}
FROM dispatches AS d JOIN tasks AS t ON t.id = d.task
WHERE d.dispatch_id IN (SELECT value FROM json_each(?))
"""  # noqa: S608 - our names

_OPEN: Final = f"""
{_DISPATCH}
FROM tasks AS t INDEXED BY tasks_open
JOIN dispatches AS d ON d.task = t.id
WHERE t.ended IS NULL AND d.router = ? AND NOT settled
ORDER BY d.at, d.id
"""

_WAITERS: Final = """
SELECT task_id, reply_to, correlation_id, at FROM waiters
WHERE task_id IN (SELECT value FROM json_each(?)) ORDER BY at, id
"""

_FEEDBACK: Final = """
SELECT agent_id, capability, verdict, at FROM feedback
UNION ALL SELECT agent_id, capability, verdict, at FROM judgements
ORDER BY at
"""
_MANIFESTS: Final = "SELECT body, max(last_seen) FROM manifests GROUP BY agent_id ORDER BY agent_id"


class Reader:
    """Answers from the database and from the rows on their way there."""

    def __init__(
        self, path: Path, wait_s: float, unwritten: Unwritten, stats: StoreStats, clock: Clock
    ) -> None:
        self._path = path
        self._wait_s = wait_s
        self._unwritten = unwritten
        self._stats = stats
        seen = Seen()
        self._link = Link(path, lambda: connect_to_read(path, wait_s), seen)
        self._at_once = AtOnce(path, clock, Haste(open_s=wait_s / 4), seen)

    async def close(self) -> None:
        """Let go of the file."""
        await self._at_once.close()
        await self._link.drop()

    async def known_tasks(self, task_ids: Sequence[str]) -> dict[str, KnownTask]:
        """What is known of these task ids."""
        late = [row for row in self._unwritten.of_tasks(task_ids) if isinstance(row, OfLife)]
        found = await self._ask_short(_TASKS, _json(task_ids), _life_or_claim)
        newest = {life.task_id: life for life in found if isinstance(life, Life)}
        for row in late:
            learn(newest, row)
        known = {task_id: life.known() for task_id, life in newest.items()}
        for claim in (each for each in found if isinstance(each, Claimed)):
            known[claim.task_id] = with_claim(known.get(claim.task_id), claim)
        return known

    async def known_dispatches(self, dispatch_ids: Sequence[str]) -> dict[str, KnownDispatch]:
        """What is known of these dispatches."""
        late = self._unwritten.of_dispatches(dispatch_ids)
        stored = await self._ask_short(_DISPATCHES, _json(dispatch_ids), known_dispatch)
        return completed(stored, late)

    async def open_dispatches(self, router: str) -> list[KnownDispatch]:
        """Dispatches of a router without a current outcome, whose task has not ended."""
        late = self._unwritten.all_rows()
        stored = await self._ask(_OPEN, (router,), START_S, known_dispatch)
        ended = {(row.task_id, row.life) for row in late if isinstance(row, Ended)}
        return [
            one
            for one in completed(stored, late).values()
            if one.router == router and not one.settled and (one.task_id, one.life) not in ended
        ]

    async def waiters(self, task_ids: Sequence[str]) -> dict[str, list[Joined]]:
        """Who else waits for these tasks, in the order they came."""
        late = [row for row in self._unwritten.of_tasks(task_ids) if isinstance(row, Joined)]
        stored = await self._ask_short(_WAITERS, _json(task_ids), joined)
        found: dict[str, dict[tuple[str, str | None], Joined]] = {}
        for waiter in (*stored, *late):
            found.setdefault(waiter.task_id, {}).setdefault((waiter.reply_to, waiter.correlation_id), waiter)
        return {task_id: list(of_task.values()) for task_id, of_task in found.items()}

    async def track_record(self) -> TrackRecord:
        """The statistics of every agent on every capability."""
        record = TrackRecord.empty()
        for key, track in await self._ask(COUNTS_AND_TIMES, (), START_S, _track_and_times):
            record.put(key, track)
        for agent_id, capability, verdict, at in await self._ask(_FEEDBACK, (), START_S, _judgement):
            record.touch(agent_id, capability).judged(at, verdict)
        return record

    async def manifests(self) -> list[str]:
        """The manifest of every agent that was seen last, as JSON."""
        return await self._ask(_MANIFESTS, (), START_S, lambda row: str(row[0]))

    async def _ask_short(
        self, sql: str, parameters: tuple[object, ...], read: Callable[[Sequence[Any]], ReadT]
    ) -> list[ReadT]:
        """What is asked with every turn: at once, if that is possible."""
        rows = await self._at_once.rows(sql, parameters)
        if rows is None:
            return await self._ask(sql, parameters, self._wait_s, read)
        return [value for row in rows for value in self._sensible(read, row)]

    async def _ask(
        self,
        sql: str,
        parameters: tuple[object, ...],
        patience_s: float,
        read: Callable[[Sequence[Any]], ReadT],
    ) -> list[ReadT]:
        try:
            async with asyncio.timeout(patience_s):
                connection = await self._link.get()
                with our_errors(self._path):
                    rows = await connection.execute_fetchall(sql, parameters)
        except TimeoutError:
            await self._link.interrupt()
            self._failed(f"{self._path}: no answer within {patience_s:g} s")
        except OutsideWorld as error:
            self._failed(str(error))
            if not isinstance(error, StoreBusy):
                await self._link.drop()
        except ValueError as error:  # aiosqlite's word for a connection that another question just dropped
            self._failed(f"{self._path}: {error}")
        else:
            return [value for row in rows for value in self._sensible(read, row)]
        return []

    def _sensible(self, read: Callable[[Sequence[Any]], ReadT], row: Sequence[Any]) -> Iterator[ReadT]:
        """What the row says; nothing where it is damaged, which takes no other row with it."""
        try:
            with sense(self._path):
                yield read(row)
        except StoreUnavailable as error:
            self._failed(str(error))

    def _failed(self, error: str) -> None:
        self._stats.failed_reads += 1
        self._stats.last_error = error
        if worth_saying(self._stats.failed_reads):
            log.warning("the store does not answer, question %d: %s", self._stats.failed_reads, error)


@asynccontextmanager
async def reading_known_tasks(path: Path, wait_s: float, clock: Clock) -> AsyncIterator[KnownTasks]:
    """What a store knows of tasks, for whoever only asks that. A store that is away knows nothing."""
    reader = Reader(path, wait_s, Unwritten(), StoreStats(), clock)
    try:
        yield reader.known_tasks
    finally:
        await reader.close()


def _json(ids: Sequence[str]) -> tuple[object, ...]:
    return (orjson.dumps(list(ids)).decode(),)


def _life_or_claim(row: Sequence[Any]) -> Life | Claimed:
    return sound(Claimed(*row[:4])) if row[-1] is None else _life(row)


def _life(row: Sequence[Any]) -> Life:
    task_id, life, router, attempt, at, dispatch_id, holder, parked_at, caller, *end, outcomes, sent = row
    found = Life(task_id, life, router, (int(attempt), int(at), dispatch_id or ""), holder, int(parked_at))
    found.caller = caller
    if end[0] is not None:
        found.end = ended((task_id, life, *end))
    for settled, outcome, standing in orjson.loads(outcomes):
        found.see(str(settled), OutcomeClass(outcome), Standing(standing))
    for _, sent_id, after, unsent in sorted(orjson.loads(sent)):
        found.sent[str(sent_id)] = str(after)
        if unsent:
            found.unsent.add(str(sent_id))
    sound(found.known())
    return found


def _track_and_times(row: Sequence[Any]) -> tuple[tuple[str, str], Track]:
    *counts, durations = row
    key, track = track_of(counts)
    for duration_ms in reversed(orjson.loads(durations)):
        track.service.add(float(duration_ms) / 1000)
    return key, track


def _judgement(row: Sequence[Any]) -> tuple[str, str, str, float]:
    agent_id, capability, verdict, at = row
    return str(agent_id), str(capability), str(verdict), int(at) / 1e6
