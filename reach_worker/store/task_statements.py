"""How the row of a life in ``tasks`` is made and changed. It stands there once, whatever is told of it first.

Every statement may be run twice, and two of them in either order, with the same result; ``facts`` says why.
"""

from operator import attrgetter

from reach_worker.store.statement import Statement, for_rows

ENSURE = for_rows(
    "INSERT INTO tasks (task_id, life, flow_id, first_seen) VALUES {rows} ON CONFLICT DO NOTHING",
    "(?, ?, ?, ?)",
    attrgetter("task_id", "life", "task_id", "at"),
)
"""Rows may come before the one that says how their task came in."""

_ACCEPTED = attrgetter("task_id", "life", "flow_id", "capability", "caller", "router", "first_seen")

ACCEPT = for_rows(
    """
    INSERT INTO tasks (task_id, life, flow_id, capability, caller, router, first_seen, accepted)
    VALUES {rows}
    ON CONFLICT (task_id, life) DO UPDATE SET
        flow_id = excluded.flow_id, capability = excluded.capability, caller = excluded.caller,
        router = excluded.router, first_seen = excluded.first_seen, accepted = 1
    WHERE accepted = 0
    """,
    "(?, ?, ?, ?, ?, ?, ?, 1)",
    _ACCEPTED,
)

DISPATCH = Statement(
    """
    INSERT INTO tasks (
        task_id, life, flow_id, capability, first_seen, dispatch_id, attempt, dispatched_at, holder
    )
    SELECT ?1, ?2, ?1, ?3, ?4, ?5, ?6, ?4, ?7 WHERE NOT ?8 OR NOT EXISTS (
        SELECT 1 FROM tasks AS t LEFT JOIN dispatches AS d ON d.task = t.id AND d.after = ?9 AND d.dispatch_id <> ?5
            AND NOT EXISTS (SELECT 1 FROM unsent AS u WHERE u.dispatch_id = d.dispatch_id)
        WHERE t.task_id = ?1 AND t.life = ?2 AND (t.ended IS NOT NULL OR d.dispatch_id IS NOT NULL)
    )
    ON CONFLICT (task_id, life) DO UPDATE SET
        dispatch_id = excluded.dispatch_id, attempt = excluded.attempt,
        dispatched_at = excluded.dispatched_at, holder = excluded.holder
    WHERE (excluded.attempt, excluded.dispatched_at, excluded.dispatch_id)
        > (attempt, dispatched_at, ifnull(dispatch_id, ''))
    """,
    attrgetter(
        "task_id", "life", "capability", "at", "dispatch_id", "attempt", "router", "only_first", "after"
    ),
)

DISPATCH_ANYHOW = for_rows(
    """
    INSERT INTO tasks (
        task_id, life, flow_id, capability, first_seen, dispatch_id, attempt, dispatched_at, holder
    )
    VALUES {rows}
    ON CONFLICT (task_id, life) DO UPDATE SET
        dispatch_id = excluded.dispatch_id, attempt = excluded.attempt,
        dispatched_at = excluded.dispatched_at, holder = excluded.holder
    WHERE (excluded.attempt, excluded.dispatched_at, excluded.dispatch_id)
        > (attempt, dispatched_at, ifnull(dispatch_id, ''))
    """,
    "(?, ?, ?, ?, ?, ?, ?, ?, ?)",
    attrgetter("task_id", "life", "task_id", "capability", "at", "dispatch_id", "attempt", "at", "router"),
)
"""This and :data:`SEND_ANYHOW` where no dispatch is ``only_first``."""


def _unless(kept: str, *columns: str) -> str:
    """Of a row that is there already: columns that stay as they are where ``kept`` holds."""
    return ", ".join(f"{column} = iif({kept}, {column}, excluded.{column})" for column in columns)


_NO_LATER = """
(excluded.attempt, excluded.dispatched_at, excluded.dispatch_id) <= (attempt, dispatched_at, ifnull(dispatch_id, ''))
"""

_DISPATCHED = attrgetter("dispatch_id", "attempt", "at", "router")

BEGIN = for_rows(
    f"""
    INSERT INTO tasks (
        task_id, life, flow_id, capability, caller, router, first_seen,
        dispatch_id, attempt, dispatched_at, holder, accepted
    )
    VALUES {{rows}}
    ON CONFLICT (task_id, life) DO UPDATE SET
        {_unless("accepted", "flow_id", "capability", "caller", "router", "first_seen")}, accepted = 1,
        {_unless(_NO_LATER, "dispatch_id", "attempt", "dispatched_at", "holder")}
    WHERE accepted = 0 OR NOT {_NO_LATER}
    """,  # noqa: S608 - our names
    "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1)",
    lambda begun: (*_ACCEPTED(begun[0]), *_DISPATCHED(begun[1])),
)
""":data:`ACCEPT` and :data:`DISPATCH_ANYHOW` at once, of an :class:`Accepted` and a :class:`Dispatched`."""

PARK = Statement(
    """
    INSERT INTO tasks (task_id, life, flow_id, first_seen, parked_at, parked_reason)
    VALUES (?1, ?2, ?1, ?3, ?3, ?4)
    ON CONFLICT (task_id, life) DO UPDATE SET
        parked_at = excluded.parked_at, parked_reason = excluded.parked_reason
    WHERE excluded.parked_at > parked_at
    """,
    attrgetter("task_id", "life", "at", "reason"),
)

END = for_rows(
    """
    INSERT INTO tasks (task_id, life, flow_id, first_seen, ended, ended_at, reason)
    VALUES {rows}
    ON CONFLICT (task_id, life) DO UPDATE SET
        ended = excluded.ended, ended_at = excluded.ended_at, reason = excluded.reason
    WHERE ended IS NULL
        OR (reason = 'outcome_unknown' AND excluded.ended = 'succeeded' AND ended <> 'succeeded')
    """,
    "(?, ?, ?, ?, ?, ?, ?)",
    attrgetter("task_id", "life", "task_id", "at", "state.value", "at", "reason"),
)
