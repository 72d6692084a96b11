"""Dead letters and unmatched tasks as a router leaves them, without one."""

from collections.abc import Sequence
from typing import Any

import orjson
import pika
from pika.adapters.blocking_connection import BlockingChannel

from reach_worker.bus import topology
from reach_worker.core.envelope import Envelope
from reach_worker.core.message import Message
from reach_worker.core.names import Names
from reach_worker.core.outcome import Attempt, DeadLetterReason, OutcomeClass
from reach_worker.services.router.messages import dead_letter_message, unmatched_message

SECOND_US = 1_000_000
NOW_US = 1_700_000_000 * SECOND_US


def declare(channel: BlockingChannel, names: Names) -> None:
    """The queues that are there before any router or agent, and the ways to them."""
    base = topology.base(names)
    for exchange in base.exchanges:
        channel.exchange_declare(
            exchange.name, exchange.kind, durable=True, arguments=dict(exchange.arguments)
        )
    for queue in base.queues:
        channel.queue_declare(queue.name, durable=True, arguments=dict(queue.arguments))
    for binding in base.bindings:
        channel.queue_bind(binding.queue, binding.exchange, binding.routing_key)


def put(channel: BlockingChannel, *messages: Message) -> None:
    """Send messages as they are, confirmed."""
    channel.confirm_delivery()
    for message in messages:
        properties = pika.BasicProperties(headers=dict(message.headers), delivery_mode=2)
        channel.basic_publish(message.exchange, message.routing_key, message.body, properties, mandatory=True)


def letter(
    names: Names,
    task_id: str,
    *,
    capability: str = "text.echo",
    payload: Any = None,
    body: bytes | None = None,
    reason: DeadLetterReason = DeadLetterReason.ATTEMPTS_EXHAUSTED,
    error: str = "4 attempts, the last: failed: it broke",
    agents: Sequence[str] = ("quick",),
    replays: int = 0,
    died_at: int = NOW_US,
) -> Message:
    """The message of a dead letter."""
    envelope = Envelope(
        task_id=task_id,
        flow_id=task_id,
        capability=capability,
        caller="anonymous",
        first_seen=NOW_US - SECOND_US,
        attempts=tuple(_attempt(number, agent) for number, agent in enumerate(agents, start=1)),
        replays=replays,
        life=replays,
    )
    return dead_letter_message(
        names, envelope, body or task_body(task_id, capability, payload), reason, error, died_at
    )


def task_body(task_id: str, capability: str, payload: Any = None) -> bytes:
    return orjson.dumps(
        {"task_id": task_id, "capability": capability, "payload": payload or {"text": "hello"}}
    )


def _attempt(number: int, agent: str) -> Attempt:
    return Attempt(
        number, agent, f"d{number}", f"e{number}", OutcomeClass.FAILED, "it broke", NOW_US, NOW_US + SECOND_US
    )


def parked(names: Names, task_id: str, capability: str, why: str) -> Message:
    """The message of an unmatched task."""
    envelope = Envelope(task_id, task_id, capability, "anonymous", NOW_US)
    return unmatched_message(
        names, envelope, task_body(task_id, capability), why, {"verdict": "unmatched"}, "e1"
    )


def ready(channel: BlockingChannel, queue: str) -> int:
    """How many messages wait in a queue."""
    count: int = channel.queue_declare(queue, passive=True).method.message_count
    return count


def take(channel: BlockingChannel, queue: str) -> tuple[dict[str, Any], bytes]:
    """Take a message for good: its headers and its body."""
    method, properties, body = channel.basic_get(queue, auto_ack=True)
    assert method is not None, f"{queue} is empty"
    return dict(properties.headers or {}), body
