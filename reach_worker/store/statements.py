"""How each row is written: the SQL, and the row's values in its order.

Every statement may be run twice, and two of them in either order, with the same result; ``facts`` says why.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final

from reach_worker.core.record import DecisionRecord
from reach_worker.ports import (
    Accepted,
    AnswerLost,
    BreakerMoved,
    Claimed,
    Decided,
    Dispatched,
    Ended,
    Feedback,
    Joined,
    ManifestSeen,
    OutcomeSeen,
    Parked,
    Row,
    Started,
    Unclaimed,
    Unsent,
)
from reach_worker.store.row_lines import to_json

TOGETHER: Final = 8
"""Rows of one statement. Python's lock is let go and taken again for each statement, not for each row."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement, and how a row becomes its parameters. ``together``: the same for :data:`TOGETHER` rows at once."""

    sql: str
    values: Callable[[Any], tuple[object, ...]]
    together: str = ""


def for_rows(sql: str, row: str, values: Callable[[Any], tuple[object, ...]]) -> Statement:
    """A statement with ``{rows}`` where ``row``, a list of values, stands once for each of its rows."""
    return Statement(sql.format(rows=row), values, sql.format(rows=", ".join([row] * TOGETHER)))


UNCLAIM = Statement(
    "DELETE FROM claims WHERE router = ? AND at <= ?",
    attrgetter("router", "at"),
)

CLAIM = Statement(
    """
    INSERT INTO claims (task_id, life, router, at)
    SELECT ?1, ?2, ?3, ?4 WHERE NOT EXISTS (SELECT 1 FROM tasks WHERE task_id = ?1 AND life >= ?2)
    ON CONFLICT (task_id) DO UPDATE SET life = excluded.life, router = excluded.router, at = excluded.at
    WHERE excluded.life > life OR (
        excluded.life = life AND (router = excluded.router OR (router = ?5 AND at = ?6))
    )
    """,
    attrgetter("task_id", "life", "router", "at", "instead_of", "instead_at"),
)

SETTLE_CLAIM = Statement("DELETE FROM claims WHERE task_id = ? AND life <= ?", attrgetter("task_id", "life"))
"""Once a life is accepted, everything about it is in ``tasks``."""

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
    attrgetter("task_id", "life", "flow_id", "capability", "caller", "router", "first_seen"),
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

SEND = Statement(
    """
    INSERT INTO dispatches (task, dispatch_id, attempt, agent_id, capability, decision_id, router, at, after)
    SELECT t.id, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10 FROM tasks AS t
    WHERE t.task_id = ?1 AND t.life = ?2 AND (
        NOT ?11 OR t.ended IS NULL AND NOT EXISTS (
            SELECT 1 FROM dispatches AS d
            WHERE d.task = t.id AND d.after = ?10 AND d.dispatch_id <> ?3
                AND NOT EXISTS (SELECT 1 FROM unsent AS u WHERE u.dispatch_id = d.dispatch_id)
        )
    )
    ON CONFLICT DO NOTHING
    """,
    attrgetter(
        "task_id", "life", "dispatch_id", "attempt", "agent_id", "capability", "decision_id", "router", "at",
        "after", "only_first",
    ),
)  # fmt: skip
"""Not where it has to be the first in its place, and is not."""

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

_ACCEPTED = attrgetter("task_id", "life", "flow_id", "capability", "caller", "router", "first_seen")
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

ADD_END = for_rows(
    """
    WITH new (task_id, life, at, state, reason, error, remember_until, answer, dispatch_id) AS (VALUES {rows})
    INSERT INTO ends (task, at, state, reason, error, remember_until, answer, dispatch_id)
    SELECT t.id, new.at, new.state, new.reason, error, remember_until, answer, new.dispatch_id
    FROM new LEFT JOIN tasks AS t ON t.task_id = new.task_id AND t.life = new.life
    WHERE new.dispatch_id = '' OR NOT EXISTS (
        SELECT 1 FROM ends AS e WHERE e.task = t.id AND e.state = new.state AND e.dispatch_id = new.dispatch_id
    )
    ON CONFLICT DO NOTHING
    """,
    "(?, ?, ?, ?, ?, ?, ?, ?, ?)",
    attrgetter(
        "task_id", "life", "at", "state.value", "reason", "error", "remember_until", "answer", "dispatch_id"
    ),
)
"""An outcome that was settled twice ends its task once; of rows that are written together :func:`once` sees to that."""


def once(ends: Iterable[Ended]) -> list[Ended]:
    """Without those that an outcome before them has brought about already."""
    found: dict[tuple[object, ...], Ended] = {}
    for end in ends:
        found.setdefault((end.task_id, end.life, end.state, end.dispatch_id or end.at), end)
    return list(found.values())


UNSENT = Statement(
    "INSERT INTO unsent (dispatch_id) VALUES (?) ON CONFLICT DO NOTHING", lambda row: (row.dispatch_id,)
)

SEE_MANIFEST = Statement(
    """
    INSERT INTO manifests (agent_id, manifest_hash, version, body, first_seen, last_seen)
    VALUES (?1, ?2, ?3, ?4, ?5, ?5)
    ON CONFLICT (agent_id, manifest_hash) DO UPDATE SET
        first_seen = min(first_seen, excluded.first_seen), last_seen = max(last_seen, excluded.last_seen)
    """,
    attrgetter("agent_id", "manifest_hash", "version", "body", "at"),
)


ENSURE = for_rows(
    "INSERT INTO tasks (task_id, life, flow_id, first_seen) VALUES {rows} ON CONFLICT DO NOTHING",
    "(?, ?, ?, ?)",
    attrgetter("task_id", "life", "task_id", "at"),
)
"""Rows may come before the one that says how their task came in."""


def insert(table: str, *columns: str) -> Statement:
    """Add the row, whose attributes are named as the columns, unless it is there."""
    marks = ", ".join("?" * len(columns))
    sql = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks}) ON CONFLICT DO NOTHING"  # noqa: S608 - our names
    return Statement(sql, _attributes(columns))


def _attributes(columns: Sequence[str]) -> Callable[[Any], tuple[object, ...]]:
    """The row's attributes, as a tuple; of a single one ``attrgetter`` would give the value itself."""
    if len(columns) > 1:
        return attrgetter(*columns)
    (column,) = columns
    return lambda row: (getattr(row, column),)


def insert_of_task(
    table: str, *columns: str, values: Callable[[Any], tuple[object, ...]] | None = None
) -> Statement:
    """The same for a row that hangs on its task's row, which is there. Its values begin with the task's id and life."""
    return for_rows(
        f"INSERT INTO {table} (task, {', '.join(columns)}) VALUES {{rows}} ON CONFLICT DO NOTHING",  # noqa: S608 - our names
        f"((SELECT id FROM tasks WHERE task_id = ? AND life = ?), {', '.join('?' * len(columns))})",  # noqa: S608 - as above
        values or attrgetter("task_id", "life", *columns),
    )


def decision_values(row: Decided) -> tuple[object, ...]:
    """A decision: what is asked for most in columns, the whole of it as JSON."""
    decision = row.decision
    return (
        *_DECIDED(row),
        _text(decision.get("policy")),
        _text(decision.get("verdict")),
        _text(decision.get("agent")),
        _real(decision.get("score")),
        _real(decision.get("margin")),
        (decision.json() if isinstance(decision, DecisionRecord) else to_json(decision)).decode(),
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _real(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


_DECIDED = attrgetter("task_id", "life", "decision_id", "attempt", "at", "router")

DECIDE = insert_of_task(
    "decisions", "decision_id", "attempt", "at", "router", "policy", "verdict", "chosen", "score", "margin", "detail",
    values=decision_values,
)  # fmt: skip

SEE = insert_of_task(
    "outcomes", "dispatch_id", "standing", "outcome", "instance_id", "attempt", "agent_id", "capability", "at",
    "duration_ms", "message", "cost", "tokens_in", "tokens_out",
    values=attrgetter(
        "task_id", "life", "dispatch_id", "standing.value", "outcome.value", "instance_id", "attempt", "agent_id",
        "capability", "at", "duration_ms", "message", "cost", "tokens_in", "tokens_out",
    ),
)  # fmt: skip

SEND_ANYHOW = insert_of_task(
    "dispatches", "dispatch_id", "attempt", "agent_id", "capability", "decision_id", "router", "at", "after"
)

STATEMENTS: Final[Mapping[type[Row], tuple[Statement, ...]]] = MappingProxyType(
    {
        Unclaimed: (UNCLAIM,),
        Claimed: (CLAIM,),
        Accepted: (ACCEPT, SETTLE_CLAIM),
        Decided: (ENSURE, DECIDE),
        Unsent: (UNSENT,),
        Dispatched: (DISPATCH, SEND),
        Started: (insert("starts", "dispatch_id", "at"),),
        Ended: (END, ADD_END),
        OutcomeSeen: (ENSURE, SEE),
        Parked: (PARK,),
        Joined: (insert("waiters", "task_id", "reply_to", "correlation_id", "at"),),
        AnswerLost: (insert("lost_answers", "task_id", "reply_to", "at"),),
        Feedback: (insert("feedback", "task_id", "agent_id", "capability", "verdict", "better_agent", "at"),),
        BreakerMoved: (insert("breaker_moves", "at", "agent_id", "router", "state", "reason"),),
        ManifestSeen: (SEE_MANIFEST,),
    }
)  # fmt: skip
"""What to run for each kind of row: first kind first, and its statements in this order."""
