"""What the services need of the outside: a clock, a bus, a store. Narrow on purpose; each has one real adapter."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Protocol

from reach_worker.core.duplicates import KnownTask
from reach_worker.core.message import Delivery, Message
from reach_worker.core.success import TrackRecord
from reach_worker.ports.rows import (
    Accepted,
    AnswerLost,
    BreakerMoved,
    Claimed,
    Decided,
    Dispatched,
    Ended,
    Feedback,
    Joined,
    KnownDispatch,
    ManifestSeen,
    OutcomeSeen,
    Parked,
    Row,
    Standing,
    Started,
    Unclaimed,
    Unsent,
)

__all__ = [
    "Accepted",
    "AnswerLost",
    "BreakerMoved",
    "Bus",
    "Claimed",
    "Clock",
    "ConsumingBus",
    "Decided",
    "Dispatched",
    "Ended",
    "Feedback",
    "Inbox",
    "Joined",
    "KnownDispatch",
    "ManifestSeen",
    "OutcomeSeen",
    "Parked",
    "Row",
    "Sent",
    "Standing",
    "Started",
    "Store",
    "SubscribingBus",
    "Unclaimed",
    "Unsent",
]

# ------------------------------------------------------ time, chance, ids


class Clock(Protocol):
    """Time, chance and ids, as one thing that a test can hold in its hand."""

    def monotonic(self) -> float:
        """Seconds for measuring; never goes back."""
        ...

    def utc_us(self) -> int:
        """UTC now, microseconds since 1970. Only for what is stored or sent."""
        ...

    def draw(self) -> float:
        """Uniform in [0, 1)."""
        ...

    def new_id(self) -> str:
        """A new unique id, 32 hexadecimal digits.

        Ids of one time begin alike, so that an index of them grows in one place: in a long history each random place
        costs a page of its own. What tells two apart is at their end; whoever needs a short one takes it from there.
        """
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


# ---------------------------------------------------------------- the bus


class Sent(StrEnum):
    """What became of a published message."""

    CONFIRMED = "confirmed"
    UNROUTABLE = "unroutable"
    REFUSED = "refused"
    UNCERTAIN = "uncertain"


class Bus(Protocol):
    """The broker, as the services see it. Every call is bounded in time.

    A session is one life of the connections. When it ends, unacknowledged deliveries come again in the next
    one, and receipts of the old one are worth nothing (acknowledging them is let go, not an error).
    """

    async def publish(self, messages: Sequence[Message]) -> list[Sent]:
        """Send all, wait for the broker's word on each. Never raises for a single message."""
        ...

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledge; those of an earlier session are let go."""
        ...

    async def get(self, queue: str, limit: int) -> tuple[list[Delivery], int]:
        """Take up to ``limit`` messages from a queue; also how many are left there."""
        ...

    async def get_many(self, queue: str, count: int) -> list[Delivery]:
        """As :meth:`get`, and many times faster, where so many wait. Fewer if somebody else takes some too."""
        ...

    async def depth(self, queue: str) -> tuple[int, int] | None:
        """Messages and consumers of a queue, ``None`` if it does not exist. Raises :class:`BrokerUnavailable`."""
        ...

    async def declare_queue(self, name: str) -> None:
        """Make sure that a lane, an agent's or a router's queue exists."""
        ...

    def current(self, delivery: Delivery) -> bool:
        """The delivery belongs to the session that is alive now."""
        ...

    @property
    def in_session(self) -> bool:
        """A session is alive now."""
        ...


class Inbox(Protocol):
    """What has arrived and was not taken yet, by subscription name."""

    arrived: asyncio.Event

    @property
    def waiting(self) -> Mapping[str, Sequence[Delivery]]:
        """All of it, to look at."""
        ...

    def take(self, name: str, limit: int | None = None) -> list[Delivery]:
        """Take what there is of one subscription, oldest first."""
        ...

    def put(self, name: str, delivery: Delivery) -> None:
        """Add a delivery."""
        ...


class ConsumingBus(Bus, Protocol):
    """The bus with subscriptions: queues that are consumed in every session."""

    @property
    def inbox(self) -> Inbox:
        """Where deliveries land."""
        ...

    @property
    def mailbox(self) -> str:
        """Name of this session's private mailbox."""
        ...

    def consumes(self, name: str) -> bool:
        """Whether a subscription consumes now, as far as this side of the connection knows."""
        ...

    async def want(self, name: str, *, wanted: bool) -> None:
        """Stop or resume one subscription."""
        ...

    async def set_prefetch(self, name: str, prefetch: int) -> None:
        """Take another number of deliveries at once from one subscription."""
        ...

    async def add_subscription(self, name: str, queue: str, prefetch: int) -> None:
        """Consume one more queue."""
        ...

    async def add_mailbox(self, name: str, prefetch: int, prefix: str) -> None:
        """One more private mailbox, in this session and the next ones; ``mailbox`` stays the first one."""
        ...

    def mailbox_of(self, name: str) -> str:
        """Name of the private mailbox of a subscription in this session; empty where there is none."""
        ...

    async def drop_mailbox(self, name: str) -> None:
        """End a subscription that was added, with its mailbox and what is in it."""
        ...

    async def trust(self, name: str) -> None:
        """What came by a subscription did no harm. A new session takes one message at a time until it knows that.

        An acknowledgement says it too, of a message that was never delivered before: those that were are taken one
        at a time. This is for who holds a message for long.
        """
        ...


class SubscribingBus(ConsumingBus, Protocol):
    """The bus while it is being set up: what will be consumed in every session."""

    on_session: Callable[[], None]

    def subscribe(
        self, name: str, queue: str, prefetch: int, *, wanted: bool = True, at_once: bool = False
    ) -> None:
        """Consume a queue. Deliveries land in the inbox under ``name``. ``at_once``: no slow start."""
        ...

    def subscribe_mailbox(
        self, name: str, bindings: Iterable[tuple[str, str]] = (), *, prefix: str | None = None
    ) -> None:
        """A private mailbox, new in every session, bound to (exchange, routing key) pairs."""
        ...


# -------------------------------------------------------------- the store


class Store(Protocol):
    """The long-term store, as the router sees it. None of these calls ever stops a task.

    Each is bounded in time and answers with what it has (nothing, if the store is away), so a locked, slow or
    full database costs knowledge, never work.
    """

    async def record(self, rows: Sequence[Row], *, patient: bool = False) -> bool:
        """Write the rows as one transaction. ``False``: not committed yet (kept, and written as soon as it can be).

        ``patient``: nobody waits for it, so they may wait some milliseconds for rows to be written with.
        """
        ...

    async def known_tasks(self, task_ids: Sequence[str]) -> dict[str, KnownTask]:
        """What is known of these task ids."""
        ...

    async def known_dispatches(self, dispatch_ids: Sequence[str]) -> dict[str, KnownDispatch]:
        """What is known of these dispatches."""
        ...

    async def open_dispatches(self, router: str) -> list[KnownDispatch]:
        """Dispatches of a router that have no current outcome and whose task has not ended."""
        ...

    async def waiters(self, task_ids: Sequence[str]) -> dict[str, list[Joined]]:
        """Who else waits for the answers of these tasks."""
        ...

    async def track_record(self) -> TrackRecord:
        """The agents' statistics, for the start."""
        ...

    async def manifests(self) -> list[str]:
        """The newest manifest of every agent ever seen, as JSON."""
        ...
