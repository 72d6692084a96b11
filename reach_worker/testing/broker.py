"""A broker in memory: the project's queues and exchanges, with RabbitMQ's rules and the test's clock."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

import orjson

from reach_worker.core.backoff import RUNGS_MS
from reach_worker.core.message import Delivery, Message
from reach_worker.core.names import Names
from reach_worker.testing.clock import SteppedClock
from reach_worker.testing.faults import Client, Faults
from reach_worker.testing.queue import Consumer, MemoryQueue, QueueRules, Stored, buried

HANDLING_LIMIT: Final = 20
OUTCOMES_LIMIT: Final = 1000
MAILBOX_LENGTH: Final = 10_000


class MemoryBroker:
    """Holds queues; :class:`MemoryBus` is a connection to it. Time passes when ``clock`` is moved.

    ``faults``: what is to go wrong. ``clients``: who is connected.

    It begins with everything that does not depend on agents or routers: ``intake``, ``returns``, the retry ladder,
    ``unmatched``, ``dlq`` and the exchanges.
    """

    def __init__(self, clock: SteppedClock, prefix: str = "reach.v1") -> None:
        self.clock = clock
        self.names = Names(prefix)
        self.queues: dict[str, MemoryQueue] = {}
        self.clients: list[Client] = []
        self.faults = Faults(self.names, self.clients)
        self.faults.call_at = lambda after_s, call: clock.call_at(clock.monotonic() + after_s, call)
        self._bindings: dict[str, list[tuple[str, str]]] = {}
        names = self.names
        for name in (names.dlq, names.unmatched):
            self._add(name, QueueRules())
        for name in (names.returns, names.intake):
            self._add(name, QueueRules(HANDLING_LIMIT, names.dlq))
        for rung in RUNGS_MS:
            self._add(names.retry(rung), QueueRules(None, names.returns, rung / 1000))
        self._bindings = {
            names.tasks: [("#", names.intake)],
            names.events: [],
            names.lost: [("#", names.dlq)],
        }

    # -- for tests

    def send_task(self, task: Mapping[str, Any] | bytes, **properties: Any) -> None:
        """Publish to the public exchange, as any AMQP client may: a task, or any bytes.

        ``properties`` are those of :class:`Delivery`: ``message_id``, ``reply_to``, ``user_id``, ``headers``, …
        """
        body = task if isinstance(task, bytes) else orjson.dumps(dict(task))
        self.put(Delivery("", body, None, **properties), self.names.tasks)

    def put_message(self, queue: str, body: bytes, headers: Mapping[str, Any] | None = None) -> None:
        """Put a message straight into a queue."""
        self.put(Delivery("", body, None, headers or {}, routing_key=queue))

    def put(self, content: Delivery, exchange: str = "") -> bool:
        """Publish any message, by default to the queue that its routing key names; ``False`` if no queue took it."""
        targets = self._targets(exchange, content.routing_key)
        content = replace(content, receipt=None, redelivered=False, exchange=exchange)
        for queue in targets or ():
            for one in self.faults.arriving(queue.name, content, partial(self._store, queue)):
                self._store(queue, one)
        return bool(targets)

    def messages(self, queue: str) -> list[Delivery]:
        """What waits in a queue, oldest first. Nothing is taken."""
        return self.queues[queue].contents()

    def declare_private(self, name: str) -> None:
        """A queue of somebody else's, for answers."""
        self._add(name, QueueRules(max_length=MAILBOX_LENGTH))

    def delete_queue(self, name: str) -> None:
        """Remove a queue with all that waits in it. What of it is unacknowledged is gone too.

        Whoever consumes it is cancelled by the broker, which ends his session.
        """
        self.queues.pop(name, None)
        for bindings in self._bindings.values():
            bindings[:] = [(key, queue) for key, queue in bindings if queue != name]
        for client in [client for client in self.clients if client.consumes_from(name)]:
            client.end_session()

    # -- for buses

    def declare(self, name: str) -> MemoryQueue:
        """Make sure that a lane, an agent's or a router's queue exists. ``ValueError`` for any other."""
        return self._add(name, self._rules_of(name))

    def bind(self, exchange: str, routing_key: str, queue: str) -> None:
        """Let a queue have what an exchange gets under a routing key, which may hold ``*`` and ``#``."""
        self._bindings[exchange].append((routing_key, queue))

    def publish(self, message: Message) -> bool | None:
        """Route a message of ours; ``False`` if nothing took it, ``None`` if there is no such exchange."""
        if self._targets(message.exchange, message.routing_key) is None:
            return None
        content = Delivery(
            queue="",
            body=message.body,
            receipt=None,
            headers=dict(message.headers),
            message_id=message.message_id or self.clock.new_id(),
            correlation_id=message.correlation_id,
            reply_to=message.reply_to,
            user_id=message.user_id,
            content_type=message.content_type,
            expiration_ms=message.expiration_ms,
            routing_key=message.routing_key,
        )
        return self.put(content, message.exchange)

    def put_back(self, name: str, stored: Stored) -> None:
        """Take a delivery back that nobody acknowledged."""
        queue = self.queues.get(name)
        if queue is None:
            return
        if queue.put_back(stored):
            self._watch(queue, stored)
        else:
            self._bury(queue, stored, "delivery_limit")

    def consume(self, name: str, consumer: Consumer) -> None:
        """Add a consumer."""
        queue = self.queues[name]
        queue.consumers.append(consumer)
        self.pump(queue)

    def cancel(self, name: str, consumer: Consumer) -> None:
        """Remove a consumer; what it has stays its own."""
        queue = self.queues.get(name)
        if queue is not None and consumer in queue.consumers:
            queue.consumers.remove(consumer)
            self.pump(queue)

    def pump(self, queue: MemoryQueue) -> None:
        """Bury what has expired, hand out the rest as far as consumers have room."""
        self._expire(queue)
        while queue.ready and (consumer := queue.next_consumer()) is not None:
            stored = queue.take()
            if stored is not None:
                consumer.unacked += 1
                consumer.deliver(stored)
            self._expire(queue)

    # -- inside

    def _store(self, queue: MemoryQueue, content: Delivery) -> None:
        self._watch(queue, queue.put(content, self.clock.monotonic()))
        self.pump(queue)

    def _add(self, name: str, rules: QueueRules) -> MemoryQueue:
        return self.queues.setdefault(name, MemoryQueue(name, rules))

    def _rules_of(self, name: str) -> QueueRules:
        kind, _, rest = name.removeprefix(f"{self.names.prefix}.").partition(".")
        match kind:
            case "lane" if rest:
                return QueueRules(None, self.names.returns)
            case "agent" if rest:
                return QueueRules(HANDLING_LIMIT, self.names.returns)
            case "outcomes" if rest:
                return QueueRules(OUTCOMES_LIMIT, self.names.dlq, single_active_consumer=True)
            case _:
                raise ValueError(f"{name!r} is no queue that is declared on demand")

    def _targets(self, exchange: str, routing_key: str) -> list[MemoryQueue] | None:
        if not exchange:
            return [self.queues[routing_key]] if routing_key in self.queues else []
        if exchange not in self._bindings:
            return None
        found = {queue: None for key, queue in self._bindings[exchange] if topic_matches(key, routing_key)}
        if not found and exchange == self.names.tasks:
            return self._targets(self.names.lost, routing_key)
        return [self.queues[queue] for queue in found]

    def _watch(self, queue: MemoryQueue, stored: Stored) -> None:
        if stored.expires_at is not None:
            self.clock.call_at(stored.expires_at, partial(self.pump, queue))

    def _expire(self, queue: MemoryQueue) -> None:
        for stored in queue.take_expired(self.clock.monotonic()):
            self._bury(queue, stored, "expired")

    def _bury(self, queue: MemoryQueue, stored: Stored, reason: str) -> None:
        target = queue.rules.dead_letters_to
        if target is not None:
            content = buried(stored.content, queue.name, reason, self.clock.utc_us())
            self.put(replace(content, routing_key=target))


def topic_matches(pattern: str, routing_key: str) -> bool:
    """Whether a topic binding takes a routing key: ``*`` is one word, ``#`` any number of them."""
    return _words_match(pattern.split("."), routing_key.split(".") if routing_key else [])


def _words_match(pattern: list[str], words: list[str]) -> bool:
    if not pattern:
        return not words
    first, rest = pattern[0], pattern[1:]
    if first == "#":
        return any(_words_match(rest, words[skip:]) for skip in range(len(words) + 1))
    return bool(words) and first in ("*", words[0]) and _words_match(rest, words[1:])
