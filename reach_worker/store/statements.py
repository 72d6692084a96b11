"""How each row is written: the SQL, and the row's values in its order.

Every statement may be run twice, and two of them in either order, with the same result; ``facts`` says why.
"""

from collections.abc import Iterable, Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import Final

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
from reach_worker.store.statement import Statement, for_rows, insert, insert_of_task
from reach_worker.store.task_statements import ACCEPT, DISPATCH, END, ENSURE, PARK

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
