"""The caller: publishes the tasks at their times, again what was not confirmed, takes some back, hears the answers."""

import heapq
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Final

import orjson

from reach_worker import wiring
from reach_worker.bus.rabbit import RabbitBus
from reach_worker.bus.topology import Topology, resting
from reach_worker.chaos.board import Board
from reach_worker.chaos.tasks import PlannedTask
from reach_worker.core.cancel import CANCEL_TASK, cancel_body
from reach_worker.core.message import Delivery, Message
from reach_worker.core.names import Names
from reach_worker.ports import Clock, ConsumingBus, Sent
from reach_worker.services.lifecycle import beside
from reach_worker.settings import Settings

ANSWERS: Final = "chaos-answers"
"""The queue that answers come to; outside of the routers' own prefix, and it outlives connections."""
TICK_S: Final = 0.05
BATCH: Final = 100
AGAIN_S: Final = 0.5
"""What was not confirmed is published again after so long."""


class Caller:
    """One caller with one connection."""

    def __init__(self, bus: ConsumingBus, names: Names, board: Board, clock: Clock) -> None:
        self._bus = bus
        self._names = names
        self._board = board
        self._clock = clock
        self._due: list[tuple[float, int, str, bool]] = []
        self._number = 0

    async def publish(self, tasks: Iterable[PlannedTask], began: float) -> None:
        """Publish all at their times after ``began`` (monotonic), until the broker has confirmed each."""
        for task in tasks:
            self._plan(began + task.at_s, task.name)
            for again_s in task.again_s:
                self._plan(began + again_s, task.name)
            if task.taken_back_s is not None:
                self._plan(began + task.taken_back_s, task.name, back=True)
        while self._due:
            batch = self._take()
            if batch:
                await self._send(batch)
            else:
                await self._clock.sleep(TICK_S)

    async def collect(self) -> None:
        """Take answers for ever."""
        while True:
            await self._bus.inbox.arrived.wait()
            self._bus.inbox.arrived.clear()
            deliveries = self._bus.inbox.take(ANSWERS)
            for delivery in deliveries:
                self._answered(delivery)
            await self._bus.ack(deliveries)

    def _plan(self, at: float, name: str, *, back: bool = False) -> None:
        self._number += 1
        heapq.heappush(self._due, (at, self._number, name, back))

    def _take(self) -> list[tuple[str, bool]]:
        """What is to be sent now: tasks, and whether they are to be taken back instead."""
        now = self._clock.monotonic()
        batch: list[tuple[str, bool]] = []
        while self._due and self._due[0][0] <= now and len(batch) < BATCH:
            batch.append(heapq.heappop(self._due)[2:])
        return batch

    async def _send(self, batch: list[tuple[str, bool]]) -> None:
        board, now_us = self._board, self._clock.utc_us()
        for name, back in batch:
            (board.taken_back if back else board.sent).setdefault(name, now_us)
        results = await self._bus.publish(
            [self._message(board.tasks[name], back=back) for name, back in batch]
        )
        now_us, again_at = self._clock.utc_us(), self._clock.monotonic() + AGAIN_S
        for (name, back), result in zip(batch, results, strict=True):
            if back:  # once, whatever becomes of it
                continue
            board.published += result is not Sent.REFUSED
            if result is Sent.CONFIRMED:
                board.confirmed.setdefault(name, now_us)
            else:
                board.unconfirmed += result is not Sent.REFUSED
                self._plan(again_at, name)

    def _message(self, task: PlannedTask, *, back: bool) -> Message:
        if back:
            body = cancel_body(task.name)
            return Message(CANCEL_TASK, body, exchange=self._names.events, persistent=False, mandatory=False)
        return Message(
            "any.key",
            task.sent,
            task.headers,
            exchange=self._names.tasks,
            correlation_id=task.name,
            reply_to=ANSWERS if task.answered else None,
        )

    def _answered(self, delivery: Delivery) -> None:
        self._board.hear(delivery.correlation_id or "", orjson.loads(delivery.body), self._clock.utc_us())


@asynccontextmanager
async def calling(settings: Settings, board: Board, clock: Clock, names: Names) -> AsyncIterator[Caller]:
    """A caller, connected within the block, however often it has to be."""
    bus = RabbitBus(
        wiring.bus_settings(settings, "chaos caller"), clock, Topology((), (resting(ANSWERS),), ())
    )
    bus.subscribe(ANSWERS, ANSWERS, 500, at_once=True)
    async with bus.running():
        caller = Caller(bus, names, board, clock)
        async with beside(caller.collect()):
            yield caller
