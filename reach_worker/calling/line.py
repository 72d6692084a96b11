"""The line to the routers: sending tasks until the broker has them, and asking about them."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

from reach_worker.calling.mailroom import Mailroom, Note, Slot
from reach_worker.calling.order import Order
from reach_worker.client import WHO_DECLARES, Client
from reach_worker.core.cancel import CANCEL_TASK, CancelReply, cancel_body, cancel_reply_from
from reach_worker.core.json_object import object_in
from reach_worker.core.lookup import FETCH, Found, best, found_from
from reach_worker.core.message import Message
from reach_worker.core.task_errors import ConnectionLost
from reach_worker.errors import BrokerUnavailable, OutsideWorld
from reach_worker.ports import Sent

log = logging.getLogger(__name__)

FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 2.0
"""Between two attempts to send, or two questions about one task: it doubles from one to the other."""

MAILBOXES: Final = "reach-answers"
"""Begins the names of private queues for answers."""

T = TypeVar("T")


class Line:
    """What calls, streams and questions have in common. ``unfinished``: ids of tasks whose streams are being read.

    ``group`` has to outlive everybody who uses it.
    """

    def __init__(self, client: Client, room: Mailroom, group: asyncio.TaskGroup) -> None:
        self.client = client
        self.room = room
        self.unfinished: set[str] = set()
        self._group = group
        self._started: set[asyncio.Task[Any]] = set()
        self._adding: dict[str, asyncio.Task[None]] = {}
        self._intake_seen = False

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Do it beside the caller; it must raise nothing. Closing the client cancels it."""
        task = self._group.create_task(work)
        self._started.add(task)
        task.add_done_callback(self._started.discard)
        return task

    async def mailbox(self, name: str, prefetch: int) -> None:
        """Have a mailbox of one's own. Whoever is cancelled meanwhile cuts nothing off: that would cost the session."""
        adding = self.client.bus.add_mailbox(name, prefetch, MAILBOXES)
        self._adding[name] = self._group.create_task(adding)
        await asyncio.shield(self._adding[name])

    async def drop(self, name: str) -> None:
        """Give the mailbox up, with what is in it."""
        adding = self._adding.pop(name, None)
        if adding is not None:
            await asyncio.wait([adding])
            await self.client.bus.drop_mailbox(name)

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        """Do it beside the caller; nobody waits for it but the end of the client."""
        if self.room.closed:
            work.close()
        else:
            self._group.create_task(work)

    async def close(self) -> None:
        """Cancel what is still being read, and let nobody wait any more."""
        for task in list(self._started):
            task.cancel()
        if self._started:
            await asyncio.wait(self._started)
        for task_id in self.unfinished:
            self.later(self.cancel_unheard(task_id))
        self.room.close()

    async def send(self, order: Order, slot: Slot | None = None) -> None:
        """Publish a task; back when the broker has confirmed it. The answer comes to the slot.

        Sent as often as it takes, under one task id, so it is done once. Raises :class:`OutsideWorld` where there are
        no queues of ours at all, :class:`ConnectionLost` once the client is closed.
        """
        bus, pause_s = self.client.bus, FIRST_PAUSE_S
        while not self.room.closed:
            there = await self._has_intake()
            # From here to the note in the slot nothing may be waited for: the mailbox could be another one by then.
            reply_to = None if slot is None else bus.mailbox_of(slot.subscription)
            if there and reply_to != "":
                if slot is not None and reply_to is not None:
                    slot.is_asked_from(reply_to)
                message = order.message(reply_to, None if slot is None else slot.mark)
                (sent,) = await bus.publish([message])
                if sent is Sent.CONFIRMED:
                    return
                log.info("the broker did not take task %s (%s): sent again", order.task_id, sent.value)
            await self.client.clock.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        raise ConnectionLost(order.task_id, order.flow_id, why="the client was closed before it was sent")

    async def _has_intake(self) -> bool:
        """The broker has our queues. Asked once: a task to a broker without them would go nowhere for ever."""
        if not self._intake_seen:
            intake = self.client.names.intake
            try:
                if await self.client.bus.depth(intake) is None:
                    raise OutsideWorld(f"the broker has no queue {intake!r}: {WHO_DECLARES}")
            except BrokerUnavailable:
                return False
            self._intake_seen = True
        return True

    async def find(self, task_id: str, enough: Callable[[Found], bool], seconds: float) -> Found | None:
        """Ask every router where a task is: the best answer of so many seconds, or the first that is enough."""
        said = await self._ask(FETCH, task_id, lambda answer: enough(found_from(answer)), seconds)
        return best(found_from(each) for each in said)

    async def cancel(self, task_id: str, seconds: float) -> list[CancelReply]:
        """Ask every router to cancel a task: what they say in so many seconds, or until one knows it."""
        said = await self._ask(CANCEL_TASK, task_id, lambda answer: answer.get("state") != "unknown", seconds)
        return [reply for each in said if (reply := cancel_reply_from(each)) is not None]

    async def cancel_unheard(self, task_id: str) -> None:
        """Ask every router to cancel a task; nobody waits for what they say."""
        await self.client.bus.publish([self._question(CANCEL_TASK, task_id, None, None)])

    async def _ask(
        self, key: str, task_id: str, enough: Callable[[Mapping[str, Any]], bool], seconds: float
    ) -> list[Mapping[str, Any]]:
        answers: list[Mapping[str, Any]] = []
        with self.room.slot() as slot, suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not (answers and enough(answers[-1])):
                    if not slot.asked_from:
                        await self._put(slot, key, task_id)
                    item = await slot.get()
                    if item is Note.CLOSED:
                        raise ConnectionLost(task_id, why="the client was closed")
                    if not isinstance(item, Note):
                        answers.append(object_in(item.body))
        return answers

    async def _put(self, slot: Slot, key: str, task_id: str) -> None:
        """Put the question, as soon as there is a connection; it is put again where the connection was lost over it."""
        bus = self.client.bus
        while True:
            mailbox = bus.mailbox_of(slot.subscription)
            if mailbox:
                slot.is_asked_from(mailbox)
                question = self._question(key, task_id, mailbox, slot.mark)
                if await bus.publish([question]) == [Sent.CONFIRMED]:
                    return
                slot.is_asked_from("")
            await self.client.clock.sleep(FIRST_PAUSE_S)

    def _question(self, key: str, task_id: str, mailbox: str | None, mark: str | None) -> Message:
        return Message(
            key,
            cancel_body(task_id),
            {},
            self.client.names.events,
            correlation_id=mark,
            reply_to=mailbox,
            user_id=self.client.user_id,
            persistent=False,
            mandatory=False,
        )
