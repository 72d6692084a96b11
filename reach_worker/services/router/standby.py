"""Standing by for other routers: their outcomes come to us while they are gone."""

from reach_worker.core.message import Delivery
from reach_worker.ports import ConsumingBus
from reach_worker.services.fleet_watch import FleetWatch
from reach_worker.services.router.desk import Desk


class Standby:
    """Outcomes queues of other routers. ``queues``: their names, and whose they are; ``orphans``: routers without one."""

    def __init__(self, desk: Desk, bus: ConsumingBus, watch: FleetWatch) -> None:
        self._desk = desk
        self._bus = bus
        self._watch = watch
        self.queues: dict[str, str] = {}
        self.orphans: set[str] = set()
        self._came: set[str] = set()

    async def stand_by(self, router_id: str) -> None:
        """Consume another router's outcomes as the one who waits: the broker hands over when its owner is gone."""
        queue = self._desk.names.outcomes(router_id)
        await self._bus.declare_queue(queue)
        self.queues[queue] = router_id
        self.orphans.discard(router_id)
        await self._bus.add_subscription(queue, queue, 200)

    def arrived(self) -> list[Delivery]:
        """Outcomes that came for other routers: we stand by on their queues."""
        found: list[Delivery] = []
        for queue in self.queues:
            if arrived := self._bus.inbox.take(queue):
                self._came.add(queue)
                found += arrived
        return found

    async def yield_to_owners(self) -> None:
        """Where outcomes come to us and their owner lives: queue up behind it."""
        for queue in sorted(self._came):
            if self._watch.lives(self.queues[queue]):
                await self._bus.want(queue, wanted=False)
                await self._bus.want(queue, wanted=True)
        self._came.clear()
