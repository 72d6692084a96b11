"""Answers to callers who wait on "direct reply-to": on a connection of their own.

Such an address holds a process of the broker's, and RabbitMQ believes what it holds: over one that is made up, or
of a node that is gone, it ends the whole connection with an internal error. So they share no connection with anything
else, and one that ended it is not sent again.
"""

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from reach_worker.bus.calls import broker_call
from reach_worker.bus.link import Link
from reach_worker.bus.publisher import Publisher
from reach_worker.core.message import Message
from reach_worker.errors import BrokerUnavailable
from reach_worker.ports import Clock, Sent

log = logging.getLogger(__name__)

MOST_OPENINGS: Final = 10
WITHIN_S: Final = 10.0
"""After so many connections in this time none is opened for a while: made-up addresses must not slow the rest down."""


class DirectReplies:
    """Opens its connection when it is first needed, and again after an address has ended it."""

    def __init__(self, connect: Callable[[], Awaitable[Link]], clock: Clock, timeout_s: float) -> None:
        self._connect = connect
        self._clock = clock
        self._timeout_s = timeout_s
        self._link: Link | None = None
        self._publisher: Publisher | None = None
        self._opened: deque[float] = deque(maxlen=MOST_OPENINGS)
        self._silent = False

    async def publish(self, messages: Sequence[Message]) -> list[Sent]:
        """Send all; what did not arrive is sent once more, each for itself. Whoever ends a connection is unreachable.

        A caller who has gone is not told: the broker does not.
        """
        results = await self._together(messages)
        for at, result in enumerate(results):
            if result in {Sent.UNCERTAIN, Sent.REFUSED}:
                (results[at],) = await self._together(messages[at : at + 1])
                if results[at] is Sent.UNCERTAIN:
                    log.warning(
                        "the broker ended a connection over an answer to %.80r", messages[at].routing_key
                    )
                    results[at] = Sent.UNROUTABLE
        return results

    async def close(self) -> None:
        """Leave nothing open."""
        link, self._link, self._publisher = self._link, None, None
        if link is not None and not link.connection.is_closed:
            with suppress(BrokerUnavailable), broker_call("closing"):
                await link.connection.close()

    async def _together(self, messages: Sequence[Message]) -> list[Sent]:
        try:
            publisher = await self._open()
        except BrokerUnavailable as error:
            if not self._silent:
                log.warning("answers to direct reply-to addresses are not sent: %s", error)
            self._silent = True
            return [Sent.UNROUTABLE] * len(messages)
        results = await publisher.publish([replace(message, mandatory=False) for message in messages])
        if Sent.UNCERTAIN in results or publisher.ended:
            await self.close()
        return results

    async def _open(self) -> Publisher:
        if self._publisher is not None and self._link is not None and not self._link.connection.is_closed:
            return self._publisher
        now = self._clock.monotonic()
        if len(self._opened) == MOST_OPENINGS and now - self._opened[0] < WITHIN_S:
            raise BrokerUnavailable(f"{MOST_OPENINGS} connections ended over them within {WITHIN_S:g} s")
        self._opened.append(now)
        with broker_call("opening a connection"):
            link = self._link = await self._connect()
            channel = await link.connection.channel(timeout=self._timeout_s)
        self._publisher = Publisher(link, channel, self._clock, self._timeout_s)
        self._silent = False
        return self._publisher
