"""Taking deliveries, and acknowledging them in as few frames as possible."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from aiormq.abc import AbstractChannel, DeliveredMessage

from reach_worker.bus.codec import delivery_from
from reach_worker.core.message import Delivery


@dataclass(frozen=True, slots=True)
class Receipt:
    """Which channel a delivery came by, and its tag there."""

    channel: "Taken"
    tag: int


@dataclass(slots=True)
class Taken:
    """Deliveries of one channel that are not acknowledged yet, with the consumer that each came by.

    Tags only grow, so the dictionary is in order.
    """

    channel: AbstractChannel
    tags: dict[int, str | None] = field(default_factory=dict)

    def add(self, message: DeliveredMessage, queue: str) -> Delivery:
        """Note a delivery and give it its receipt."""
        tag = message.delivery_tag or 0
        self.tags[tag] = message.consumer_tag
        return delivery_from(message, queue, Receipt(self, tag))

    def held(self, consumer_tag: str) -> int:
        """Deliveries that came by this consumer."""
        return sum(1 for tag in self.tags.values() if tag == consumer_tag)

    async def ack(self, tags: set[int]) -> None:
        """Acknowledge; what is contiguous from the oldest goes in one frame. Of a closed channel: let go."""
        if self.channel.is_closed:
            return
        upto = 0
        for tag in self.tags:
            if tag not in tags:
                break
            upto = tag
        for tag in [tag for tag in tags if tag in self.tags]:
            del self.tags[tag]
            if tag > upto:
                await self.channel.basic_ack(tag, wait=False)
        if upto:
            await self.channel.basic_ack(upto, multiple=True, wait=False)


@dataclass(slots=True)
class Subscription:
    """A wish to consume a queue, over all sessions. ``queue`` ``None``: a private mailbox with these bindings.

    ``at_once``: no slow start. Where a single consumer is active, each consuming anew hands the queue to another.
    """

    name: str
    queue: str | None
    prefetch: int
    bindings: tuple[tuple[str, str], ...] = ()
    mailbox_prefix: str = ""
    wanted: bool = True
    at_once: bool = False


class Consumer:
    """One subscription in one session, on its own channel.

    It starts with a prefetch of one and takes the full number after the first acknowledgement: whatever kills
    a session again and again wears out only the one message it met, never its neighbours.

    A prefetch is changed by consuming anew, and only when an acknowledgement comes while as many are held as
    may be. A consumer that ends at any other moment may have a delivery on its way: a quorum queue takes that
    back and delivers it again, marked as one that was delivered before.
    """

    def __init__(
        self,
        subscription: Subscription,
        queue: str,
        channel: AbstractChannel,
        deliver: Callable[[str, Delivery], None],
        timeout_s: float,
    ) -> None:
        self.subscription = subscription
        self.queue = queue
        self.taken = Taken(channel)
        self._deliver = deliver
        self._timeout_s = timeout_s
        self._tag: str | None = None
        self._prefetch = 0
        self._trusted = subscription.at_once
        self._lock = asyncio.Lock()

    async def follow(self) -> None:
        """Consume or not, as the subscription wants it now. What has been delivered stays ours."""
        async with self._lock:
            if self.subscription.wanted and self._tag is None:
                await self._begin()
            elif not self.subscription.wanted and self._tag is not None:
                await self._end(self._tag)

    async def ack(self, tags: set[int]) -> None:
        """Acknowledge these deliveries."""
        async with self._lock:
            self._trusted = True
            tag = self._tag if self._to_renew() else None
            if tag is not None:
                await self._end(tag)
            await self.taken.ack(tags)
            if tag is not None:
                await self._begin()

    async def trust(self) -> None:
        """What it holds did no harm: it takes the full number now, if this is the moment."""
        async with self._lock:
            self._trusted = True
            if self._tag is not None and self._to_renew():
                await self._end(self._tag)
                await self._begin()

    async def finish(self) -> None:
        """Consume no more. The queue answers that after the acknowledgements it was sent, so they count."""
        async with self._lock:
            if self._tag is not None:
                await self._end(self._tag)

    @property
    def live(self) -> bool:
        """It consumes now."""
        return self._tag is not None and not self.taken.channel.is_closed

    def _to_renew(self) -> bool:
        """Another prefetch is wanted, and this is the moment."""
        if self._tag is None or self._prefetch == self.subscription.prefetch:
            return False
        return not self.taken.channel.is_closed and self.taken.held(self._tag) >= self._prefetch

    async def _begin(self) -> None:
        channel = self.taken.channel
        self._prefetch = self.subscription.prefetch if self._trusted else 1
        await channel.basic_qos(prefetch_count=self._prefetch, timeout=self._timeout_s)
        reply = await channel.basic_consume(self.queue, self._on_message, timeout=self._timeout_s)
        self._tag = reply.consumer_tag

    async def _end(self, tag: str) -> None:
        self._tag = None
        await self.taken.channel.basic_cancel(tag, timeout=self._timeout_s)

    async def _on_message(self, message: DeliveredMessage) -> None:
        self._deliver(self.subscription.name, self.taken.add(message, self.queue))
