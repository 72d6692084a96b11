"""One receiving loop for everybody who waits on a client: each delivery goes to the one it is for.

A private queue dies with its session, and so does what was sent to it since. Whoever had named the old one is told
(:attr:`Note.RENEWED`), and asks again.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from reach_worker.client import MAILBOX
from reach_worker.core.message import Delivery
from reach_worker.ports import Clock, ConsumingBus

log = logging.getLogger(__name__)

MOST: Final = 1000
"""So many messages wait for one reader at most; more than any task or question is answered with."""


class Note(Enum):
    """What a reader is told beside what was sent to him."""

    RENEWED = "the queue that answers were to come to is gone, there is a new one"
    CLOSED = "the client was closed"


@dataclass(eq=False, slots=True)
class Slot:
    """Where one waits. ``mark`` is the correlation id of what is for him, ``subscription`` the mailbox it comes to.

    ``asked_from``: the queue that he named last; empty where he waits for nothing yet.
    """

    mark: str
    subscription: str
    asked_from: str = ""
    _items: deque[Delivery | Note] = field(default_factory=deque)
    _there: asyncio.Event = field(default_factory=asyncio.Event)

    async def get(self) -> Delivery | Note:
        """The next message or note."""
        while not self._items:
            self._there.clear()
            await self._there.wait()
        return self._items.popleft()

    def is_asked_from(self, mailbox: str) -> None:
        """What was asked was asked from this queue, so a note that an older one is gone says nothing."""
        self.asked_from = mailbox
        self._items = deque(each for each in self._items if each is not Note.RENEWED)

    def put(self, item: Delivery | Note) -> bool:
        """Hand it over; ``False`` if too many wait already."""
        if len(self._items) >= MOST and isinstance(item, Delivery):
            return False
        self._items.append(item)
        self._there.set()
        return True


class Mailroom:
    """Takes what comes by the bus's mailboxes. :meth:`run` goes on until :meth:`close`.

    It is not cancelled: a call to the broker that is cut off in the middle costs the whole session.
    """

    def __init__(self, bus: ConsumingBus, clock: Clock) -> None:
        self._bus = bus
        self._clock = clock
        self._slots: dict[str, Slot] = {}
        self._own: dict[str, Slot] = {}
        self._mailbox = ""
        self.closed = False

    @contextmanager
    def slot(self, subscription: str = MAILBOX) -> Iterator[Slot]:
        """A place to wait, as long as the block lasts. What comes for it later is let go."""
        slot = Slot(self._clock.new_id(), subscription)
        self._slots[slot.mark] = slot
        if subscription != MAILBOX:
            self._own[slot.mark] = slot
        if self.closed:
            slot.put(Note.CLOSED)
        try:
            yield slot
        finally:
            del self._slots[slot.mark]
            self._own.pop(slot.mark, None)

    async def run(self) -> None:
        """Hand on whatever comes.

        What comes to the common mailbox is acknowledged at once. A mailbox of somebody's own is not: he acknowledges
        what he has read, so the broker sends no more than he can hold.
        """
        arrived = self._bus.inbox.arrived
        while not self.closed:
            await arrived.wait()
            arrived.clear()
            self._tell_renewed()
            common = self._bus.inbox.take(MAILBOX)
            for delivery in common:
                self._hand_on(delivery)
            await self._bus.ack(common)
            for slot in self._own.values():
                for delivery in self._bus.inbox.take(slot.subscription):
                    slot.put(delivery)

    def close(self) -> None:
        """Tell everybody that nothing more comes."""
        self.closed = True
        for slot in self._slots.values():
            slot.put(Note.CLOSED)
        self._bus.inbox.arrived.set()

    def _hand_on(self, delivery: Delivery) -> None:
        slot = self._slots.get(delivery.correlation_id or "")
        if slot is None or slot.subscription != MAILBOX:
            log.debug("an answer that nobody waits for (any more): %.80r", delivery.correlation_id)
        elif not slot.put(delivery):
            log.debug("more answers than any question has: %.80r", delivery.correlation_id)

    def _tell_renewed(self) -> None:
        """All mailboxes are new with a session, so one of them tells of all."""
        if self._bus.mailbox in ("", self._mailbox):
            return
        self._mailbox = self._bus.mailbox
        for slot in self._slots.values():
            now = self._bus.mailbox_of(slot.subscription)
            if slot.asked_from and now not in ("", slot.asked_from):
                slot.asked_from = ""
                slot.put(Note.RENEWED)
