"""What the services need of the outside: a clock, a bus, a store. Narrow on purpose; each has one real adapter."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol

from reach_worker.core.duplicates import KnownTask, TaskState
from reach_worker.core.message import Delivery, Message
from reach_worker.core.outcome import DeadLetterReason, OutcomeClass
from reach_worker.core.success import TrackRecord
from reach_worker.core.value import value

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
        """A new unique id, 32 hexadecimal digits."""
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


class Inbox(Protocol):
    """What has arrived and was not taken yet, by subscription name."""

    arrived: asyncio.Event

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


class Standing(StrEnum):
    """Whether an outcome was acted on: ``current``, or ``stale`` (of a dispatch that is not the task's current one)."""

    CURRENT = "current"
    STALE = "stale"


@value(frozen=True, slots=True)
class Accepted:
    """A task was admitted. ``life`` counts its replays: 0 the first time. Times are UTC microseconds, here and below."""

    task_id: str
    life: int
    flow_id: str
    capability: str
    caller: str
    router: str
    first_seen: int


@value(frozen=True, slots=True)
class Claimed:
    """A router begins a life of a task: the first claim counts, until the life is accepted.

    ``instead_of``: the router whose claim of ``instead_at`` is taken over, because nothing came of it.
    """

    task_id: str
    life: int
    router: str
    at: int
    instead_of: str = ""
    instead_at: int = 0


@value(frozen=True, slots=True)
class Unclaimed:
    """A router has lost the messages that its claims until ``at`` were made for: whoever gets them next may begin."""

    router: str
    at: int


@value(frozen=True, slots=True)
class Decided:
    """A decision, as :meth:`Decision.as_dict` gives it."""

    decision_id: str
    task_id: str
    life: int
    attempt: int
    at: int
    router: str
    decision: Mapping[str, Any]


@value(frozen=True, slots=True)
class Dispatched:
    """A task was sent to an agent (or, with side effects, is about to be).

    ``after``: the dispatch before it in its life, empty for the first; ``None`` where that is not known. ``only_first``:
    it is not recorded, and must not be sent, where another one stands in its place already.
    """

    dispatch_id: str
    task_id: str
    life: int
    attempt: int
    agent_id: str
    capability: str
    decision_id: str
    router: str
    at: int
    after: str | None = None
    only_first: bool = False


@value(frozen=True, slots=True)
class Unsent:
    """A dispatch that was recorded first did not go out: the task goes on as if it had never been."""

    dispatch_id: str
    task_id: str
    life: int


@value(frozen=True, slots=True)
class Started:
    """An agent said that it begins to run a dispatch (only asked of tasks with side effects)."""

    dispatch_id: str
    at: int


@value(frozen=True, slots=True)
class OutcomeSeen:
    """An outcome came back. ``cost``, ``tokens_in``, ``tokens_out``: what the attempt has used, by its agent's word."""

    dispatch_id: str
    task_id: str
    life: int
    attempt: int
    agent_id: str
    capability: str
    instance_id: str
    outcome: OutcomeClass
    message: str
    at: int
    duration_ms: float | None
    standing: Standing
    cost: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0


@value(frozen=True, slots=True)
class Ended:
    """The one end of one life of a task. ``answer`` is kept so that whoever asks again gets it.

    ``dispatch_id``: whose outcome ended it, empty where none did. An outcome that is settled twice ends it once.
    """

    task_id: str
    life: int
    state: TaskState
    reason: DeadLetterReason | None
    error: str
    at: int
    remember_until: int
    answer: bytes | None
    dispatch_id: str = ""


@value(frozen=True, slots=True)
class Parked:
    """Nobody may take the task: it waits in the unmatched queue for a person."""

    task_id: str
    life: int
    reason: str
    at: int


@value(frozen=True, slots=True)
class Joined:
    """Another publisher waits for the task's one answer."""

    task_id: str
    reply_to: str
    correlation_id: str | None
    at: int


@value(frozen=True, slots=True)
class AnswerLost:
    """An answer found nobody who listens. The task is done all the same."""

    task_id: str
    reply_to: str
    at: int


@value(frozen=True, slots=True)
class Feedback:
    """What a person says of a task's result. ``better_agent``: who should have had it, where it went to the wrong one."""

    task_id: str
    agent_id: str
    capability: str
    verdict: str
    better_agent: str | None
    at: int


@value(frozen=True, slots=True)
class BreakerMoved:
    """An agent's breaker opened or closed."""

    agent_id: str
    router: str
    state: str
    at: int
    reason: str


@value(frozen=True, slots=True)
class ManifestSeen:
    """An agent brought its manifest. ``body`` is its JSON."""

    agent_id: str
    manifest_hash: str
    version: str
    body: str
    at: int


Row = (
    Unclaimed
    | Claimed
    | Accepted
    | Decided
    | Unsent
    | Dispatched
    | Started
    | OutcomeSeen
    | Ended
    | Parked
    | Joined
    | AnswerLost
    | Feedback
    | BreakerMoved
    | ManifestSeen
)


@value(frozen=True, slots=True)
class KnownDispatch:
    """What the store knows of a dispatch. ``settled``: a current outcome of it was recorded."""

    dispatch_id: str
    task_id: str
    life: int
    attempt: int
    agent_id: str
    capability: str
    decision_id: str
    router: str
    at: int
    started: bool
    settled: bool


class Store(Protocol):
    """The long-term store, as the router sees it. None of these calls ever stops a task.

    Each is bounded in time and answers with what it has (nothing, if the store is away), so a locked, slow or
    full database costs knowledge, never work.
    """

    async def record(self, rows: Sequence[Row]) -> bool:
        """Write the rows as one transaction. ``False``: not committed yet (kept, and written as soon as it can be)."""
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
