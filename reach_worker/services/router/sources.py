"""Where tasks come from: intake by tokens, the lanes by free slots, and what could not be sent on a little earlier."""

from collections.abc import Iterator, Sequence
from typing import Final

from reach_worker.core.message import Delivery
from reach_worker.core.token_bucket import TokenBucket
from reach_worker.ports import ConsumingBus
from reach_worker.services.effects import Step
from reach_worker.services.fleet_watch import FleetWatch
from reach_worker.services.router.admit import Admission
from reach_worker.services.router.desk import Desk
from reach_worker.services.router.lanes import Lanes
from reach_worker.services.router.standby import Standby

LANE_POLL_S: Final = 1.0
"""A lane that looks empty is looked into so often while slots are free: another router may have filled it."""
LOOK_SHARE: Final = 0.1
"""Looking takes no more of its time: on a busy broker a look takes long, and with it everything else waits."""
LOOK_AT_ONCE_S: Final = 0.5
AGAIN_S: Final = 1.0
"""What the broker did not take is tried again after so long."""
LANE_BATCH: Final = 50


class Sources:
    """Takes no more than tokens and slots allow. ``withdrawn``: capabilities that nobody offers any more."""

    def __init__(
        self,
        desk: Desk,
        bus: ConsumingBus,
        watch: FleetWatch,
        admission: Admission,
        lanes: Lanes,
        standby: Standby,
    ) -> None:
        self._desk = desk
        self._bus = bus
        self._watch = watch
        self._admission = admission
        self._lanes = lanes
        self._standby = standby
        intake = desk.policies.intake
        self.bucket = TokenBucket.full(intake.rate, intake.burst, desk.clock.monotonic())
        self.withdrawn: set[str] = set()
        self.closed = False
        self._polled: dict[str, float] = {}
        self._look_s = LOOK_AT_ONCE_S
        self._looked = desk.clock.monotonic()
        self._served = ""
        self._taking = False
        self._again: list[tuple[float, Delivery]] = []

    def arrived(self, name: str, limit: int | None = None) -> list[Delivery]:
        """What has arrived by a subscription.

        A session may have ended a moment ago: what waited in it is forgotten first, for here it comes again.
        """
        waiting = self._desk.hands.waiting.items()
        self._desk.hands.drop_stale(t for t, w in waiting if not self._bus.current(w.delivery))
        return self._bus.inbox.take(name, limit)

    async def from_intake(self) -> list[Delivery]:
        """As many as there are tokens for; an empty bucket stops consuming, it does not hold messages.

        It consumes again only when all that came is taken: every new consumer is sent a full prefetch at once.
        """
        now = self._desk.clock.monotonic()
        tokens = self.bucket.available(now)
        taken = self.arrived("intake", tokens)
        self.bucket.take(len(taken), now)
        await self.take(wanted=self._watch.settled() and (self.bucket.rate is None or len(taken) < tokens))
        return taken

    async def take(self, *, wanted: bool) -> None:
        """Consume, or stop: new tasks, and with them what comes back."""
        if wanted != self._taking:
            self._taking = wanted
            await self._bus.want("intake", wanted=wanted)
        if wanted or self.closed:
            await self._bus.want("returns", wanted=wanted)

    def unready(self) -> str:
        """Why no tasks are taken now, empty if they are. An empty token bucket is no reason: it fills by itself."""
        if self.closed:
            return "it stops"
        if not self._desk.fleet.agents:
            return "it knows no agent yet, so it takes no tasks"
        if not self._watch.settled():
            return "it takes no tasks before it knows who is there"
        lost = [name for name in ("outcomes", "returns", "intake") if not self._consumes(name)]
        return f"it does not consume {', '.join(lost)}" if lost else ""

    def _consumes(self, name: str) -> bool:
        if name != "outcomes" and not self._taking:
            return self.bucket.rate is not None
        return self._bus.consumes(name)

    async def trust_what_waits(self) -> None:
        """A task that waits outlived a turn: it must not hold up the others of a session that began slowly.

        One whose message was delivered before says nothing of those behind it, which were delivered too: it goes to its
        lane instead.
        """
        waiting = self._desk.hands.waiting.values()
        for queue in {w.delivery.queue for w in waiting if not w.delivery.redelivered}:
            if queue in (self._desk.names.intake, self._desk.names.returns):
                await self._bus.trust("intake" if queue == self._desk.names.intake else "returns")

    async def from_lanes(self) -> list[Step]:
        """What waits longest goes first: as many from each lane as its capability has free slots.

        Capabilities that share agents take turns: the lane after the last one served is looked into first. Those that
        look empty come last, the one that was not looked into for the longest time before the others.
        """
        desk = self._desk
        now = desk.clock.monotonic()
        steps: list[Step] = []
        if not self._watch.settled():
            return steps
        in_lanes = (capability for capability, depth in self._lanes.depths.items() if depth > 0)
        desk.fleet.share_slots({*in_lanes, *+desk.hands.waiting_for})
        for capability in self._due(now):
            free = desk.fleet.free_slots(capability, now)
            if free <= 0:
                continue
            self._polled[capability] = now
            began = desk.clock.monotonic()
            got, left = await self._bus.get(desk.names.lane(capability), min(free, LANE_BATCH))
            self._lanes.left(capability, left)
            if not got:
                self._look_s -= desk.clock.monotonic() - began
            if got:
                self._served = capability
            steps += await self._admission.returned(got, from_lane=True)
        return [*steps, *await self._from_withdrawn_lanes()]

    def _due(self, now: float) -> Iterator[str]:
        """Lanes with something in them; then those that may have been filled by others, while there is time for that."""
        self._look_s = min(LOOK_AT_ONCE_S, self._look_s + LOOK_SHARE * (now - self._looked))
        self._looked = now
        filled: list[str] = []
        empty: list[str] = []
        for capability in self._in_turn(list(self._desk.fleet.by_capability)):
            (filled if self._lanes.depths.get(capability, 0) > 0 else empty).append(capability)
        yield from filled
        for capability in sorted(empty, key=self._polled_at):
            if self._look_s > 0 and now - self._polled_at(capability) >= LANE_POLL_S:
                yield capability

    def _polled_at(self, capability: str) -> float:
        return self._polled.get(capability, float("-inf"))

    def _in_turn(self, capabilities: list[str]) -> list[str]:
        after = capabilities.index(self._served) + 1 if self._served in capabilities else 0
        return [*capabilities[after:], *capabilities[:after]]

    async def _from_withdrawn_lanes(self) -> list[Step]:
        """What waits for a capability that nobody offers any more would wait for ever: it is looked at once more."""
        steps: list[Step] = []
        self.withdrawn.difference_update(self._desk.fleet.by_capability)
        for capability in sorted(self.withdrawn):
            got, _ = await self._bus.get(self._desk.names.lane(capability), LANE_BATCH)
            steps += await self._admission.returned(got, from_lane=True)
            if not got:
                self.withdrawn.discard(capability)
                self._lanes.forget(capability)
        return steps

    def keep(self, deliveries: Sequence[Delivery]) -> None:
        """These could not be sent on: they are handled again a little later."""
        later = self._desk.clock.monotonic() + AGAIN_S
        self._again += [(later, delivery) for delivery in deliveries]

    def others_wait(self, now: float) -> bool:
        """Something is due to be handled again, or lies in a lane that nobody serves any more."""
        return bool(self.withdrawn) or any(at <= now for at, _ in self._again)

    def offer_again(self) -> None:
        """What could not be sent on a little earlier is handled as if it had just arrived."""
        now = self._desk.clock.monotonic()
        due = [delivery for at, delivery in self._again if at <= now]
        self._again = [(at, delivery) for at, delivery in self._again if at > now]
        for delivery in due:
            if self._bus.current(delivery):
                self._bus.inbox.put(self._source(delivery), delivery)

    def _source(self, delivery: Delivery) -> str:
        """The subscription that a delivery belongs to, by its queue."""
        names = self._desk.names
        if delivery.queue == names.intake:
            return "intake"
        if delivery.queue == names.outcomes(self._desk.router_id):
            return "outcomes"
        return delivery.queue if delivery.queue in self._standby.queues else "returns"
