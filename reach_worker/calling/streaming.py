"""A task whose agent is heard while it works.

Each stream has a mailbox of its own, of which the broker hands out a few messages at a time, and the next ones as those
are read: a slow reader costs nobody else anything, and no memory here. The broker keeps 10,000 for him; then the oldest
go, and he is told (:class:`ChunksLost`).
"""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from reach_worker.calling.line import Line
from reach_worker.calling.mailroom import Note, Slot
from reach_worker.calling.order import Order
from reach_worker.calling.waiting import Answer, again, ends, own_result, too_late
from reach_worker.core.json_object import object_in
from reach_worker.core.message import Delivery
from reach_worker.core.stream_reading import Event, Reading, result_event
from reach_worker.core.task_errors import ConnectionLost

T = TypeVar("T")

PREFETCH: Final = 32
"""Messages that are here and not read yet."""


async def stream(line: Line, order: Order, timeout_s: float | None) -> AsyncGenerator[Event, None]:
    """Publish a task; what its agents say, and in the end its result. Raises the ``TaskError`` that fits.

    Whoever stops reading before the end has the task cancelled.
    """
    mailbox = f"stream-{line.client.clock.new_id()[-12:]}"
    line.unfinished.add(order.task_id)
    try:
        with line.room.slot(mailbox) as slot:
            await line.mailbox(mailbox, PREFETCH)
            told = Told(line, order, slot, timeout_s)
            await told.within(line.send(order, slot))
            while told.answer is None:
                for event in await told.within(told.next()):
                    yield event
                await told.read()
        line.unfinished.discard(order.task_id)
        yield result_event(own_result(order, told.answer, timeout_s), told.answer)
    finally:
        line.later(line.drop(mailbox))
        if order.task_id in line.unfinished:
            line.unfinished.discard(order.task_id)
            line.later(line.cancel_unheard(order.task_id))


@dataclass(slots=True)
class Told:
    """What a stream's reader is told. ``answer``: the end, once that has come."""

    line: Line
    order: Order
    slot: Slot
    timeout_s: float | None
    answer: Answer | None = None
    _reading: Reading = field(default_factory=Reading)
    _unread: list[Delivery] = field(default_factory=list)
    _until: float | None = None

    def __post_init__(self) -> None:
        if self.timeout_s is not None:
            self._until = self.line.client.clock.monotonic() + self.timeout_s

    async def within(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it, as long as there is time. The time that the reader takes for himself counts, too."""
        left_s = None if self._until is None else max(0.0, self._until - self.line.client.clock.monotonic())
        limit = asyncio.timeout(left_s)
        try:
            async with limit:
                return await work
        except TimeoutError:
            if not limit.expired():
                raise
            raise too_late(self.order, self.timeout_s, self.slot, cancelled=True) from None

    async def next(self) -> list[Event]:
        """Wait for one message; what it tells the reader."""
        match await self.slot.get():
            case Note.CLOSED:
                why = "the client was closed"
                raise ConnectionLost(self.order.task_id, self.order.flow_id, why=why)
            case Note.RENEWED:
                events = self._reading.interrupt()
                self.answer = await again(self.line, self.order, self.slot)
                return events if self.answer is None else [*events, *self._reading.end(self.answer)]
            case Delivery() as delivery:
                self._unread.append(delivery)
                return self._understand(delivery)
            case other:
                raise AssertionError(other)

    async def read(self) -> None:
        """The reader wants more: what he has read may go."""
        read, self._unread = self._unread, []
        await self.line.client.bus.ack(read)

    def _understand(self, delivery: Delivery) -> list[Event]:
        said = object_in(delivery.body)
        if delivery.correlation_id != self.slot.mark:
            return []
        if not ends(said):
            return self._reading.take(said)
        self.answer = said
        return self._reading.end(said)
