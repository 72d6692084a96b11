"""Dead letters as people see them: reading one, choosing some, and what replaying one sends."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Final

import orjson

from reach_worker.core.dispatch import OUTCOME
from reach_worker.core.envelope import ANONYMOUS, BadHeaders, Envelope, envelope_from, number, passed_on, text
from reach_worker.core.error_group import group_id, group_text
from reach_worker.core.message import Delivery
from reach_worker.core.names import Names
from reach_worker.core.outcome import DeadLetterReason
from reach_worker.core.reply_address import why_not_answered
from reach_worker.core.tags import fold
from reach_worker.core.task import Task, decode_task, usable_id

REASON: Final = "x-reach-reason"
ERROR: Final = "x-reach-error"
DIED_AT: Final = "x-reach-died-at"

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
    ``nameless``: it came without an id; the one it is shown by follows from its contents, and others may have it too.
    """

    envelope: Envelope
    reason: DeadLetterReason
    error: str
    died_at: int
    body: bytes
    is_outcome: bool = False
    nameless: bool = False

    @property
    def task_id(self) -> str:
        """The id of the task, or the one that was given to a message that is none."""
        return self.envelope.task_id

    @property
    def received(self) -> bytes:
        """The task as it was received; the body is another one where agents handed it on."""
        task = decode_task(self.body, max_bytes=len(self.body) + 1)
        handed = task.handoff if isinstance(task, Task) else None
        return self.body if handed is None else handed.origin.encode()

    def as_dict(self) -> dict[str, Any]:
        """Plain data for ``--json`` and exports; the body as text, lossless for UTF-8."""
        envelope = self.envelope
        past = orjson.loads(envelope.past) if envelope.past else []
        received = self.received
        handed = {} if received == self.body else {"received": received.decode("utf-8", "backslashreplace")}
        return {
            "task_id": envelope.task_id,
            "flow_id": envelope.flow_id,
            "capability": envelope.capability,
            "caller": envelope.caller,
            "reason": self.reason.value,
            "error": self.error,
            "first_seen": envelope.first_seen,
            "died_at": self.died_at,
            "chain": envelope.chain(),
            "life": envelope.life,
            "replays": envelope.replays,
            "attempts": [attempt.as_dict() for attempt in envelope.attempts],
            "past_attempts": past,
            "is_outcome": self.is_outcome,
            "body": self.body.decode("utf-8", "backslashreplace"),
            **handed,
        }


def dead_letter_from(delivery: Delivery) -> DeadLetter:
    """What a message in the dead letters says. Never raises: also what the broker itself put there can be read.

    Our headers are believed only where a router or an agent wrote them. What the broker took from the public door (its
    own expiration, a delivery limit) still has the publisher's: he could name another caller, or one of our queues.
    """
    public = _is_public(delivery)
    headers = _without_ours(delivery.headers) if public else delivery.headers
    envelope = envelope_from(headers)
    nameless = False
    if isinstance(envelope, BadHeaders):
        envelope = _envelope_of_stranger(delivery)
        nameless = not envelope.task_id
        if nameless:
            envelope = replace(envelope, task_id=_stand_in(delivery), flow_id=_stand_in(delivery))
    said = text(headers, REASON) or ""
    try:
        reason, error = DeadLetterReason(said), text(headers, ERROR) or ""
    except ValueError:
        reason, error = _broker_reason(delivery)
        error = text(headers, ERROR) or error
    return DeadLetter(
        envelope=_readable(envelope),
        reason=reason,
        error=error,
        died_at=number(headers, DIED_AT) or 0,
        body=delivery.body,
        is_outcome=OUTCOME in headers,
        nameless=nameless,
    )


def _is_public(delivery: Delivery) -> bool:
    """It came straight from the public door: by its exchange, or out of the queue behind it.

    Ours never had an ``x-death`` of that queue: what is admitted gets headers of our own.
    """
    if delivery.exchange:
        return True
    return any(death.get("queue") == _names(delivery).intake for death in _deaths(delivery.headers))


def _names(delivery: Delivery) -> Names:
    """Dead letters and unmatched tasks lie in ``<prefix>.<kind>``."""
    return Names(delivery.queue.rpartition(".")[0])


def _deaths(headers: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    deaths = headers.get("x-death")
    return [death for death in deaths if isinstance(death, dict)] if isinstance(deaths, list) else []


def _without_ours(headers: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: value for name, value in headers.items() if not name.startswith("x-reach-")}


def _envelope_of_stranger(delivery: Delivery) -> Envelope:
    task = decode_task(delivery.body, max_bytes=len(delivery.body) + 1)
    capability = fold(task.capability or "") if isinstance(task, Task) else ""
    message_id = delivery.message_id if usable_id(delivery.message_id) else None
    task_id = (task.task_id if isinstance(task, Task) else None) or message_id or ""
    refused = (
        delivery.reply_to is not None and why_not_answered(delivery.reply_to, _names(delivery)) is not None
    )
    return Envelope(
        task_id=task_id,
        flow_id=(task.flow_id if isinstance(task, Task) else None) or task_id,
        capability=capability,
        caller=delivery.user_id or ANONYMOUS,
        first_seen=max(0, int((delivery.timestamp_s or 0) * 1_000_000)),
        reply_to=None if refused else delivery.reply_to,
        correlation_id=delivery.correlation_id,
        content_type=delivery.content_type,
        passed_on=passed_on(delivery.headers),
    )


def _stand_in(delivery: Delivery) -> str:
    """Something to call a message by that has no id: the same each time one looks."""
    seen = (
        delivery.body,
        repr(delivery.headers.get("x-death")).encode(),
        (delivery.correlation_id or "").encode(),
    )
    digest = blake2b(digest_size=6)
    for part in seen:
        digest.update(blake2b(part).digest())
    return f"nameless-{digest.hexdigest()}"


def _readable(envelope: Envelope) -> Envelope:
    """Without a history that is no JSON."""
    try:
        past = orjson.loads(envelope.past) if envelope.past else []
    except orjson.JSONDecodeError:
        past = None
    return envelope if isinstance(past, list) else replace(envelope, past=None)


def _broker_reason(delivery: Delivery) -> tuple[DeadLetterReason, str]:
    if delivery.fault is not None:
        return (
            DeadLetterReason.UNDECODABLE,
            f"the broker gave it up, and its properties cannot be decoded: {delivery.fault}",
        )
    first = next(iter(_deaths(delivery.headers)), {})
    reason, queue = str(first.get("reason", "")), str(first.get("queue", ""))
    known = _BROKER_REASONS.get(reason, DeadLetterReason.BROKER_REFUSED)
    if not reason:
        return known, "put here by somebody else than a router"
    return known, f"the broker gave it up in {queue}: {reason}"


@dataclass(frozen=True, slots=True)
class Filter:
    """Which dead letters are meant. Everything that is set must fit; times are UTC microseconds.

    ``contains`` is looked for in the error text, without case. ``group``: the id of a group of errors.
    """

    reasons: frozenset[DeadLetterReason] = frozenset()
    agent: str | None = None
    capability: str | None = None
    contains: str | None = None
    task_ids: frozenset[str] = frozenset()
    died_before: int | None = None
    died_after: int | None = None
    group: str | None = None

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
            self.group is None or error_group_id(letter) == self.group,
        )
        return all(checks)


def error_group(letter: DeadLetter) -> str:
    """Reason and error text with what differs from case to case (numbers, ids, quoted words, paths) taken out."""
    return f"{letter.reason.value}: {group_text(letter.error)}"


def error_group_id(letter: DeadLetter) -> str:
    """A short name for the group, the same everywhere and always."""
    return group_id(error_group(letter))
