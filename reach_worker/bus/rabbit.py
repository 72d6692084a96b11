"""The bus on RabbitMQ: a session that is opened again whenever it ends."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from reach_worker.bus import topology
from reach_worker.bus.calls import broker_call, cancelled_for_good
from reach_worker.bus.consumer import Subscription
from reach_worker.bus.session import Session
from reach_worker.bus.topology import Topology
from reach_worker.core.message import Delivery, Message
from reach_worker.core.names import Names
from reach_worker.errors import BrokerUnavailable, OutsideWorld, ReachError, TopologyMismatch
from reach_worker.ports import Clock, Sent

log = logging.getLogger(__name__)
for _foreign in ("aio_pika", "aiormq"):
    # What they say of a lost connection, with tracebacks, the session says in a line. A program that has not set up
    # logging would print both.
    logging.getLogger(_foreign).addHandler(logging.NullHandler())

LONG_ENOUGH_S = 30.0
"""A session that lived so long ends by accident; shorter ones slow the next start down."""

LONGEST_PAUSE_S = 5.0
"""Between attempts to connect: all are back well before anybody who is not would be suspected (9 s)."""


@dataclass(frozen=True, slots=True)
class BusSettings:
    """How to reach the broker. Times in seconds; ``urls`` are tried in order.

    ``waits``: an absent broker is waited for at the start; else that is an error at once.
    """

    urls: tuple[str, ...]
    name: str
    prefix: str = "reach.v1"
    heartbeat_s: int = 10
    call_timeout_s: float = 10.0
    connect_timeout_s: float = 10.0
    waits: bool = True


@dataclass(slots=True)
class Inbox:
    """What has arrived, by subscription. Bounded by the prefetch of each."""

    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    waiting: dict[str, deque[Delivery]] = field(default_factory=dict)

    def put(self, name: str, delivery: Delivery) -> None:
        """Add a delivery; all that a consumer callback ever does."""
        self.waiting.setdefault(name, deque()).append(delivery)
        self.arrived.set()

    def take(self, name: str, limit: int | None = None) -> list[Delivery]:
        """Take what there is of one subscription, oldest first."""
        queue = self.waiting.get(name)
        if not queue:
            return []
        count = len(queue) if limit is None else min(limit, len(queue))
        return [queue.popleft() for _ in range(count)]

    def clear(self) -> None:
        """Forget everything: the session is over, the broker delivers it again."""
        for queue in self.waiting.values():
            queue.clear()


class RabbitBus:
    """Supervises sessions: connects, declares, consumes, and does it again after any end, with backoff and jitter."""

    def __init__(self, settings: BusSettings, clock: Clock, wanted: Topology) -> None:
        self.settings = settings
        self.names = Names(settings.prefix)
        self.inbox = Inbox()
        self.sessions = 0
        self.on_session: Callable[[], None] = lambda: None
        self._clock = clock
        self._topology = wanted
        self._extra: dict[str, topology.Queue] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._session: Session | None = None
        self._wishes = 0
        self._up = asyncio.Event()

    def subscribe(
        self, name: str, queue: str, prefetch: int, *, wanted: bool = True, at_once: bool = False
    ) -> None:
        """Consume a queue in every session from now on. Deliveries land in the inbox under ``name``.

        ``at_once``: no slow start; for a queue whose single active consumer must not change.
        """
        self._subscriptions[name] = Subscription(name, queue, prefetch, wanted=wanted, at_once=at_once)

    def subscribe_mailbox(
        self, name: str, bindings: Iterable[tuple[str, str]] = (), *, prefix: str | None = None
    ) -> None:
        """A private mailbox, new in every session, bound to (exchange, routing key) pairs.

        Its queue is called ``<prefix>.<name>.<random>``; the prefix is ours unless another is given.
        """
        self._subscriptions[name] = Subscription(
            name, None, 1000, tuple(bindings), prefix or self.names.prefix
        )

    async def add_subscription(self, name: str, queue: str, prefetch: int) -> None:
        """Subscribe, also in the session that is running."""
        if name not in self._subscriptions:
            self.subscribe(name, queue, prefetch, at_once=True)
            await self._act(lambda session: session.follow([self._subscriptions[name]]))

    @asynccontextmanager
    async def running(self) -> AsyncIterator["RabbitBus"]:
        """Connect, and stay connected until the block ends.

        The first connection is made before the block begins: wrong credentials or a queue that is not as it
        should be raise at once; an absent broker is waited for, if the settings say so.
        """
        session = await (self._connect() if self.settings.waits else self._open_any())
        try:
            async with session, asyncio.TaskGroup() as group:
                supervisor = group.create_task(self._supervise(session), name="bus")
                try:
                    yield self
                finally:
                    await cancelled_for_good(supervisor)
                    self._session = None
        except BaseExceptionGroup as errors:
            raise _the_one(errors) from None

    async def add_mailbox(self, name: str, prefetch: int, prefix: str) -> None:
        """One more private mailbox, also in the session that is running."""
        self._subscriptions[name] = Subscription(name, None, prefetch, (), prefix, at_once=True)
        await self._act(lambda session: session.follow([self._subscriptions[name]]))

    async def drop_mailbox(self, name: str) -> None:
        """Forget a mailbox: its consumer, its queue, its channel, and what of it was not taken yet."""
        if self._subscriptions.pop(name, None) is not None:
            await self._act(lambda session: session.leave(name))
            self.inbox.waiting.pop(name, None)

    def mailbox_of(self, name: str) -> str:
        """Name of the private mailbox of a subscription in this session; empty where there is none."""
        return self._session.mailboxes.get(name, "") if self._session else ""

    async def publish(self, messages: Sequence[Message]) -> list[Sent]:
        """Send with confirms; ``REFUSED`` while there is no session (nothing was sent then)."""
        if not messages:
            return []
        session = self._session
        if session is None:
            return [Sent.REFUSED] * len(messages)
        return await session.publish(messages)

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledge; receipts of an earlier session are let go."""
        if deliveries and self._session is not None:
            await self._session.ack(deliveries)

    async def get(self, queue: str, limit: int) -> tuple[list[Delivery], int]:
        """Take up to ``limit`` messages from a queue; also how many are left there."""
        if self._session is None:
            return [], 0
        return await self._session.get(queue, limit)

    async def get_many(self, queue: str, count: int) -> list[Delivery]:
        """As :meth:`get`, and many times faster, where so many wait. Fewer if somebody else takes some too."""
        return [] if self._session is None else await self._session.get_many(queue, count)

    async def depth(self, queue: str) -> tuple[int, int] | None:
        """Messages and consumers of a queue, ``None`` if it does not exist. Raises :class:`BrokerUnavailable`."""
        session = self._session
        if session is None:
            raise BrokerUnavailable("no broker connection now")
        with broker_call(f"asking how many wait in {queue}"):
            return await session.depth(queue)

    async def want(self, name: str, *, wanted: bool) -> None:
        """Stop or resume one subscription."""
        subscription = self._subscriptions[name]
        if subscription.wanted != wanted:
            subscription.wanted = wanted
            await self._act(lambda session: session.follow([subscription]))

    async def set_prefetch(self, name: str, prefetch: int) -> None:
        """Take another number of deliveries at once from one subscription, from its next acknowledgement on."""
        self._subscriptions[name].prefetch = prefetch

    async def trust(self, name: str) -> None:
        """What came by a subscription did no harm: it takes the full number now."""
        await self._act(lambda session: session.trust(name))

    async def declare_queue(self, name: str) -> None:
        """Make sure that a lane, an agent's or a router's queue exists, in this session and the next ones."""
        queue = self._extra[name] = topology.by_name(self.names, name)
        await self._act(lambda session: self._declare_extra(session, [queue]))

    def current(self, delivery: Delivery) -> bool:
        """The delivery belongs to the session that is alive now."""
        return self._session is not None and self._session.owns(delivery)

    @property
    def in_session(self) -> bool:
        """A session is alive now."""
        return self._session is not None and not self._session.ended

    def consumes(self, name: str) -> bool:
        """Whether a subscription consumes now, as far as this side of the connection knows."""
        return self._session is not None and self._session.consumes(name)

    @property
    def ready(self) -> bool:
        """Connected, and every consumer that should consume does."""
        return self._session is not None and self._session.consuming

    @property
    def mailbox(self) -> str:
        """Name of this session's private mailbox: the first one, where it has several."""
        return next(iter(self._session.mailboxes.values()), "") if self._session else ""

    @property
    def server_version(self) -> str:
        """The broker's version."""
        return self._session.server_version if self._session else ""

    async def wait_up(self) -> None:
        """Wait until there is a session."""
        await self._up.wait()

    async def _act(self, action: Callable[[Session], Awaitable[None]]) -> None:
        """Do it in the session that is there; one that is just being opened takes up every wish by itself."""
        self._wishes += 1
        session = self._session
        if session is None:
            return
        try:
            with broker_call("a call to the broker"):
                async with asyncio.timeout(self.settings.call_timeout_s):
                    await action(session)
        except OutsideWorld as error:
            session.end(str(error))

    async def _supervise(self, session: Session) -> None:
        started = self._clock.monotonic()
        failures = 0
        while True:
            try:
                async with session:
                    await session.wait_end(self.settings.heartbeat_s)
            finally:
                self._session = None
                self._up.clear()
                self.inbox.clear()
            lived = self._clock.monotonic() - started
            failures = 0 if lived > LONG_ENOUGH_S else min(failures + 1, 6)
            log.warning("broker session ended after %.1f s: %s", lived, session.cause)
            ended = self._clock.monotonic()
            await self._clock.sleep(self._clock.draw() * 0.1 * 2**failures)
            session = await self._connect(patient=True)
            started = self._clock.monotonic()
            log.info("the broker is back, after %.1f s", started - ended)

    async def _connect(self, *, patient: bool = False) -> Session:
        """A new session, however long it takes. ``patient``: also through refusals that were not there at the start."""
        waits_for = OutsideWorld if patient else BrokerUnavailable
        attempts = AsyncRetrying(
            wait=wait_random_exponential(multiplier=0.2, max=LONGEST_PAUSE_S),
            retry=retry_if_exception_type(waits_for),
            sleep=self._clock.sleep,
            before_sleep=self._tell,
        )
        async for attempt in attempts:
            with attempt:
                return await self._open_any()
        raise AssertionError("tenacity gives up only by raising")

    def _tell(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        number = state.attempt_number
        level = logging.DEBUG if number & (number - 1) else logging.WARNING  # ever more seldom: 1, 2, 4, 8, …
        log.log(level, "%s (attempt %d, trying again)", error, number)

    async def _open_any(self) -> Session:
        """Try each host once, in order; the last one's error counts."""
        last: BrokerUnavailable | None = None
        for url in self.settings.urls:
            try:
                return await self._open(url)
            except BrokerUnavailable as error:
                last = error
        raise last or BrokerUnavailable("no broker address is configured")

    async def _open(self, url: str) -> Session:
        early: list[tuple[str, Delivery]] = []

        def deliver(name: str, delivery: Delivery) -> None:
            """To the inbox, once the session can be used: until then nobody could acknowledge."""
            if self._session is session:
                self.inbox.put(name, delivery)
            else:
                early.append((name, delivery))

        session = Session(self.names, self._clock, self.settings.call_timeout_s, deliver)
        try:
            await session.open(
                url,
                name=self.settings.name,
                heartbeat_s=self.settings.heartbeat_s,
                connect_timeout_s=self.settings.connect_timeout_s,
            )
            await session.declare(self._topology)
            wishes = -1
            while wishes != self._wishes:
                wishes = self._wishes
                await self._declare_extra(session, self._extra.values())
                await session.follow(list(self._subscriptions.values()))
                for dropped in session.mailboxes.keys() - self._subscriptions.keys():
                    await session.leave(dropped)
        except BaseException as error:
            async with session:
                session.end(repr(error))
            if isinstance(error, ReachError | asyncio.CancelledError):
                raise
            raise BrokerUnavailable(f"the broker went away while the session began: {error!r}") from error
        self._session = session
        self.sessions += 1
        for name, delivery in early:
            self.inbox.put(name, delivery)
        self._up.set()
        self.on_session()
        self.inbox.arrived.set()
        return session

    async def _declare_extra(self, session: Session, queues: Iterable[topology.Queue]) -> None:
        """Queues that were found at run time: a foreign one among them must not cost the others."""
        for queue in list(queues):
            try:
                await session.declare(Topology((), (queue,), ()))
            except TopologyMismatch as error:
                log.error("%s", error)  # noqa: TRY400 - says all there is; a traceback would hide it


def _the_one(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error itself where there is only one: who uses the bus need not know of its tasks."""
    return errors.exceptions[0] if len(errors.exceptions) == 1 else errors
