"""A queue in memory, by the rules of RabbitMQ's quorum queues."""

from bisect import insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from reach_worker.core.message import Delivery

DELIVERY_COUNT = "x-delivery-count"


@dataclass(frozen=True, slots=True)
class QueueRules:
    """A queue's arguments. Where nothing is set the queue keeps everything for ever."""

    delivery_limit: int | None = None
    dead_letters_to: str | None = None
    message_ttl_s: float | None = None
    single_active_consumer: bool = False
    max_length: int | None = None


@dataclass(eq=False, slots=True)
class Stored:
    """A message in a queue. ``number`` is its place, ``returned`` how often it was delivered in vain."""

    number: int
    content: Delivery
    expires_at: float | None
    returned: int = 0

    def as_delivery(self, receipt: object) -> Delivery:
        """The message as a consumer gets it."""
        headers = dict(self.content.headers)
        if self.returned:
            headers[DELIVERY_COUNT] = self.returned
        return replace(self.content, receipt=receipt, headers=headers, redelivered=self.returned > 0)


@dataclass(eq=False, slots=True)
class Consumer:
    """One consumer of a queue, and how much it may have unacknowledged."""

    prefetch: int
    deliver: Callable[[Stored], None]
    unacked: int = 0


@dataclass(slots=True)
class MemoryQueue:
    """Ready messages in order, and who consumes them. Only its head can expire, as at RabbitMQ."""

    name: str
    rules: QueueRules
    ready: list[Stored] = field(default_factory=list)
    consumers: list[Consumer] = field(default_factory=list)
    _last: int = 0

    def contents(self) -> list[Delivery]:
        """What waits here, oldest first, as it would be delivered."""
        return [stored.as_delivery(None) for stored in self.ready]

    def put(self, content: Delivery, now: float) -> Stored:
        """Add a message at the end. A full queue drops its oldest."""
        limits = [
            seconds
            for seconds in (
                self.rules.message_ttl_s,
                None if content.expiration_ms is None else content.expiration_ms / 1000,
            )
            if seconds is not None
        ]
        self._last += 1
        stored = Stored(self._last, replace(content, queue=self.name), now + min(limits) if limits else None)
        self.ready.append(stored)
        if self.rules.max_length is not None and len(self.ready) > self.rules.max_length:
            del self.ready[0]
        return stored

    def put_back(self, stored: Stored) -> bool:
        """A delivery that was not acknowledged, back in its place; ``False`` if that was once too often."""
        stored.returned += 1
        if self.rules.delivery_limit is not None and stored.returned > self.rules.delivery_limit:
            return False
        insort(self.ready, stored, key=lambda one: one.number)
        return True

    def take(self) -> Stored | None:
        """The oldest message."""
        return self.ready.pop(0) if self.ready else None

    def take_expired(self, now: float) -> Iterator[Stored]:
        """Take what has expired at the head."""
        while self.ready and (expires_at := self.ready[0].expires_at) is not None and expires_at <= now:
            yield self.ready.pop(0)

    def next_consumer(self) -> Consumer | None:
        """Whose turn it is; ``None`` if nobody has room."""
        able = self.consumers[:1] if self.rules.single_active_consumer else self.consumers
        consumer = next((one for one in able if one.unacked < one.prefetch), None)
        if consumer is not None and len(able) > 1:
            self.consumers.remove(consumer)
            self.consumers.append(consumer)
        return consumer


def buried(content: Delivery, queue: str, reason: str, now_us: int) -> Delivery:
    """A message as it is dead-lettered: without its expiration, with ``x-death`` telling why."""
    headers = {name: value for name, value in content.headers.items() if name != DELIVERY_COUNT}
    deaths = [dict(death) for death in headers.get("x-death", ())]
    same = next((death for death in deaths if (death["queue"], death["reason"]) == (queue, reason)), None)
    if same is None:
        same = {"queue": queue, "reason": reason, "count": 0, "exchange": "", "routing-keys": [queue]}
        headers.setdefault("x-first-death-queue", queue)
        headers.setdefault("x-first-death-reason", reason)
        headers.setdefault("x-first-death-exchange", "")
    else:
        deaths.remove(same)
    death: dict[str, Any] = {**same, "count": same["count"] + 1, "time": now_us // 1_000_000}
    if content.expiration_ms is not None:
        death["original-expiration"] = str(content.expiration_ms)
    return replace(
        content, headers={**headers, "x-death": [death, *deaths]}, expiration_ms=None, redelivered=False
    )
