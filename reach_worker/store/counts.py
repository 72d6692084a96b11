"""Success statistics in the store: decayed counts per agent and capability, over all routers of the file."""

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, Final

import orjson

from reach_worker.core.outcome import RULES, OutcomeClass, Success
from reach_worker.core.success import WINDOW, DecayedCount, Track, TrackRecord
from reach_worker.ports import OutcomeSeen, Standing

Key = tuple[str, str]
"""Agent and capability."""

LAST_OUTCOME: Final = "SELECT ifnull(max(id), 0) FROM outcomes"

_CURRENT_BEFORE: Final = """
EXISTS (
    SELECT 1 FROM outcomes AS old
    WHERE old.task = new.task AND old.dispatch_id = new.dispatch_id
        AND old.standing = 'current' AND old.id < new.id
)
"""

_NEW: Final = f"""
SELECT agent_id, capability, outcome, at FROM outcomes AS new
WHERE id > ? AND standing = 'current' AND NOT {_CURRENT_BEFORE} ORDER BY id
"""  # noqa: S608 - our names

_AGAIN: Final = f"""
SELECT EXISTS (SELECT 1 FROM outcomes AS new WHERE id > ? AND standing = 'current' AND {_CURRENT_BEFORE})
"""  # noqa: S608 - our names

COLUMNS: Final = """
agent_id, capability, slow_good, slow_tries, slow_at, fast_good, fast_tries, fast_at,
recent_good, recent_tries, recent_at, week_good, week_tries, week_at, rejection_good, rejection_tries, rejection_at
"""

_COUNTS: Final = f"""
SELECT {COLUMNS} FROM success
WHERE (agent_id, capability) IN (
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?)
)
"""  # noqa: S608 - our names

COUNTS_AND_TIMES: Final = f"""
SELECT {COLUMNS}, (
    SELECT json_group_array(duration_ms) FROM (
        SELECT duration_ms FROM (
            SELECT o.at, o.id, o.duration_ms FROM outcomes AS o
            WHERE o.agent_id = s.agent_id AND o.capability = s.capability AND o.outcome = 'succeeded'
                AND o.standing = 'current' AND o.duration_ms < 1e12
            ORDER BY o.at DESC, o.id DESC LIMIT {WINDOW}
        )
        UNION ALL
        SELECT duration_ms FROM (
            SELECT p.duration_ms FROM service_times AS p
            WHERE p.agent_id = s.agent_id AND p.capability = s.capability
            ORDER BY p.at DESC, p.outcome DESC LIMIT {WINDOW}
        )
        LIMIT {WINDOW}
    )
)
FROM success AS s
"""  # noqa: S608 - our names
"""Every row as :data:`COLUMNS`, then its last service times in milliseconds as JSON, newest first.

Those of tasks that were pruned are older than all others, as far as the order of a few hundred matters.
"""

_SAVE: Final = (
    f"INSERT OR REPLACE INTO success ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - our names
)


def count_outcomes(
    database: sqlite3.Connection, after: int, rows: Sequence[OutcomeSeen], *, all_new: bool
) -> None:
    """Count the current outcomes that this transaction added, those with an id above ``after``.

    ``rows``: what was to be added; ``all_new``: all of it was. Read, add, write back: right only inside the transaction
    that holds the write lock.
    """
    if all_new and not database.execute(_AGAIN, (after,)).fetchone()[0]:
        new = [
            (row.agent_id, row.capability, row.outcome, row.at)
            for row in rows
            if row.standing is Standing.CURRENT
        ]
    else:
        new = [
            (str(agent), str(capability), OutcomeClass(outcome), int(at))
            for agent, capability, outcome, at in database.execute(_NEW, (after,)).fetchall()
        ]
    keys = {(agent, capability) for agent, capability, _, _ in new}
    counted = map(_track_or_none, database.execute(_COUNTS, (_json(keys),)).fetchall())
    record = TrackRecord(dict(each for each in counted if each is not None))
    for agent, capability, outcome, at in new:
        count(record, agent, capability, outcome, at)
    database.executemany(_SAVE, [_values(key, track) for key, track in record.tracks.items()])


def count(
    record: TrackRecord,
    agent_id: str,
    capability: str,
    outcome: OutcomeClass,
    at: int,
    seconds: float | None = None,
) -> None:
    """Add one outcome that ended at ``at`` (UTC microseconds) after ``seconds`` of work.

    The time to a handoff says nothing of how long the work takes.
    """
    seconds = None if outcome is OutcomeClass.HANDOFF else seconds
    match RULES[outcome].success:
        case Success.COUNTS_FOR:
            record.touch(agent_id, capability).ended(at / 1e6, good=True, seconds=seconds)
        case Success.COUNTS_AGAINST:
            record.touch(agent_id, capability).ended(at / 1e6, good=False, seconds=seconds)
        case Success.REJECTION:
            record.touch(agent_id, capability).rejected(at / 1e6)
        case Success.NOTHING:
            pass


def _json(keys: Iterable[Key]) -> str:
    return orjson.dumps(list(keys)).decode()


def track_of(row: Sequence[Any]) -> tuple[Key, Track]:
    """The track in a row of ``success``, read as :data:`COLUMNS`. A damaged one raises ``TypeError``, ``ValueError``."""
    agent_id, capability, *counts = row
    track = Track()
    for place, count_ in zip(range(0, len(counts), 3), _parts(track), strict=True):
        good, tries, at = map(float, counts[place : place + 3])
        count_.good, count_.tries, count_.at = good, tries, at / 1e6
    return (str(agent_id), str(capability)), track


def _track_or_none(row: Sequence[Any]) -> tuple[Key, Track] | None:
    """The same; nothing for a damaged row, which is counted anew."""
    try:
        return track_of(row)
    except (TypeError, ValueError):
        return None


def _values(key: Key, track: Track) -> tuple[object, ...]:
    parts = ((part.good, part.tries, round(part.at * 1e6)) for part in _parts(track))
    return (*key, *(value for part in parts for value in part))


def _parts(track: Track) -> Iterable[DecayedCount]:
    return track.slow, track.fast, track.recent, track.week, track.rejections
