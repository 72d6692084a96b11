"""A queue of dead letters or unmatched tasks: what waits there, taken in batches and given back by ending the session."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from reach_worker.core.dead_letter import DeadLetter, dead_letter_from
from reach_worker.core.message import Delivery
from reach_worker.errors import OutsideWorld
from reach_worker.ports import Bus

BATCH: Final = 200
"""Letters that are taken, sent and acknowledged together."""


@dataclass(frozen=True, slots=True)
class Found:
    """A dead letter and the message that holds it."""

    letter: DeadLetter
    delivery: Delivery


class LetterQueue:
    """Takes messages and does not acknowledge them: the queues have no limit that looking could reach."""

    def __init__(self, bus: Bus, name: str) -> None:
        self.bus = bus
        self.name = name

    async def count(self) -> int:
        """Messages that are ready. Raises :class:`OutsideWorld` if there is no such queue, or no connection."""
        depth = await self.bus.depth(self.name)
        if depth is None:
            raise OutsideWorld(
                f"the broker has no queue {self.name!r}: start a router, or run `reach topology declare`"
            )
        return depth[0]

    async def batches(self, count: int, size: int = BATCH) -> AsyncIterator[list[Found]]:
        """So many, oldest first, in batches; fewer if somebody else takes some of them, or the session ends."""
        left = count
        while left > 0:
            deliveries = await self.bus.get_many(self.name, min(size, left))
            if not deliveries:
                return
            left -= len(deliveries)
            yield [Found(dead_letter_from(delivery), delivery) for delivery in deliveries]

    async def each(self, count: int) -> AsyncIterator[Found]:
        """As :meth:`batches`, one by one."""
        async for batch in self.batches(count):
            for item in batch:
                yield item

    def holds(self, item: Found) -> bool:
        """It was taken in the session that is alive now."""
        return self.bus.current(item.delivery)
