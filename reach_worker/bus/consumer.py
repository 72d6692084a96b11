"""Taking deliveries, and acknowledging them in as few frames as possible."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from aiormq.abc import AbstractChannel, DeliveredMessage
from pamqp.commands import Basic

from reach_worker.bus.bypass import Bypass
from reach_worker.bus.codec import delivery_from, delivery_of, read_deliver
from reach_worker.bus.frames import ack_frames
from reach_worker.core.message import Delivery
from reach_worker.core.value import value
from reach_worker.errors import OurBug

QUIET_S: Final = 0.3
"""Nothing came for so long, and nothing waits: the rest went to somebody else."""


@value(frozen=True, slots=True)
class Receipt:
    """Which channel a delivery came by, and its tag there."""

    channel: "Taken"
    tag: int


class Taken:
    """Deliveries of one channel that are not acknowledged yet, with the consumer that each came by.

    Tags only grow, so the dictionary is in order. ``again``: those of them that were delivered before.
    """

    def __init__(self, channel: AbstractChannel, bypass: Bypass) -> None:
        self.channel = channel
        self.tags: dict[int, str | None] = {}
        self.again: set[int] = set()
        self._bypass = bypass
        self._queue = ""
        self._deliver: Callable[[Delivery], None] | None = None
        bypass.watch(channel.number, {}, {Basic.Deliver.index.to_bytes(4): self._arrived})

    def deliver(self, queue: str, deliver: Callable[[Delivery], None] | None) -> None:
        """Whom to give what consumers of this queue are given; what nobody wants stays with the channel until it ends."""
        self._queue, self._deliver = queue, deliver

    def got(self, message: DeliveredMessage, queue: str) -> Delivery:
        """Note a message that was asked for, and give it its receipt."""
        tag = message.delivery_tag or 0
        return self._noted(tag, None, delivery_from(message, queue, Receipt(self, tag)))

    def _arrived(self, method: bytes, header: bytes, body: bytes) -> None:
        if self._deliver is None:
            return
        arrival = read_deliver(method)
        delivery = delivery_of(self._queue, arrival, header, body, Receipt(self, arrival.tag))
        self._deliver(self._noted(arrival.tag, arrival.consumer, delivery))

    def _noted(self, tag: int, consumer: str | None, delivery: Delivery) -> Delivery:
        self.tags[tag] = consumer
        if delivery.redelivered:
            self.again.add(tag)
        return delivery

    def held(self, consumer_tag: str) -> int:
        """Deliveries that came by this consumer."""
        return sum(1 for tag in self.tags.values() if tag == consumer_tag)

    def fresh(self, tags: set[int]) -> bool:
        """One of these at least is held, and was never delivered before."""
        return any(tag in self.tags and tag not in self.again for tag in tags)

    async def ack(self, tags: set[int]) -> None:
        """Acknowledge; what is contiguous from the oldest goes in one frame. Of a closed channel: let go."""
        if self.channel.is_closed:
            return
        upto = 0
        for tag in self.tags:
            if tag not in tags:
                break
            upto = tag
        ours = [tag for tag in tags if tag in self.tags]
        for tag in ours:
            del self.tags[tag]
        self.again -= tags
        acks = [(tag, False) for tag in ours if tag > upto]
        if upto:
            acks.append((upto, True))
        if acks:
            self._bypass.write(ack_frames(self.channel.number, acks))
            await self._bypass.drain()


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

    It starts with a prefetch of one and takes the full number after the first acknowledgement of a message that
    was never delivered before. What was is taken one at a time: it may be what killed us, or have waited beside that.
    So whatever kills a session again and again wears out only the one message it met, never its neighbours.

    A prefetch is fixed when consuming begins, so another one is made of several consumers on the channel: more
    by one more of them, less by ending the last ones. A consumer that ends may have a delivery on its way, and
    a quorum queue takes that back and delivers it again, marked as one that was delivered before. So they end
    when an acknowledgement comes while they hold all they may: then nothing is on its way.
    """

    def __init__(
        self,
        subscription: Subscription,
        queue: str,
        taken: Taken,
        deliver: Callable[[str, Delivery], None],
        timeout_s: float,
    ) -> None:
        self.subscription = subscription
        self.queue = queue
        self.taken = taken
        taken.deliver(queue, lambda delivery: deliver(subscription.name, delivery))
        self._timeout_s = timeout_s
        self._prefetch: dict[str, int] = {}  # by consumer tag, the latest last
        self._trusted = subscription.at_once
        self._lock = asyncio.Lock()

    async def follow(self) -> None:
        """Consume or not, as the subscription wants it now. What has been delivered stays ours."""
        async with self._lock:
            if not self.subscription.wanted:
                await self._end_all()
            elif not self._prefetch:
                await self._raise()

    async def ack(self, tags: set[int]) -> None:
        """Acknowledge these deliveries."""
        async with self._lock:
            self._trusted = self._trusted or self.taken.fresh(tags)
            await self._lower()
            await self.taken.ack(tags)
            await self._raise()

    async def trust(self) -> None:
        """What it holds did no harm: it takes the full number now."""
        async with self._lock:
            self._trusted = True
            await self._raise()

    async def finish(self) -> None:
        """Consume no more. The queue answers that after the acknowledgements it was sent, so they count."""
        async with self._lock:
            await self._end_all()

    @property
    def live(self) -> bool:
        """It consumes now."""
        return bool(self._prefetch) and not self.taken.channel.is_closed

    def _missing(self) -> int:
        """How many more it may hold than it can; negative where it is less."""
        return (self.subscription.prefetch if self._trusted else 1) - sum(self._prefetch.values())

    async def _raise(self) -> None:
        """One more consumer for what is missing."""
        missing, channel = self._missing(), self.taken.channel
        if missing <= 0 or not self.subscription.wanted or channel.is_closed:
            return
        await channel.basic_qos(prefetch_count=missing, timeout=self._timeout_s)
        reply = await channel.basic_consume(self.queue, passed_by, timeout=self._timeout_s)
        if reply.consumer_tag is not None:
            self._prefetch[reply.consumer_tag] = missing

    async def _lower(self) -> None:
        """End the latest consumers while there is too much of them, and they are full."""
        while self._missing() < 0 and not self.taken.channel.is_closed:
            tag, prefetch = next(reversed(self._prefetch.items()))
            if self.taken.held(tag) < prefetch:
                return
            await self._end(tag)

    async def _end_all(self) -> None:
        for tag in list(self._prefetch):
            await self._end(tag)

    async def _end(self, tag: str) -> None:
        del self._prefetch[tag]
        await self.taken.channel.basic_cancel(tag, timeout=self._timeout_s)


async def passed_by(message: DeliveredMessage) -> None:
    """What aiormq would call with a delivery, had it not been taken from under it."""
    raise OurBug(f"aiormq was given a delivery by {message.consumer_tag}")


async def take_many(
    taken: Taken,
    queue: str,
    count: int,
    depth: Callable[[], Awaitable[tuple[int, int] | None]],
    timeout_s: float,
) -> list[Delivery]:
    """Take so many messages by a consumer, which ends when it has them: one call instead of one for each.

    Fewer where somebody else takes some of them. One that is on its way when the consumer ends goes back.
    """
    found: list[Delivery] = []
    came = asyncio.Event()

    def take(delivery: Delivery) -> None:
        found.append(delivery)
        came.set()

    taken.deliver(queue, take)
    await taken.channel.basic_qos(prefetch_count=count, timeout=timeout_s)
    consumer = await taken.channel.basic_consume(queue, passed_by, timeout=timeout_s)
    while len(found) < count and await _more(came, depth, timeout_s):
        came.clear()
    if consumer.consumer_tag is not None:
        await taken.channel.basic_cancel(consumer.consumer_tag, timeout=timeout_s)
    taken.deliver("", None)
    return found


async def _more(
    came: asyncio.Event, depth: Callable[[], Awaitable[tuple[int, int] | None]], timeout_s: float
) -> bool:
    """Wait until more has come; ``False`` if nothing is left to come, or nothing comes although it waits."""
    for _ in range(max(1, int(timeout_s / QUIET_S))):
        try:
            async with asyncio.timeout(QUIET_S):
                await came.wait()
        except TimeoutError:
            if not (await depth() or (0, 0))[0]:
                break
        else:
            return True
    return came.is_set()
