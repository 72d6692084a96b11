"""Which message each of the broker's answers is about.

On a channel in confirm mode the broker counts what is published, from 1, and answers by number: an ack or a nack, of
one or of all up to it. What no queue took comes back as a return first, without a number but in the order in which it
was published; its ack follows. So a return is of the first message with its id behind the one returned last.
"""

import asyncio
import struct
from collections.abc import Iterable
from typing import Final

from reach_worker.bus.properties import Fault, read_properties
from reach_worker.ports import Sent

_ANSWER: Final = struct.Struct(">4xQB")
_MULTIPLE: Final = 1


class Batch:
    """Messages that are sent together, and what has become of each. Not sent is refused; sent is uncertain."""

    def __init__(self, size: int) -> None:
        self.results = [Sent.REFUSED] * size
        self.awaited = 0
        """Answers that are still to come."""
        self._done: asyncio.Future[None] | None = None

    def sent(self, at: int) -> None:
        """One of them is on its way."""
        self.results[at] = Sent.UNCERTAIN
        self.awaited += 1

    def answered(self, at: int, result: Sent) -> None:
        """The broker said what has become of it; the first word counts."""
        if self.results[at] is Sent.UNCERTAIN:
            self.results[at] = result
        self.awaited -= 1
        if not self.awaited:
            self._wake()

    def give_up(self) -> None:
        """No more answers will come."""
        self.awaited = 0
        self._wake()

    async def wait(self, timeout_s: float) -> None:
        """Wait until all have been answered, or until the time is over."""
        if not self.awaited:
            return
        loop = asyncio.get_running_loop()
        self._done = loop.create_future()
        timer = loop.call_later(timeout_s, self._wake)
        try:
            await self._done
        finally:
            timer.cancel()
            self._done = None

    def _wake(self) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(None)


class Confirms:
    """Of one channel: what was published and not answered, in order."""

    def __init__(self) -> None:
        self.ended = False
        self._latest = 0
        self._returned = 0
        self._open: dict[int, tuple[Batch, int, str]] = {}

    def sent(self, batch: Batch, at: int, message_id: str) -> None:
        """The next message was written to the socket."""
        self._latest += 1
        self._open[self._latest] = (batch, at, message_id)
        batch.sent(at)

    def acked(self, method: bytes) -> None:
        """``Basic.Ack``."""
        self._answered(method, Sent.CONFIRMED)

    def nacked(self, method: bytes) -> None:
        """``Basic.Nack``."""
        self._answered(method, Sent.REFUSED)

    def returned(self, _method: bytes, header: bytes, _body: bytes) -> None:
        """``Basic.Return`` with its content: no queue took the message. Its ack is still to come."""
        try:
            message_id = read_properties(header).message_id
        except Fault:  # not one of ours then
            return
        for tag in self._behind_the_last_return():
            if (entry := self._open.get(tag)) is not None and entry[2] == message_id:
                batch, at, _ = entry
                batch.results[at] = Sent.UNROUTABLE
                self._returned = tag
                return

    def end(self) -> None:
        """The channel is closed: what was not answered never will be."""
        self.ended = True
        for batch, _, _ in self._open.values():
            batch.give_up()
        self._open.clear()

    def _answered(self, method: bytes, result: Sent) -> None:
        upto, flags = _ANSWER.unpack_from(method)
        for tag in self._meant(upto) if flags & _MULTIPLE else (upto,):
            if (entry := self._open.pop(tag, None)) is not None:
                entry[0].answered(entry[1], result)

    def _meant(self, upto: int) -> list[int]:
        """The open ones up to a number; up to none are all."""
        if not upto:
            return list(self._open)
        found = []
        for tag in self._open:
            if tag > upto:
                break
            found.append(tag)
        return found

    def _behind_the_last_return(self) -> Iterable[int]:
        oldest = next(iter(self._open), self._latest + 1)
        return range(max(oldest, self._returned + 1), self._latest + 1)
