"""Rows to record: one of each kind, from which a test makes its own with what it is about."""

from typing import Final

from reach_worker.core.duplicates import TaskState
from reach_worker.core.outcome import DeadLetterReason, OutcomeClass
from reach_worker.ports import (
    Accepted,
    Decided,
    Dispatched,
    Ended,
    Joined,
    ManifestSeen,
    OutcomeSeen,
    Parked,
    Standing,
    Started,
)

NOON: Final = 1_800_000_000_000_000
SECOND: Final = 1_000_000


def accepted(task_id: str = "t1", life: int = 0, *, flow_id: str | None = None, at: int = NOON) -> Accepted:
    return Accepted(task_id, life, flow_id or task_id, "log.query", "anonymous", "r1", at)


def decided(task_id: str = "t1", life: int = 0, decision_id: str = "x1", *, at: int = NOON) -> Decided:
    decision = {
        "policy": "declared",
        "verdict": "chosen",
        "agent": "grep",
        "score": 0.75,
        "margin": None,
        "candidates": [],
    }
    return Decided(decision_id, task_id, life, 1, at, "r1", decision)


def dispatched(
    task_id: str = "t1",
    life: int = 0,
    dispatch_id: str = "d1",
    *,
    attempt: int = 1,
    router: str = "r1",
    at: int = NOON,
) -> Dispatched:
    return Dispatched(dispatch_id, task_id, life, attempt, "grep", "log.query", "x1", router, at)


def started(dispatch_id: str = "d1", *, at: int = NOON) -> Started:
    return Started(dispatch_id, at)


def seen(
    outcome: OutcomeClass = OutcomeClass.SUCCEEDED,
    dispatch_id: str = "d1",
    task_id: str = "t1",
    life: int = 0,
    *,
    agent_id: str = "grep",
    at: int = NOON,
    duration_ms: float | None = None,
    standing: Standing = Standing.CURRENT,
) -> OutcomeSeen:
    return OutcomeSeen(
        dispatch_id, task_id, life, 1, agent_id, "log.query", "i1", outcome, "", at, duration_ms, standing
    )


def succeeded(task_id: str = "t1", life: int = 0, *, at: int = NOON, answer: bytes | None = b"{}") -> Ended:
    return Ended(task_id, life, TaskState.SUCCEEDED, None, "", at, at + 60 * SECOND, answer)


def dead(
    task_id: str = "t1",
    life: int = 0,
    *,
    reason: DeadLetterReason = DeadLetterReason.ATTEMPTS_EXHAUSTED,
    at: int = NOON,
) -> Ended:
    return Ended(task_id, life, TaskState.DEAD_LETTER, reason, "no agent could", at, at + 60 * SECOND, None)


def parked(task_id: str = "t1", life: int = 0, *, at: int = NOON) -> Parked:
    return Parked(task_id, life, "nobody can log.query", at)


def joined(
    task_id: str = "t1", reply_to: str = "q1", correlation_id: str | None = "c1", *, at: int = NOON
) -> Joined:
    return Joined(task_id, reply_to, correlation_id, at)


def manifest(agent_id: str = "grep", hash_: str = "h1", *, at: int = NOON) -> ManifestSeen:
    return ManifestSeen(agent_id, hash_, "1.0.0", f'{{"id": "{agent_id}", "hash": "{hash_}"}}', at)
