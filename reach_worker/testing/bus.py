"""A connection to the broker in memory, with every fault that a real one has at the push of a button."""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Self

from reach_worker.core.message import Delivery, Message
from reach_worker.errors import BrokerUnavailable
from reach_worker.ports import Sent
from reach_worker.testing.broker import MemoryBroker
from reach_worker.testing.faults import CALL_TIMEOUT_S, ClientFaults, Fate, Moment
from reach_worker.testing.queue import Consumer, Stored
from reach_worker.testing.session import Consuming, MemoryInbox, Receipt, Session, Subscription
from reach_worker.testing.wire import sendable


class MemoryBus:
    """One client of a :class:`MemoryBroker`; the ``ConsumingBus`` port.

    ``slow_start``: as on RabbitMQ, each subscription of a new session takes one message until one that was never
    delivered before is acknowledged, or it is called harmless by :meth:`trust`. ``journal`` tells in order what the bus
    did: ``("publish", routing key)``, ``("consume", subscription)``, ``("stop", subscription)``, ``("ack", queue)``.
    ``name``: who it is, for faults that shall meet only some.
    """

    def __init__(self, broker: MemoryBroker, *, slow_start: bool = True, name: str = "") -> None:
        self.name = name
        self.names = broker.names
        self.inbox = MemoryInbox()
        self.sessions = 0
        self.on_session: Callable[[], None] = lambda: None
        self.journal: list[tuple[str, str]] = []
        self._broker = broker
        self._slow_start = slow_start
        self._subscriptions: dict[str, Subscription] = {}
        self._session: Session | None = None
        self._faults = ClientFaults()

    # -- what is consumed

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
        """A private mailbox, new in every session, bound to (exchange, routing key) pairs."""
        self._subscriptions[name] = Subscription(
            name, None, 1000, tuple(bindings), prefix or self.names.prefix
        )

    # -- life

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """Connected within the block."""
        self.connect()
        try:
            yield self
        finally:
            self.disconnect()

    def connect(self) -> None:
        """Begin a session."""
        self.disconnect()
        session = self._session = Session()
        self._broker.clients.append(self)
        self.sessions += 1
        for subscription in list(self._subscriptions.values()):
            self._begin(session, subscription)
        self.on_session()
        self.inbox.arrived.set()

    def disconnect(self) -> None:
        """End the session: what was not acknowledged goes back into its queue, private mailboxes are gone."""
        session, self._session = self._session, None
        if session is None:
            return
        self._broker.clients.remove(self)
        self.inbox.waiting.clear()
        for consuming in session.consuming.values():
            if consuming.consumer is not None:
                self._broker.cancel(consuming.queue, consuming.consumer)
        for name in session.private:
            self._broker.delete_queue(name)
        for receipt in session.unacked.values():
            self._broker.put_back(receipt.queue, receipt.stored)
        for name in {receipt.queue: None for receipt in session.unacked.values()}:
            if name in self._broker.queues:
                self._broker.pump(self._broker.queues[name])

    def end_session(self) -> None:
        """End the session and begin a new one, as after a network cut. Receipts of the old one are worth nothing."""
        self.connect()

    # -- faults

    def fail_next(self, *fates: Fate, to: str = "") -> None:
        """Decide what becomes of the next messages published, one fate each.

        ``to``: only messages whose routing key contains this. After an uncertain result the session ends, as on
        RabbitMQ, where it means that the connection is stuck.
        """
        self._faults.fates += [(to, fate) for fate in fates]

    def once(self, moment: Moment, action: Callable[[], None]) -> None:
        """Do something at the next such moment, once: ``bus.once(Moment.BEFORE_ACK, bus.end_session)`` loses an ack."""
        self._faults.actions.append((moment, action))

    # -- the port

    async def publish(self, messages: Sequence[Message]) -> list[Sent]:
        """Send all; ``REFUSED`` while there is no session."""
        session = self._session
        if messages:
            self._faults.reach(Moment.BEFORE_PUBLISH)
        if session is None or session is not self._session:
            return [Sent.REFUSED] * len(messages)
        results = [self._publish(message) for message in messages]
        if messages:
            self._faults.reach(Moment.AFTER_PUBLISH)
        if (slow_s := self._broker.faults.confirm_after(messages)) > 0:
            await self._broker.clock.sleep(min(slow_s, CALL_TIMEOUT_S))
            if slow_s >= CALL_TIMEOUT_S or session is not self._session:
                results = [Sent.UNCERTAIN] * len(messages)
        if Sent.UNCERTAIN in results and session is self._session:
            self.end_session()
        return results

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledge; those of an earlier session are let go."""
        if deliveries:
            self._faults.reach(Moment.BEFORE_ACK)
            self._broker.faults.acknowledging(self, deliveries)
        for delivery in deliveries:
            if self.current(delivery) and isinstance(delivery.receipt, Receipt):
                self._ack(delivery.receipt)

    async def get(self, queue: str, limit: int) -> tuple[list[Delivery], int]:
        """Take up to ``limit`` messages; also how many are left. A queue that does not exist ends the session."""
        session = self._session
        if session is None:
            return [], 0
        found = self._broker.queues.get(queue)
        if found is None:
            self.end_session()
            return [], 0
        self._broker.pump(found)
        taken: list[Delivery] = []
        while len(taken) < limit and (stored := found.take()) is not None:
            taken.append(self._hand_out(Receipt(session, queue, stored, None, None)))
            self._broker.pump(found)
        return taken, len(found.ready)

    async def get_many(self, queue: str, count: int) -> list[Delivery]:
        """As :meth:`get`: here both are equally fast."""
        return (await self.get(queue, count))[0]

    async def depth(self, queue: str) -> tuple[int, int] | None:
        """Messages and consumers of a queue, ``None`` if it does not exist. Raises :class:`BrokerUnavailable`."""
        if self._session is None:
            raise BrokerUnavailable("no broker connection now")
        found = self._broker.queues.get(queue)
        return None if found is None else (len(found.ready), len(found.consumers))

    async def declare_queue(self, name: str) -> None:
        """Make sure that a lane, an agent's or a router's queue exists."""
        self._broker.declare(name)

    async def want(self, name: str, *, wanted: bool) -> None:
        """Stop or resume one subscription."""
        subscription = self._subscriptions[name]
        if subscription.wanted != wanted:
            subscription.wanted = wanted
            if self._session is not None:
                consuming = self._session.consuming[name]
                self._start(self._session, consuming) if wanted else self._stop(consuming)

    async def set_prefetch(self, name: str, prefetch: int) -> None:
        """Take another number of deliveries at once from one subscription, from its next acknowledgement on."""
        self._subscriptions[name].prefetch = prefetch

    async def trust(self, name: str) -> None:
        """What came by a subscription did no harm: it takes the full number now."""
        consuming = self._session.consuming.get(name) if self._session is not None else None
        if self._session is not None and consuming is not None:
            consuming.trusted = True
            consuming.adjust()
            self._broker.pump(self._broker.queues[consuming.queue])

    async def add_subscription(self, name: str, queue: str, prefetch: int) -> None:
        """Consume one more queue, in this session and the next ones."""
        if name not in self._subscriptions:
            self.subscribe(name, queue, prefetch, at_once=True)
            if self._session is not None:
                self._begin(self._session, self._subscriptions[name])

    async def add_mailbox(self, name: str, prefetch: int, prefix: str) -> None:
        """One more private mailbox, in this session and the next ones."""
        subscription = Subscription(name, None, prefetch, (), prefix, at_once=True)
        self._subscriptions[name] = subscription
        if self._session is not None:
            self._begin(self._session, subscription)

    async def drop_mailbox(self, name: str) -> None:
        """Forget a mailbox: its consumer, its queue, and what of it was not taken yet."""
        if self._subscriptions.pop(name, None) is None:
            return
        self.inbox.waiting.pop(name, None)
        if self._session is not None:
            self._stop(self._session.consuming.pop(name))
            queue = self._session.mailboxes.pop(name)
            self._session.private.remove(queue)
            self._broker.delete_queue(queue)

    def mailbox_of(self, name: str) -> str:
        """Name of the private mailbox of a subscription in this session; empty where there is none."""
        return self._session.mailboxes.get(name, "") if self._session else ""

    def consumes(self, name: str) -> bool:
        """Whether a subscription consumes now."""
        consuming = self._session.consuming.get(name) if self._session is not None else None
        return consuming is not None and consuming.consumer is not None

    def consumes_from(self, queue: str) -> bool:
        """It has a consumer at the queue now."""
        taken = self._session.consuming.values() if self._session is not None else ()
        return any(one.queue == queue and one.consumer is not None for one in taken)

    def current(self, delivery: Delivery) -> bool:
        """The delivery belongs to the session that is alive now."""
        return isinstance(delivery.receipt, Receipt) and delivery.receipt.session is self._session

    @property
    def in_session(self) -> bool:
        """A session is alive now."""
        return self._session is not None

    @property
    def mailbox(self) -> str:
        """Name of this session's private mailbox: the first one, where it has several."""
        return next(iter(self._session.mailboxes.values()), "") if self._session else ""

    @property
    def unacked(self) -> int:
        """Deliveries of this session that are not acknowledged."""
        return len(self._session.unacked) if self._session else 0

    @property
    def ready(self) -> bool:
        """Connected, and every consumer that should consume does."""
        return self._session is not None and all(
            consuming.consumer is not None
            for consuming in self._session.consuming.values()
            if consuming.subscription.wanted
        )

    # -- inside

    def _publish(self, message: Message) -> Sent:
        self.journal.append(("publish", message.routing_key))
        fate = self._faults.fate_of(message)
        if fate is Fate.CONFIRMED:
            fate = self._broker.faults.fate_of(message)
        if not sendable(message.headers):
            return Sent.REFUSED
        if fate in (Fate.REFUSED, Fate.UNROUTABLE):
            return Sent(fate.value)
        if fate is Fate.LOST:
            return Sent.UNCERTAIN
        routed = self._broker.publish(message)
        if routed is None or fate is Fate.STORED:
            return Sent.UNCERTAIN
        return Sent.CONFIRMED if routed or not message.mandatory else Sent.UNROUTABLE

    def _begin(self, session: Session, subscription: Subscription) -> None:
        queue = subscription.queue
        if queue is None:
            queue = f"{subscription.mailbox_prefix}.{subscription.name}.{self._broker.clock.new_id()}"
            self._broker.declare_private(queue)
            for exchange, routing_key in subscription.bindings:
                self._broker.bind(exchange, routing_key, queue)
            session.private.append(queue)
            session.mailboxes[subscription.name] = queue
        elif queue not in self._broker.queues:
            self._broker.declare(queue)
        consuming = Consuming(subscription, queue, trusted=subscription.at_once or not self._slow_start)
        session.consuming[subscription.name] = consuming
        if subscription.wanted:
            self._start(session, consuming)

    def _start(self, session: Session, consuming: Consuming) -> None:
        if consuming.consumer is not None:
            return
        name = consuming.subscription.name

        def deliver(stored: Stored) -> None:
            self.inbox.put(
                name, self._hand_out(Receipt(session, consuming.queue, stored, consuming, consumer))
            )

        consumer = Consumer(consuming.subscription.prefetch if consuming.trusted else 1, deliver)
        consuming.consumer = consumer
        self.journal.append(("consume", name))
        self._broker.consume(consuming.queue, consumer)

    def _stop(self, consuming: Consuming) -> None:
        consumer, consuming.consumer = consuming.consumer, None
        if consumer is not None:
            self.journal.append(("stop", consuming.subscription.name))
            self._broker.cancel(consuming.queue, consumer)

    def _hand_out(self, receipt: Receipt) -> Delivery:
        receipt.session.unacked[id(receipt)] = receipt
        return receipt.stored.as_delivery(receipt)

    def _ack(self, receipt: Receipt) -> None:
        if receipt.session.unacked.pop(id(receipt), None) is None:
            return
        self.journal.append(("ack", receipt.queue))
        if receipt.consumer is not None:
            receipt.consumer.unacked -= 1
        if receipt.consuming is not None:
            receipt.consuming.trusted |= not receipt.stored.returned
            receipt.consuming.adjust()
        if receipt.queue in self._broker.queues:
            self._broker.pump(self._broker.queues[receipt.queue])
