"""Load that does not wait for answers: every task has its time to be sent, and its latency counts from that time.

Whoever sends the next task only when an answer is there, or counts from when it was really sent, leaves out just those
moments in which somebody would have had to wait.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from reach_worker.bench.chance import waiting_time
from reach_worker.bus.rabbit import RabbitBus
from reach_worker.clock import SystemClock
from reach_worker.core.message import Delivery, Message
from reach_worker.errors import OutsideWorld
from reach_worker.ports import Sent

MOST_AT_ONCE: Final = 200
"""So many are published together at most."""


def arrivals(rate_per_s: float, count: int, draw: Callable[[], float]) -> list[float]:
    """When tasks arrive, in seconds from the beginning: a Poisson process."""
    at, times = 0.0, []
    for _ in range(count):
        at += waiting_time(rate_per_s, draw())
        times.append(at)
    return times


@dataclass(slots=True)
class Load:
    """Sends tasks at their times and takes what comes back.

    ``message``: a task by its id. ``inboxes``: where answers land. ``id_of``: the task's id in what comes back.
    """

    bus: RabbitBus
    inboxes: Sequence[str]
    message: Callable[[str], Message]
    id_of: Callable[[Delivery], str | None]
    clock: SystemClock = field(default_factory=SystemClock)

    async def latencies(self, times: Sequence[float], limit_s: float) -> list[float]:
        """Seconds from the time when each was to be sent until it was answered, sorted.

        Raises ``OutsideWorld`` if one is not answered in time, or the broker does not take one.
        """
        began = self.clock.monotonic()
        due = {self.clock.new_id(): began + at for at in times}
        took: list[float] = []
        try:
            async with asyncio.timeout(limit_s), asyncio.TaskGroup() as group:
                group.create_task(self._send(due, group))
                await self._collect(dict(due), took)
        except TimeoutError:
            raise OutsideWorld(f"{len(due) - len(took)} of {len(due)} tasks were not answered") from None
        took.sort()
        return took

    async def rate(self, count: int, limit_s: float) -> float:
        """Tasks per second from the first publish to the last answer, when all are sent at once."""
        began = self.clock.monotonic()
        await self.latencies([0.0] * count, limit_s)
        return count / (self.clock.monotonic() - began)

    async def _send(self, due: dict[str, float], group: asyncio.TaskGroup) -> None:
        waiting = sorted(due, key=due.__getitem__)
        place = 0
        while place < len(waiting):
            now = self.clock.monotonic()
            end = place
            while end < len(waiting) and due[waiting[end]] <= now and end - place < MOST_AT_ONCE:
                end += 1
            if end > place:
                batch = [self.message(task_id) for task_id in waiting[place:end]]
                group.create_task(self._publish(batch))
                place = end
                await self.clock.sleep(0.0)
            else:
                await self.clock.sleep(due[waiting[place]] - now)

    async def _publish(self, batch: Sequence[Message]) -> None:
        if set(await self.bus.publish(batch)) != {Sent.CONFIRMED}:
            raise OutsideWorld("the broker did not take a task of the load")

    async def _collect(self, due: dict[str, float], took: list[float]) -> None:
        arrived = self.bus.inbox.arrived
        while due:
            await arrived.wait()
            arrived.clear()
            deliveries = [delivery for name in self.inboxes for delivery in self.bus.inbox.take(name)]
            now = self.clock.monotonic()
            for delivery in deliveries:
                at = due.pop(self.id_of(delivery) or "", None)
                if at is not None:
                    took.append(now - at)
            await self.bus.ack(deliveries)
