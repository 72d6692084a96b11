"""Where a worker's calls to other agents go out, and their answers come in: its own mailbox."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson

from reach_worker.core.admission import CALL
from reach_worker.core.cancel import CANCEL_TASK, cancel_body
from reach_worker.core.envelope import Envelope
from reach_worker.core.json_object import object_in
from reach_worker.core.message import Delivery, Message
from reach_worker.core.names import Names
from reach_worker.ports import Clock, ConsumingBus, Sent

AGAIN_S: Final = 0.2
"""What the broker did not take is sent again after so long."""


@dataclass(slots=True)
class OpenCall:
    """A call without an answer. ``ends_at``: monotonic seconds. ``sent_to``: the mailbox that the answer comes to.

    ``tried``: it may have gone out. ``waiting``: how many wait for the answer.
    """

    envelope: Envelope
    body: Mapping[str, Any]
    ends_at: float
    answer: "asyncio.Future[Mapping[str, Any]]" = field(default_factory=asyncio.Future)
    sent_to: str = ""
    tried: bool = False
    waiting: int = 0

    @property
    def task_id(self) -> str:
        """The id of the task that it is."""
        return self.envelope.task_id


class Switchboard:
    """All calls of a worker. A session that ends takes its mailbox along: what is open is sent again, by its same id."""

    def __init__(self, bus: ConsumingBus, clock: Clock, names: Names) -> None:
        self._bus = bus
        self._clock = clock
        self._names = names
        self._open: dict[str, OpenCall] = {}
        self._off: list[Message] = []
        self._work = asyncio.Event()

    def open(self, call: OpenCall) -> None:
        """Send it, and wait for its answer."""
        self._open[call.task_id] = call
        self._work.set()

    def close(self, call: OpenCall, *, cancel: bool) -> None:
        """Nobody waits for it any more here: the routers are told to cancel it, if they may know of it."""
        self._open.pop(call.task_id, None)
        if call.tried and cancel:
            body = cancel_body(call.task_id)
            self._off.append(
                Message(CANCEL_TASK, body, {}, self._names.events, persistent=False, mandatory=False)
            )
            self._work.set()

    def take(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Take the answers out of what came to the mailbox; what is left."""
        return [delivery for delivery in deliveries if not self._took(delivery)]

    def look(self) -> None:
        """A new session has a new mailbox: see to it that the answers come there."""
        if any(call.sent_to != self._bus.mailbox for call in self._open.values()):
            self._work.set()

    async def run(self) -> None:
        """Send for ever."""
        while True:
            await self._work.wait()
            self._work.clear()
            off, self._off = self._off, []
            mailbox = self._bus.mailbox
            to_send = [call for call in self._open.values() if call.sent_to != mailbox]
            for call in to_send:
                call.tried = True
            messages = [self._message(call, mailbox) for call in to_send]
            results = (await self._bus.publish([*off, *messages]))[len(off) :]
            for call, result in zip(to_send, results, strict=True):
                call.sent_to = mailbox if result is Sent.CONFIRMED else ""
            if any(result is not Sent.CONFIRMED for result in results):
                await self._clock.sleep(AGAIN_S)
                self._work.set()

    # -- inside

    def _message(self, call: OpenCall, mailbox: str) -> Message:
        left_ms = max(1, int((call.ends_at - self._clock.monotonic()) * 1000))
        envelope = replace(call.envelope, reply_to=mailbox)
        body = orjson.dumps({**call.body, "deadline_ms": left_ms})
        return Message(self._names.returns, body, {**envelope.headers(), CALL: 1})

    def _took(self, delivery: Delivery) -> bool:
        """One that nobody waits for any more, or that came twice, is taken too."""
        if delivery.correlation_id is None or delivery.routing_key != self._bus.mailbox:
            return False
        call = self._open.pop(delivery.correlation_id, None)
        if call is not None and not call.answer.done():
            call.answer.set_result(object_in(delivery.body))
        return True
