"""Outcomes on their way back: sent in batches, each dispatch acknowledged only after its outcome is confirmed."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from reach_worker.core.message import Delivery, Message
from reach_worker.core.value import value
from reach_worker.ports import Bus, Clock, Sent

REMEMBERED: Final = 10_000
AGAIN_S: Final = 0.2
"""What the broker did not take is sent again after so long."""


@value(frozen=True, slots=True)
class Finished:
    """An outcome that is to be sent, and the delivery to acknowledge after it."""

    dispatch_id: str
    message: Message
    delivery: Delivery


class Outbox:
    """What is to be sent, and which dispatches have an outcome. One outcome per dispatch, whatever happens."""

    def __init__(self, bus: Bus, clock: Clock, returns: str) -> None:
        self._bus = bus
        self._clock = clock
        self._returns = returns
        self._pending: dict[str, Finished] = {}
        self._done: OrderedDict[str, None] = OrderedDict()
        self._to_ack: list[Delivery] = []
        self._work = asyncio.Event()
        self.idle = asyncio.Event()
        self.idle.set()

    def put(self, finished: Finished) -> None:
        """Queue an outcome, once per dispatch."""
        if finished.dispatch_id in self._done:
            return
        self._done[finished.dispatch_id] = None
        if len(self._done) > REMEMBERED:
            self._done.popitem(last=False)
        self._pending[finished.dispatch_id] = finished
        self._wake()

    def came_again(self, dispatch_id: str, delivery: Delivery) -> bool:
        """A dispatch was delivered again: if it has its outcome, only the new delivery is to be acknowledged."""
        if dispatch_id not in self._done:
            return False
        pending = self._pending.get(dispatch_id)
        if pending is None:
            self.let_go(delivery)
        else:
            self._pending[dispatch_id] = replace(pending, delivery=delivery)
            self._wake()
        return True

    def let_go(self, delivery: Delivery) -> None:
        """Acknowledge a delivery that has nothing to wait for."""
        self._to_ack.append(delivery)
        self._wake()

    def holds(self, dispatch_id: str) -> bool:
        """It has an outcome of this dispatch that the broker has not confirmed."""
        return dispatch_id in self._pending

    async def run(self) -> None:
        """Send for ever."""
        while True:
            await self._work.wait()
            self._work.clear()
            if self._to_ack:
                acks, self._to_ack = self._to_ack, []
                await self._bus.ack(acks)
            batch = list(self._pending.values())
            if await self._send(batch) < len(batch):
                await self._clock.sleep(AGAIN_S)
            if self._pending or self._to_ack:  # refused, or put here while the batch was on its way
                self._work.set()
            else:
                self.idle.set()

    async def _send(self, batch: Sequence[Finished]) -> int:
        """Send outcomes; acknowledge and count those that the broker confirmed; keep the others for the next try."""
        results = await self._bus.publish([finished.message for finished in batch])
        confirmed = []
        for finished, result in zip(batch, results, strict=True):
            if result is Sent.CONFIRMED:
                confirmed.append(self._pending.pop(finished.dispatch_id).delivery)
            elif result is Sent.UNROUTABLE:
                self._redirect(finished.dispatch_id)
        await self._bus.ack(confirmed)
        return len(confirmed)

    def _redirect(self, dispatch_id: str) -> None:
        """An outcome that finds no queue goes to the routers' common way back."""
        pending = self._pending[dispatch_id]
        self._pending[dispatch_id] = replace(
            pending, message=replace(pending.message, routing_key=self._returns)
        )

    def _wake(self) -> None:
        self.idle.clear()
        self._work.set()
