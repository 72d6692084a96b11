"""Taking deliveries, and acknowledging them in as few frames as possible."""

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
    """Deliveries of one channel that are not acknowledged yet. Tags only grow, so the dictionary is in order."""

    channel: AbstractChannel
    tags: dict[int, None] = field(default_factory=dict)

    def add(self, message: DeliveredMessage, queue: str) -> Delivery:
        """Note a delivery and give it its receipt."""
        tag = message.delivery_tag or 0
        self.tags[tag] = None
        return delivery_from(message, queue, Receipt(self, tag))

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
    """A wish to consume a queue, over all sessions. ``queue`` ``None``: a private mailbox with these bindings."""

    name: str
    queue: str | None
    prefetch: int
    bindings: tuple[tuple[str, str], ...] = ()
    mailbox_prefix: str = ""
    wanted: bool = True


class Consumer:
    """One subscription in one session, on its own channel.

    It starts with a prefetch of one and takes the full number after the first acknowledgement: whatever kills
    a session again and again wears out only the one message it met, never its neighbours.
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
        self._trusted = False

    async def start(self) -> None:
        """Begin to consume, if wanted."""
        if self.subscription.wanted and self._tag is None:
            prefetch = self.subscription.prefetch if self._trusted else 1
            await self.taken.channel.basic_qos(prefetch_count=prefetch, timeout=self._timeout_s)
            reply = await self.taken.channel.basic_consume(
                self.queue, self._on_message, timeout=self._timeout_s
            )
            self._tag = reply.consumer_tag

    async def stop(self) -> None:
        """Take no more. What has been delivered stays ours until it is acknowledged."""
        if self._tag is not None:
            tag, self._tag = self._tag, None
            await self.taken.channel.basic_cancel(tag, timeout=self._timeout_s)

    async def ack(self, tags: set[int]) -> None:
        """Acknowledge these deliveries."""
        await self.taken.ack(tags)
        if not self._trusted and not self.taken.channel.is_closed:
            self._trusted = True
            if self.subscription.prefetch > 1:
                await self.stop()
                await self.start()

    @property
    def live(self) -> bool:
        """It consumes now."""
        return self._tag is not None and not self.taken.channel.is_closed

    async def _on_message(self, message: DeliveredMessage) -> None:
        self._deliver(self.subscription.name, self.taken.add(message, self.queue))
