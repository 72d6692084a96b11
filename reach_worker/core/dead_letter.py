"""Dead letters as people see them: reading one, choosing some, and what replaying one sends."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from reach_worker.core.dispatch import OUTCOME
from reach_worker.core.envelope import ANONYMOUS, BadHeaders, Envelope, envelope_from, number, passed_on, text
from reach_worker.core.message import Delivery
from reach_worker.core.outcome import DeadLetterReason, cut
from reach_worker.core.tags import fold
from reach_worker.core.task import Refusal, Task, decode_task

REASON: Final = "x-reach-reason"
ERROR: Final = "x-reach-error"
DIED_AT: Final = "x-reach-died-at"
MAX_REPLAYS: Final = 3
"""A message that was replayed so often is held back unless forced."""

_BROKER_REASONS: Final[Mapping[str, DeadLetterReason]] = {
    "expired": DeadLetterReason.EXPIRED,
    "delivery_limit": DeadLetterReason.POISON,
    "rejected": DeadLetterReason.BROKER_REFUSED,
    "maxlen": DeadLetterReason.BROKER_REFUSED,
}


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One dead letter. Times are UTC microseconds; ``died_at`` is 0 where only the broker knows.

    ``is_outcome``: an agent's outcome that nobody could read; it is shown, never replayed as a task.
    """

    envelope: Envelope
    reason: DeadLetterReason
    error: str
    died_at: int
    body: bytes
    is_outcome: bool = False

    @property
    def task_id(self) -> str:
        """The id of the task, or the one that was given to a message that is none."""
        return self.envelope.task_id

    def as_dict(self) -> dict[str, Any]:
        """Plain data for ``--json`` and exports; the body as text, lossless for UTF-8."""
        envelope = self.envelope
        past = orjson.loads(envelope.past) if envelope.past else []
        return {
            "task_id": envelope.task_id,
            "flow_id": envelope.flow_id,
            "capability": envelope.capability,
            "caller": envelope.caller,
            "reason": self.reason.value,
            "error": self.error,
            "first_seen": envelope.first_seen,
            "died_at": self.died_at,
            "life": envelope.life,
            "replays": envelope.replays,
            "attempts": [attempt.as_dict() for attempt in envelope.attempts],
            "past_attempts": past,
            "is_outcome": self.is_outcome,
            "body": self.body.decode("utf-8", "backslashreplace"),
        }


def dead_letter_from(delivery: Delivery) -> DeadLetter:
    """What a message in the dead letters says. Never raises: also what the broker itself put there can be read."""
    headers = delivery.headers
    envelope = envelope_from(headers)
    if isinstance(envelope, BadHeaders):
        envelope = _envelope_of_stranger(delivery)
    said = text(headers, REASON) or ""
    try:
        reason, error = DeadLetterReason(said), text(headers, ERROR) or ""
    except ValueError:
        reason, error = _broker_reason(headers)
        error = text(headers, ERROR) or error
    return DeadLetter(
        envelope=_readable(envelope),
        reason=reason,
        error=error,
        died_at=number(headers, DIED_AT) or 0,
        body=delivery.body,
        is_outcome=OUTCOME in headers,
    )


def _envelope_of_stranger(delivery: Delivery) -> Envelope:
    task = decode_task(delivery.body, max_bytes=len(delivery.body) + 1)
    own_id = task.task_id if isinstance(task, Task) else None
    capability = fold(task.capability or "") if isinstance(task, Task) else ""
    task_id = own_id or delivery.message_id or "unknown"
    return Envelope(
        task_id=task_id,
        flow_id=task_id,
        capability=capability,
        caller=delivery.user_id or ANONYMOUS,
        first_seen=int((delivery.timestamp_s or 0) * 1_000_000),
        reply_to=delivery.reply_to,
        correlation_id=delivery.correlation_id,
        content_type=delivery.content_type,
        passed_on=passed_on(delivery.headers),
    )


def _readable(envelope: Envelope) -> Envelope:
    """Without a history that is no JSON."""
    try:
        past = orjson.loads(envelope.past) if envelope.past else []
    except orjson.JSONDecodeError:
        past = None
    return envelope if isinstance(past, list) else replace(envelope, past=None)


def _broker_reason(headers: Mapping[str, Any]) -> tuple[DeadLetterReason, str]:
    deaths = headers.get("x-death")
    first = deaths[0] if isinstance(deaths, list) and deaths and isinstance(deaths[0], dict) else {}
    reason, queue = str(first.get("reason", "")), str(first.get("queue", ""))
    known = _BROKER_REASONS.get(reason, DeadLetterReason.BROKER_REFUSED)
    if not reason:
        return known, "put here by somebody else than a router"
    return known, f"the broker gave it up in {queue}: {reason}"


@dataclass(frozen=True, slots=True)
class Filter:
    """Which dead letters are meant. Everything that is set must fit; times are UTC microseconds.

    ``contains`` is looked for in the error text, without case.
    """

    reasons: frozenset[DeadLetterReason] = frozenset()
    agent: str | None = None
    capability: str | None = None
    contains: str | None = None
    task_ids: frozenset[str] = frozenset()
    died_before: int | None = None
    died_after: int | None = None

    def fits(self, letter: DeadLetter) -> bool:
        """Whether this one is meant."""
        checks = (
            not self.reasons or letter.reason in self.reasons,
            not self.task_ids or letter.task_id in self.task_ids,
            self.agent is None or any(attempt.agent_id == self.agent for attempt in letter.envelope.attempts),
            self.capability is None or letter.envelope.capability == self.capability,
            self.contains is None or self.contains.casefold() in letter.error.casefold(),
            self.died_before is None or letter.died_at < self.died_before,
            self.died_after is None or letter.died_at >= self.died_after,
        )
        return all(checks)


_VARIABLE: Final = re.compile(r"[0-9a-f]{8,}|\d+|'[^']*'|\"[^\"]*\"")


def error_group(letter: DeadLetter) -> str:
    """Reason and error text with what differs from case to case (numbers, ids, quoted words) taken out."""
    return f"{letter.reason.value}: {_VARIABLE.sub('…', cut(letter.error, 200))}"


@dataclass(frozen=True, slots=True)
class HeldBack:
    """Not replayed, with why and what would change it."""

    why: str


def replayed(
    letter: DeadLetter, *, to_agent: str | None, body: bytes | None, force: bool, max_bytes: int
) -> tuple[Envelope, bytes] | HeldBack:
    """What replaying a dead letter sends to the routers: a new life, with a fresh budget and the old history kept.

    ``body`` replaces the task's own (an edited one). The deadline counts anew.
    """
    if letter.is_outcome:
        return HeldBack("it is an agent's outcome, not a task; read it, then drop it")
    if letter.envelope.replays >= MAX_REPLAYS and not force:
        return HeldBack(f"it was replayed {letter.envelope.replays} times already; --force replays it again")
    sent = letter.body if body is None else body
    task = decode_task(sent, max_bytes=max_bytes)
    if isinstance(task, Refusal):
        return HeldBack(f"the body is no task ({task.reason.value}): {task.error}; --edit mends it")
    old = letter.envelope
    past = [*(orjson.loads(old.past) if old.past else []), *(attempt.as_dict() for attempt in old.attempts)]
    envelope = replace(
        old,
        life=old.life + 1,
        replays=old.replays + 1,
        attempts=(),
        released=(),
        past=_shortened(past),
        deadline=None,
        not_before=0,
        capability=fold(task.capability or ""),
        to_agent=to_agent,
        side_effects=task.side_effects,
    )
    return envelope, sent


def assigned(
    letter: DeadLetter, *, to_agent: str | None, capability: str | None, max_bytes: int
) -> tuple[Envelope, bytes] | HeldBack:
    """What assigning an unmatched task sends to the routers: the same task, now for whom a person chose."""
    body = letter.body
    if capability is not None:
        body = _with_capability(body, capability)
    task = decode_task(body, max_bytes=max_bytes)
    if isinstance(task, Refusal):
        return HeldBack(f"the body is no task ({task.reason.value}): {task.error}")
    envelope = replace(
        letter.envelope, capability=fold(task.capability or ""), to_agent=to_agent, not_before=0
    )
    return envelope, body


def _with_capability(body: bytes, capability: str) -> bytes:
    """The task with another capability, in place of its intent if it had one. A body that is no object stays."""
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body
    if not isinstance(data, dict):
        return body
    return orjson.dumps(
        {**{name: value for name, value in data.items() if name != "intent"}, "capability": capability}
    )


PAST_LIMIT: Final = 16 * 1024


def _shortened(past: list[Any]) -> str | None:
    """The history as JSON text; the oldest go first where it would not fit into the headers."""
    while past and len(orjson.dumps(past)) > PAST_LIMIT:
        past = past[1:]
    return orjson.dumps(past).decode() if past else None
