"""The messages a router sends, each built from what it carries."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import orjson

from reach_worker.core.answer import JSON
from reach_worker.core.backoff import rung_ms
from reach_worker.core.dead_letter import DIED_AT, ERROR, REASON
from reach_worker.core.dispatch import OUTCOME, Dispatch, lease_headers
from reach_worker.core.envelope import GROUP, NOT_BEFORE, Envelope
from reach_worker.core.foreign import BY_CONSUMERS
from reach_worker.core.group import ROUND, Round
from reach_worker.core.long_run import LEASE_S
from reach_worker.core.message import Delivery, Message
from reach_worker.core.names import Names
from reach_worker.core.outcome import DeadLetterReason, cut
from reach_worker.core.recovery import MICROSECONDS

DECISION_JSON: Final = "x-reach-decision-json"
DECISION_LIMIT: Final = 16 * 1024
WATCH_S: Final = 4.0
"""So often a group's watch comes back; while the router that leads the group lives it has nothing to do."""


def dispatch_message(names: Names, dispatch: Dispatch, body: bytes, pickup_s: float) -> Message:
    """A task on its way to an agent. The correlation id is the dispatch id: an agent that only echoes it is enough."""
    return Message(
        routing_key=names.agent(dispatch.agent_id),
        body=body,
        headers=dispatch.headers(),
        correlation_id=dispatch.dispatch_id,
        reply_to=names.outcomes(dispatch.owner),
        content_type=dispatch.envelope.content_type or JSON,
        expiration_ms=int(pickup_s * 1000),
    )


def retry_message(names: Names, envelope: Envelope, body: bytes, delay_s: float, now_us: int) -> Message:
    """A task that waits on a rung of the retry ladder."""
    headers = {**envelope.headers(), NOT_BEFORE: now_us + int(delay_s * MICROSECONDS)}
    return Message(names.retry(rung_ms(delay_s)), body, headers, content_type=envelope.content_type or JSON)


def watch_message(names: Names, envelope: Envelope, body: bytes, of: Round, now_us: int) -> Message:
    """The task of a group, which looks after its legs now and then."""
    message = retry_message(names, envelope, body, WATCH_S, now_us)
    return replace(message, headers={**message.headers, ROUND: of.header()})


def leg_ended_message(names: Names, envelope: Envelope, told: bytes) -> Message:
    """How a leg ended, to the router that leads its group."""
    queue = names.outcomes(envelope.group_owner)
    headers = {GROUP: envelope.group or ""}
    return Message(queue, told, headers, correlation_id=envelope.task_id, content_type=JSON)


def lease_message(names: Names, lease: Delivery, instance_id: str, delay_s: float, doubts: int) -> Message:
    """A lease that is parked again, as it came."""
    headers = lease_headers(lease.headers, instance_id, doubts=doubts)
    return Message(names.retry(rung_ms(delay_s)), lease.body, headers, content_type=lease.content_type)


def lease_beside(names: Names, dispatch: Dispatch, body: bytes) -> Message:
    """What waits on the broker beside a dispatch to a foreign worker, until that is settled."""
    headers = lease_headers(dispatch.headers(), BY_CONSUMERS)
    content_type = dispatch.envelope.content_type or JSON
    return Message(names.retry(rung_ms(LEASE_S)), body, headers, content_type=content_type)


def waiting_reply(names: Names, reply: Delivery, headers: Mapping[str, Any], delay_s: float) -> Message:
    """A reply that waits until its dispatch is known."""
    return Message(names.retry(rung_ms(delay_s)), reply.body, headers, content_type=reply.content_type)


def lane_message(names: Names, envelope: Envelope, body: bytes, now_us: int) -> Message:
    """A task that waits for a slot, until its deadline if it has one."""
    left_us = envelope.remaining_us(now_us)
    return Message(
        names.lane(envelope.capability),
        body,
        envelope.headers(),
        content_type=envelope.content_type or JSON,
        expiration_ms=None if left_us is None else max(0, math.ceil(left_us / 1000)),
    )


def returned_message(names: Names, envelope: Envelope, body: bytes) -> Message:
    """A task handed back to the routers, with nothing changed."""
    return Message(names.returns, body, envelope.headers(), content_type=envelope.content_type or JSON)


def dead_letter_message(
    names: Names, envelope: Envelope, body: bytes, reason: DeadLetterReason, error: str, now_us: int
) -> Message:
    """A task that will not be tried again, as it was received, with its history."""
    headers = {**envelope.headers(), REASON: reason.value, ERROR: cut(error, 2000), DIED_AT: now_us}
    return Message(names.dlq, body, headers, content_type=envelope.content_type or JSON)


def dead_letter_of_outcome(names: Names, letter_id: str, body: bytes, error: str, now_us: int) -> Message:
    """An outcome that is nobody's, marked so that it is never replayed as a task."""
    envelope = Envelope(letter_id, "", "", "", now_us)
    letter = dead_letter_message(names, envelope, body, DeadLetterReason.INVALID, error, now_us)
    return replace(letter, headers={**letter.headers, OUTCOME: "unreadable"})


def unmatched_message(
    names: Names, envelope: Envelope, body: bytes, reason: str, decision: Mapping[str, Any], decision_id: str
) -> Message:
    """A task that no agent may take, with its whole decision."""
    headers: dict[str, str | int] = {
        **envelope.headers(),
        ERROR: cut(reason, 2000),
        "x-reach-decision": decision_id,
    }
    shown = orjson.dumps(decision)
    if len(shown) <= DECISION_LIMIT:
        headers[DECISION_JSON] = shown.decode()
    return Message(names.unmatched, body, headers, content_type=envelope.content_type or JSON)


def answer_message(reply_to: str, correlation_id: str | None, body: bytes) -> Message:
    """An answer to a caller. None of our headers travel on it."""
    return Message(reply_to, body, correlation_id=correlation_id, content_type=JSON)
