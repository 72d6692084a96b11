"""Replies of a foreign worker, each to whoever waits for it, by its correlation id."""

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Final

from reach_worker.agent.outcomes import Unavailable
from reach_worker.core.message import Delivery
from reach_worker.ports import ConsumingBus

log = logging.getLogger(__name__)

REPLIES: Final = "replies"
"""The subscription by which replies come: the bus's mailbox."""


@dataclass(slots=True)
class Asked:
    """A message that waits for its reply. ``mailbox``: where that goes."""

    mailbox: str
    reply: asyncio.Future[bytes]


@dataclass(slots=True)
class ReplyLine:
    """The connection, and what waits for a reply on it."""

    bus: ConsumingBus
    asked: dict[str, Asked] = field(default_factory=dict)
    closed: bool = False

    def close(self) -> None:
        """Collect no more. No cancelling: that can be lost in a call to the broker."""
        self.closed = True
        self.bus.inbox.arrived.set()

    async def collect(self) -> None:
        """Hand replies to who waits for them, until it is closed."""
        while not self.closed:
            await self.bus.inbox.arrived.wait()
            self.bus.inbox.arrived.clear()
            replies = self.bus.inbox.take(REPLIES)
            for reply in replies:
                self._hand_over(reply)
            self._give_up_lost()
            await self.bus.ack(replies)

    def _hand_over(self, reply: Delivery) -> None:
        asked = self.asked.get(reply.correlation_id or "")
        if asked is None:
            log.info("a reply came that nobody waits for, correlation id %r", reply.correlation_id)
        elif not asked.reply.done():
            asked.reply.set_result(reply.body)

    def _give_up_lost(self) -> None:
        """What was to be answered to a mailbox of an earlier session cannot be any more."""
        now = self.bus.mailbox
        for asked in self.asked.values():
            if now and asked.mailbox != now and not asked.reply.done():
                asked.reply.set_exception(connection_broke())


def connection_broke() -> Unavailable:
    """What an attempt ends with whose reply cannot come any more."""
    return Unavailable("the connection to the broker broke before the reply came")
