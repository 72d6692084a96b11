"""What one life of a connection in memory holds: subscriptions, what they consume, what is not acknowledged."""

import asyncio
from collections import deque
from dataclasses import dataclass, field

from reach_worker.core.message import Delivery
from reach_worker.testing.queue import Consumer, Stored


@dataclass(slots=True)
class MemoryInbox:
    """What has arrived, by subscription."""

    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    waiting: dict[str, deque[Delivery]] = field(default_factory=dict)

    def put(self, name: str, delivery: Delivery) -> None:
        """Add a delivery."""
        self.waiting.setdefault(name, deque()).append(delivery)
        self.arrived.set()

    def take(self, name: str, limit: int | None = None) -> list[Delivery]:
        """Take what there is of one subscription, oldest first."""
        queue = self.waiting.get(name, deque())
        count = len(queue) if limit is None else min(limit, len(queue))
        return [queue.popleft() for _ in range(count)]


@dataclass(slots=True)
class Subscription:
    """A wish to consume a queue, over all sessions. ``queue`` ``None``: a private mailbox."""

    name: str
    queue: str | None
    prefetch: int
    bindings: tuple[tuple[str, str], ...] = ()
    mailbox_prefix: str = ""
    wanted: bool = True
    at_once: bool = False


@dataclass(eq=False, slots=True)
class Receipt:
    """What a delivery can be acknowledged with, in the session that it came by."""

    session: "Session"
    queue: str
    stored: Stored
    consuming: "Consuming | None"
    consumer: Consumer | None


@dataclass(eq=False, slots=True)
class Consuming:
    """One subscription in one session. Until it is trusted it takes one message at a time."""

    subscription: Subscription
    queue: str
    trusted: bool
    consumer: Consumer | None = None

    def adjust(self) -> None:
        """Hold as many as are wanted now; more or fewer than before."""
        if self.consumer is not None and self.trusted:
            self.consumer.prefetch = self.subscription.prefetch


@dataclass(eq=False, slots=True)
class Session:
    """One life of the connection."""

    mailboxes: dict[str, str] = field(default_factory=dict)
    consuming: dict[str, Consuming] = field(default_factory=dict)
    unacked: dict[int, Receipt] = field(default_factory=dict)
    private: list[str] = field(default_factory=list)
