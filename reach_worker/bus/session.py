"""One life of the connections to the broker: opened whole, ended whole."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from aiormq import exceptions as amqp
from aiormq.abc import AbstractChannel, AbstractConnection
from yarl import URL

from reach_worker.bus import topology
from reach_worker.bus.calls import broker_call
from reach_worker.bus.consumer import Consumer, Receipt, Subscription, Taken, take_many
from reach_worker.bus.direct_replies import DirectReplies
from reach_worker.bus.link import Link, connect
from reach_worker.bus.publisher import Publisher
from reach_worker.bus.topology import Topology
from reach_worker.core.message import Delivery, Message
from reach_worker.core.names import Names
from reach_worker.core.reply_address import is_direct
from reach_worker.errors import BrokerUnavailable
from reach_worker.ports import Clock, Sent

log = logging.getLogger(__name__)

CLOSE_S: Final = 3.0
"""Longest wait for the broker's answer when a session ends: one that is stuck must not hold up the next."""


class Session:
    """Two connections (a memory alarm blocks a publishing one, its acks too), and one channel for each thing."""

    def __init__(
        self, names: Names, clock: Clock, timeout_s: float, deliver: Callable[[str, Delivery], None]
    ) -> None:
        self._names = names
        self._clock = clock
        self._timeout_s = timeout_s
        self._deliver = deliver
        self._links: list[Link] = []
        self._consumers: dict[str, Consumer] = {}
        self._getting: Taken | None = None
        self._channels: set[Taken] = set()
        self._acked_of_got: set[str] = set()
        self._publisher: Publisher | None = None
        self._direct: DirectReplies | None = None
        self._ended = asyncio.Event()
        self.cause: str = ""
        self.mailboxes: dict[str, str] = {}
        self._leaving: set[AbstractChannel] = set()
        self.server_version: str = ""

    async def open(self, url: str, *, name: str, heartbeat_s: int, connect_timeout_s: float) -> Self:
        """Connect twice, and open the publishing and the getting channel.

        Raises :class:`WrongCredentials` or :class:`BrokerUnavailable`.
        """
        address = URL(url).update_query(heartbeat=str(heartbeat_s), name=name)
        for _ in range(2):
            link = await connect(address, connect_timeout_s)
            self._links.append(link)
            link.connection.closing.add_done_callback(self._note_end)
        self.server_version = _version(self._connection)
        link = self._links[1]
        publishing = await link.connection.channel(timeout=self._timeout_s)
        publishing.closing.add_done_callback(self._note_end)
        self._publisher = Publisher(link, publishing, self._clock, self._timeout_s)
        self._direct = DirectReplies(
            lambda: connect(address, connect_timeout_s), self._clock, self._timeout_s
        )
        self._getting = await self._taken()
        return self

    async def declare(self, wanted: Topology) -> None:
        """Declare a topology. Raises :class:`TopologyMismatch`."""
        await topology.declare(self._connection, wanted, self._timeout_s)

    async def follow(self, subscriptions: Iterable[Subscription]) -> None:
        """Consume what these subscriptions want now, and nothing else of them."""
        for subscription in subscriptions:
            if subscription.name not in self._consumers:
                taken = await self._taken()
                queue = subscription.queue or await self._mailbox(taken.channel, subscription)
                consumer = Consumer(subscription, queue, taken, self._deliver, self._timeout_s)
                self._consumers[subscription.name] = consumer
            await self._consumers[subscription.name].follow()

    async def leave(self, name: str) -> None:
        """Consume a private mailbox no more, and delete it. Its channel closes; that is no end of the session."""
        consumer = self._consumers.pop(name, None)
        queue = self.mailboxes.pop(name, None)
        if consumer is None or queue is None:
            return
        channel = consumer.taken.channel
        await consumer.finish()
        self._leaving.add(channel)
        await channel.queue_delete(queue, timeout=self._timeout_s)
        self._channels.discard(consumer.taken)
        self._links[0].bypass.leave(channel.number)  # before its number is free for another
        await channel.close()

    async def trust(self, name: str) -> None:
        """What came by a subscription did no harm."""
        consumer = self._consumers.get(name)
        if consumer is not None:
            await consumer.trust()

    async def publish(self, messages: Sequence[Message]) -> list[Sent]:
        """Send with confirms. One that the broker did not answer in time ends the session: the connection is stuck."""
        if self._publisher is None or self._ended.is_set():
            return [Sent.REFUSED] * len(messages)
        plain = [message for message in messages if not _to_direct(message)]
        results = await self._publisher.publish(plain) if plain else []
        if len(plain) < len(messages) and self._direct is not None:
            direct = iter(await self._direct.publish([each for each in messages if _to_direct(each)]))
            others = iter(results)
            results = [next(direct if _to_direct(message) else others) for message in messages]
        if Sent.UNCERTAIN in results:
            self.end("the broker did not confirm a message in time")
        elif Sent.REFUSED in results and self._publisher.ended:
            self.end("the publishing connection is gone")  # so that nobody takes it for the broker's word
        return results

    async def ack(self, deliveries: Iterable[Delivery]) -> None:
        """Acknowledge. Deliveries of an earlier session are let go."""
        by_channel: dict[int, tuple[Taken, set[int]]] = {}
        for delivery in deliveries:
            receipt = delivery.receipt
            if isinstance(receipt, Receipt) and receipt.channel in self._channels:
                by_channel.setdefault(id(receipt.channel), (receipt.channel, set()))[1].add(receipt.tag)
                if receipt.channel is self._getting:
                    self._acked_of_got.add(delivery.queue)
        for taken, tags in by_channel.values():
            try:
                with broker_call("acknowledging"):
                    async with asyncio.timeout(self._timeout_s):
                        await self._acknowledger(taken).ack(tags)
            except BrokerUnavailable as error:
                self.end(str(error))

    async def get(self, queue: str, limit: int) -> tuple[list[Delivery], int]:
        """Take up to ``limit`` messages; also how many are left."""
        found: list[Delivery] = []
        left = 0
        taken = self._getting
        self._acked_of_got.discard(queue)
        while taken is not None and len(found) < limit and not self._ended.is_set():
            try:
                with broker_call(f"getting from {queue}"):
                    message = await taken.channel.basic_get(queue, timeout=self._timeout_s)
            except BrokerUnavailable as error:
                self.end(str(error))
                break
            if message.delivery_tag is None:
                return found, 0
            left = getattr(message.delivery, "message_count", 0) or 0
            found.append(taken.got(message, queue))
        return found, left

    async def get_many(self, queue: str, count: int) -> list[Delivery]:
        """Take so many messages at once; fewer where somebody else takes some of them."""
        taken = self._getting
        if taken is None or self._ended.is_set():
            return []
        try:
            with broker_call(f"getting from {queue}"):
                return await take_many(taken, queue, count, lambda: self.depth(queue), self._timeout_s)
        except BrokerUnavailable as error:
            self.end(str(error))
            return []

    async def depth(self, queue: str) -> tuple[int, int] | None:
        """Messages ready and consumers of a queue, ``None`` if there is no such queue."""
        channel = await self._connection.channel(publisher_confirms=False, timeout=self._timeout_s)
        try:
            found = await channel.queue_declare(queue, passive=True, timeout=self._timeout_s)
        except amqp.ChannelNotFoundEntity:
            return None
        else:
            return found.message_count or 0, found.consumer_count or 0
        finally:
            if not channel.is_closed:
                await channel.close()

    def owns(self, delivery: Delivery) -> bool:
        """The delivery came by this session, and it is alive."""
        receipt = delivery.receipt
        return isinstance(receipt, Receipt) and receipt.channel in self._channels and not self._ended.is_set()

    def consumes(self, name: str) -> bool:
        """Alive, and this subscription consumes."""
        return not self._ended.is_set() and name in self._consumers and self._consumers[name].live

    @property
    def consuming(self) -> bool:
        """Alive, and every consumer that is wanted consumes."""
        wanted = [consumer for consumer in self._consumers.values() if consumer.subscription.wanted]
        return not self._ended.is_set() and all(consumer.live for consumer in wanted)

    @property
    def ended(self) -> bool:
        """It is over."""
        return self._ended.is_set()

    async def wait_end(self, look_every_s: float) -> None:
        """Wait until anything of it closes, or the consuming connection leaves a question unanswered.

        Publishing notices silence by itself. Of a consumer that hears nothing aiormq thinks for three heartbeats.
        """
        while not self._ended.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(look_every_s):
                    await self._ended.wait()
            if not self._ended.is_set():
                await self._look()

    async def _look(self) -> None:
        getting = self._getting
        if getting is None:
            return
        try:
            with broker_call("asking for a sign of life"):
                await getting.channel.basic_qos(prefetch_count=0, timeout=self._timeout_s)
        except BrokerUnavailable as error:
            self.end(str(error))

    def end(self, cause: str) -> None:
        """Give it up."""
        if not self._ended.is_set():
            self.cause = cause
            self._ended.set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end("closed by us")
        await self._within_limit(self._flush)
        if self._direct is not None:
            await self._within_limit(self._direct.close)
        await self._within_limit(lambda: _all(link.connection.close() for link in self._links))

    async def _flush(self) -> None:
        """Leave no acknowledgement behind.

        A closed connection drops what it has not sent yet, and a quorum queue what it has stowed away of many
        small acknowledgements. A channel closes after what was sent; a queue answers a call after all of it.
        """
        await _all(consumer.finish() for consumer in self._consumers.values())
        getting = self._getting.channel if self._getting is not None else None
        if getting is not None:
            await _all(getting.basic_get(queue, timeout=self._timeout_s) for queue in self._acked_of_got)
            await _all([getting.close()])
        await _all(consumer.taken.channel.close() for consumer in self._consumers.values())

    async def _within_limit(self, action: Callable[[], Awaitable[None]]) -> None:
        try:
            async with asyncio.timeout(min(CLOSE_S, self._timeout_s)):
                await action()
        except TimeoutError:
            log.debug("the broker did not answer while a session was closed")

    @property
    def _connection(self) -> AbstractConnection:
        """The one that consumes."""
        return self._links[0].connection

    async def _taken(self) -> Taken:
        """A channel to take deliveries by."""
        channel = await self._connection.channel(publisher_confirms=False, timeout=self._timeout_s)
        channel.closing.add_done_callback(lambda closing: self._note_channel(channel, closing))
        channel.on_consumer_cancel_callbacks.add(lambda _frame: self.end(self._cancelled(channel)))
        taken = Taken(channel, self._links[0].bypass)
        self._channels.add(taken)
        return taken

    def _cancelled(self, channel: AbstractChannel) -> str:
        """The broker ended a consumer: its queue was deleted, or lost its leader."""
        queues = (each.queue for each in self._consumers.values() if each.taken.channel is channel)
        return f"the broker cancelled the consumer of {next(queues, 'a queue')}"

    async def _mailbox(self, channel: AbstractChannel, subscription: Subscription) -> str:
        name = f"{subscription.mailbox_prefix}.{subscription.name}.{self._clock.new_id()}"
        await topology.declare_queue(channel, topology.private(name), self._timeout_s)
        for exchange, routing_key in subscription.bindings:
            await channel.queue_bind(name, exchange, routing_key=routing_key, timeout=self._timeout_s)
        self.mailboxes[subscription.name] = name
        return name

    def _acknowledger(self, taken: Taken) -> Taken | Consumer:
        for consumer in self._consumers.values():
            if consumer.taken is taken:
                return consumer
        return taken

    def _note_channel(self, channel: AbstractChannel, closing: asyncio.Future[object]) -> None:
        if channel in self._leaving:
            self._leaving.discard(channel)
        else:
            self._note_end(closing)

    def _note_end(self, closing: asyncio.Future[object]) -> None:
        error = None if closing.cancelled() else closing.exception()
        self.end(repr(error) if error else "closed")


def _to_direct(message: Message) -> bool:
    return not message.exchange and is_direct(message.routing_key)


async def _all(calls: Iterable[Awaitable[object]]) -> None:
    """Side by side; what fails has ended by itself."""
    await asyncio.gather(*calls, return_exceptions=True)


def _version(connection: AbstractConnection) -> str:
    version = connection.server_properties.get("version") if connection.server_properties else None
    return version if isinstance(version, str) else ""
