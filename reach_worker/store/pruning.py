"""What is too old for the reach log, and the SQL that takes it out.

A task goes when it has ended, its end is old, and the answer need not be remembered any more; one that has not ended
stays, whatever its age. What a late row left of a task that is gone already (no beginning, no dispatch, no end) goes
by its age alone, and so does a life that began anew before its end was recorded; the later life goes after it, or the
task would be under way again. Success statistics stay: service times and people's judgements are put aside first.
"""

from dataclasses import dataclass
from typing import Final

from reach_worker.core.success import WINDOW

OF_TASK: Final = ("decisions", "dispatches", "outcomes", "ends")
OF_DISPATCH: Final = ("starts", "unsent")
OF_TASK_ID: Final = ("waiters", "lost_answers", "feedback")

OLD: Final = """
t.first_seen < :before AND (
    t.ended_at < :before
        AND NOT EXISTS (SELECT 1 FROM ends AS e WHERE e.task = t.id AND e.remember_until > :now)
    OR t.ended IS NULL AND t.accepted = 0 AND t.dispatch_id IS NULL AND t.parked_at = 0
    OR t.ended IS NULL AND EXISTS (SELECT 1 FROM tasks AS n WHERE n.task_id = t.task_id AND n.life > t.life)
) AND NOT EXISTS (SELECT 1 FROM tasks AS n WHERE n.task_id = t.task_id AND n.life < t.life AND n.ended IS NULL)
"""
"""Of ``tasks AS t``; the parameters are UTC microseconds."""

CANDIDATES: Final = f"""
SELECT t.first_seen, t.id FROM tasks AS t WHERE (t.first_seen, t.id) > (:first_seen, :id) AND {OLD}
ORDER BY t.first_seen, t.id LIMIT :limit
"""  # noqa: S608 - our names

REMOVE: Final = f"DELETE FROM tasks AS t WHERE t.id IN (SELECT value FROM json_each(:ids)) AND {OLD}"  # noqa: S608 - as above

KEEP_SINCE: Final = f"""
INSERT INTO kept_since (agent_id, capability, at)
SELECT agent_id, capability, ifnull((
    SELECT n.at FROM outcomes AS n
    WHERE n.agent_id = p.agent_id AND n.capability = p.capability AND n.outcome = 'succeeded'
        AND n.standing = 'current' AND n.duration_ms < 1e12
    ORDER BY n.at DESC LIMIT 1 OFFSET {WINDOW - 1}
), 0)
FROM (
    SELECT DISTINCT o.agent_id, o.capability FROM outcomes AS o
    WHERE o.task IN (SELECT value FROM json_each(:ids)) AND NOT EXISTS (
        SELECT 1 FROM kept_since AS k WHERE k.agent_id = o.agent_id AND k.capability = o.capability
    )
) AS p
"""  # noqa: S608 - as above
"""Since when the service times of an agent are worth keeping: those before the newest so many are not."""

_KEEP_TIMES: Final = """
INSERT OR IGNORE INTO service_times (agent_id, capability, at, outcome, duration_ms)
SELECT o.agent_id, o.capability, o.at, o.id, o.duration_ms FROM outcomes AS o
JOIN kept_since AS k ON k.agent_id = o.agent_id AND k.capability = o.capability
WHERE o.task = OLD.id AND o.outcome = 'succeeded' AND o.standing = 'current' AND o.duration_ms < 1e12
    AND o.at >= k.at
"""

_LAST_LIFE: Final = "NOT EXISTS (SELECT 1 FROM tasks WHERE task_id = OLD.task_id)"

_KEEP_JUDGEMENTS: Final = f"""
INSERT INTO judgements (agent_id, capability, verdict, at)
SELECT agent_id, capability, verdict, at FROM feedback WHERE task_id = OLD.task_id AND {_LAST_LIFE}
"""  # noqa: S608 - as above

TOO_MANY_TIMES: Final = f"""
SELECT agent_id, capability FROM service_times GROUP BY agent_id, capability HAVING count(*) > {WINDOW}
"""  # noqa: S608 - as above

TRIM_TIMES: Final = f"""
DELETE FROM service_times WHERE agent_id = ?1 AND capability = ?2 AND at < (
    SELECT at FROM service_times WHERE agent_id = ?1 AND capability = ?2
    ORDER BY at DESC LIMIT 1 OFFSET {WINDOW - 1}
)
"""  # noqa: S608 - as above


@dataclass(frozen=True, slots=True)
class Remains:
    """Old rows of ``table AS r`` that hang on no task (any more), told apart by ``key``."""

    table: str
    key: tuple[str, ...]
    old: str

    @property
    def find(self) -> str:
        """Keys of some, each a JSON array."""
        return (
            f"SELECT json_array({', '.join(self.key)}) FROM {self.table} AS r WHERE {self.old} LIMIT :limit"  # noqa: S608 - our names
        )

    @property
    def remove(self) -> str:
        """Those of them that are in the JSON array of keys, and still are remains."""
        parts = ", ".join(f"json_extract(value, '$[{place}]')" for place in range(len(self.key)))
        return (
            f"DELETE FROM {self.table} AS r WHERE ({', '.join(self.key)}) IN (SELECT {parts} FROM json_each(:keys)) "  # noqa: S608 - as above
            f"AND {self.old}"
        )


_NO_TASK: Final = "r.at < :before AND NOT EXISTS (SELECT 1 FROM tasks AS t WHERE t.task_id = r.task_id)"

REMAINS: Final = (
    Remains(
        "starts",
        ("dispatch_id",),
        "r.at < :before AND NOT EXISTS (SELECT 1 FROM dispatches AS d WHERE d.dispatch_id = r.dispatch_id)",
    ),
    Remains("waiters", ("id",), _NO_TASK),
    Remains("lost_answers", ("task_id", "reply_to", "at"), _NO_TASK),
    Remains("breaker_moves", ("at", "agent_id", "router", "state"), "r.at < :before"),
    Remains(
        "manifests",
        ("id",),
        "r.last_seen < :before AND EXISTS "
        "(SELECT 1 FROM manifests AS n WHERE n.agent_id = r.agent_id AND n.last_seen > r.last_seen)",
    ),
)
"""The newest manifest of an agent is no history: it is what the next start knows of it."""

PRUNED: Final = ("tasks", *OF_TASK, *OF_DISPATCH, *OF_TASK_ID, "breaker_moves", "manifests")
"""The tables that lose rows."""


def set_up() -> tuple[str, ...]:
    """What a connection needs to prune: a trigger that takes along all that hangs on a task, and tables in memory.

    ``removed`` counts what is gone; ``kept_since`` is filled by :data:`KEEP_SINCE` before a piece is removed.
    """
    columns = ", ".join(f"{table} INTEGER NOT NULL DEFAULT 0" for table in PRUNED)
    return (
        "PRAGMA temp_store = MEMORY",
        f"CREATE TEMP TABLE removed ({columns})",
        "INSERT INTO removed DEFAULT VALUES",
        "CREATE TEMP TABLE kept_since (agent_id, capability, at, PRIMARY KEY (agent_id, capability))",
        _trigger(),
    )


def _trigger() -> str:
    of_task_id = f"task_id = OLD.task_id AND {_LAST_LIFE}"
    hanging = {
        **dict.fromkeys(
            OF_DISPATCH, "dispatch_id IN (SELECT dispatch_id FROM dispatches WHERE task = OLD.id)"
        ),
        **dict.fromkeys(OF_TASK, "task = OLD.id"),
        **dict.fromkeys(OF_TASK_ID, of_task_id),
    }
    gone = (f"{table} = {table} + (SELECT count(*) FROM {table} WHERE {of})" for table, of in hanging.items())  # noqa: S608 - our names
    steps = [
        f"UPDATE removed SET tasks = tasks + 1, {', '.join(gone)}",  # noqa: S608 - our names
        _KEEP_TIMES,
        _KEEP_JUDGEMENTS,
        *(f"DELETE FROM {table} WHERE {of}" for table, of in hanging.items()),  # noqa: S608 - our names
    ]
    return f"CREATE TEMP TRIGGER prune AFTER DELETE ON main.tasks BEGIN {'; '.join(steps)}; END"
