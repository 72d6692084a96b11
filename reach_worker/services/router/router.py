"""The router's turn: hear who is there, settle what ended, admit what arrived, bind what can be bound, carry it all out.

Everything that has arrived is handled together: one burst of messages with pipelined confirms, one
transaction, one batch of acknowledgements. One task runs the turns, so nothing here needs a lock.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from reach_worker.core.dispatch import DISPATCH, OUTCOME, Dispatch, dispatch_from
from reach_worker.core.envelope import BadHeaders
from reach_worker.core.fleet import Agent
from reach_worker.core.fresh_files import Changed
from reach_worker.core.hearsay import HEARSAY
from reach_worker.core.manifest import Manifest
from reach_worker.core.message import Delivery
from reach_worker.core.presence import PresencePolicy, PresenceState
from reach_worker.core.recovery import MICROSECONDS
from reach_worker.core.slots import Lease
from reach_worker.core.token_bucket import TokenBucket
from reach_worker.ports import ConsumingBus, Sent, Store
from reach_worker.services.effects import Step, carry_out
from reach_worker.services.fleet_watch import FleetWatch
from reach_worker.services.news import News
from reach_worker.services.router.admit import Admission
from reach_worker.services.router.bind import Binder
from reach_worker.services.router.desk import Desk
from reach_worker.services.router.dispatcher import Dispatcher
from reach_worker.services.router.hands import InFlight
from reach_worker.services.router.judge import AgentJudge
from reach_worker.services.router.lanes import Lanes
from reach_worker.services.router.reread import reread
from reach_worker.services.router.settle import Settlement
from reach_worker.services.router.told import Told, came_back, forward

log = logging.getLogger(__name__)

TICK_S: Final = 0.5
WAITING_S: Final = 0.1
SHORTEST_S: Final = 0.01
"""How long a turn is waited for: the tick, while tasks wait in the window, and at the least."""
LANE_POLL_S: Final = 1.0
"""A lane that looks empty is looked into so often while slots are free: another router may have filled it."""
AGAIN_S: Final = 1.0
"""What the broker did not take is tried again after so long."""
LANE_BATCH: Final = 50
TAKE_BACK: Final = 200


class Router:
    """Admit, bind, settle."""

    def __init__(self, desk: Desk, presence: PresencePolicy, bus: ConsumingBus, store: Store) -> None:
        self._desk = desk
        self._bus = bus
        self._store = store
        self._dispatcher = Dispatcher(desk)
        self._lanes = Lanes(desk, self._dispatcher)
        self._binder = Binder(desk, self._dispatcher, self._lanes)
        self.watch = FleetWatch(desk.fleet, presence, desk.names, desk.clock, desk.tags, desk.router_id)
        desk.lives = self.watch.lives
        self._admission = Admission(desk, self._binder, self._dispatcher, store)
        self._judge = AgentJudge(desk)
        self._settlement = Settlement(desk, self._binder, self._dispatcher, self._judge, store)
        now = desk.clock.monotonic()
        intake = desk.policies.intake
        self._bucket = TokenBucket.full(intake.rate, intake.burst, now)
        self._ticked = float("-inf")
        self._polled: dict[str, float] = {}
        self._taking = False
        self._leaving = False
        self._take_back: set[str] = set()
        self._standing_by: dict[str, str] = {}
        self._yield: set[str] = set()
        self._orphans: set[str] = set()
        self._fresh: list[Changed] = []
        self._withdrawn: set[str] = set()
        self._again: list[tuple[float, Delivery]] = []
        self.stop_asked = asyncio.Event()

    # -- life

    async def begin(self, manifests: Sequence[Manifest]) -> None:
        """Remember what an earlier process of this router knew: statistics, and dispatches that are still out."""
        desk = self._desk
        desk.fleet.record = await self._store.track_record()
        await self._hear(self.watch.remember(manifests))
        now = desk.clock.monotonic()
        timeouts = desk.policies.timeouts
        for known in await self._store.open_dispatches(desk.router_id):
            flight = InFlight.recovered(known)
            backstop_at = now + timeouts.pickup_s + timeouts.attempt_ms / 1000 + timeouts.backstop_s
            desk.fleet.leases.add(
                Lease(known.dispatch_id, known.agent_id, known.task_id, now, backstop_at, 0, probe=False)
            )
            desk.hands.send(flight)

    async def run(self) -> None:
        """Turn until asked to stop, then drain: take no more, hand back what waits, wait for what is out."""
        while not self.stop_asked.is_set():
            await self._wait()
            await self.turn()
        await self.drain()

    def take_files(self, changed: Changed) -> None:
        """What was read again from the files; the next turn, which this wakes, takes it."""
        self._fresh.append(changed)
        self._bus.inbox.arrived.set()

    async def turn(self) -> None:
        """One turn over everything that has arrived."""
        self._desk.hands.begin_turn()
        clock = self._desk.clock
        self._desk.fleet.utc_ahead = clock.utc_us() / MICROSECONDS - clock.monotonic()
        steps = await self._inputs()
        if not self._leaving:
            steps += self._binder.expire()
            steps += self._binder.bind()
            steps += self._lanes.spill()
        await self._carry_out([*self._judge.tell(), *steps])

    async def drain(self) -> None:
        """Stop taking; hand back what waits; wait for outcomes until the grace period ends."""
        self._leaving = self._binder.closed = True
        await self._take(wanted=False)
        await self.turn()
        await self._carry_out(self._lanes.hand_back())
        await self._bus.publish([self.watch.farewell()])
        deadline = self._desk.clock.monotonic() + self._desk.policies.grace_s
        while self._desk.hands.held() and self._desk.clock.monotonic() < deadline:
            await self._wait()
            await self.turn()
            await self._carry_out(self._lanes.hand_back())
        left = len(self._desk.hands.in_flight)
        log.info("stopped; %d dispatches are still out, their outcomes wait for the next start", left)

    async def _wait(self) -> None:
        arrived = self._bus.inbox.arrived
        if not arrived.is_set():
            try:
                async with asyncio.timeout(self._patience()):
                    await arrived.wait()
            except TimeoutError:
                return
        arrived.clear()

    def _patience(self) -> float:
        now = self._desk.clock.monotonic()
        waits = bool(self._desk.hands.waiting)
        longest = WAITING_S if waits else self._bucket.seconds_to_next(now) or TICK_S
        by_rate = self._desk.fleet.next_by_rate(now) if waits or any(self._lanes.depths.values()) else None
        return max(SHORTEST_S, min(TICK_S, longest, TICK_S if by_rate is None else by_rate))

    # -- what comes in

    async def _inputs(self) -> list[Step]:
        inbox = self._bus.inbox
        await self._trust_what_waits()
        self._offer_again()
        announced = inbox.take("router")
        fresh, self._fresh = self._fresh, []
        for changed in fresh:
            await self._hear(reread(changed, self._desk, self.watch))
        await self._hear(self.watch.take(announced))
        self._judge.hear([d for d in announced if d.routing_key.startswith(f"{HEARSAY}.")])
        await self._bus.ack(announced)
        outcomes = [*self._arrived("outcomes"), *self._stood_in()]
        tasks, others = _sort(self._arrived("returns"))
        steps = await self._settlement.settle([*outcomes, *(d for d in others if OUTCOME in d.headers)])
        steps += await self._tick()
        steps += await self._came_back([d for d in others if OUTCOME not in d.headers])
        steps += await self._admission.returned(tasks)
        if self._leaving:
            return [*steps, *await self._admission.published(self._arrived("intake"))]
        steps += await self._from_lanes()
        steps += await self._admission.published(await self._from_intake())
        return steps

    async def _trust_what_waits(self) -> None:
        """A task that waits outlived a turn: it must not hold up the others of a session that began slowly."""
        if self._desk.hands.waiting:
            await self._bus.trust("intake")
            await self._bus.trust("returns")

    def _arrived(self, name: str, limit: int | None = None) -> list[Delivery]:
        """What has arrived by a subscription.

        A session may have ended a moment ago: what waited in it is forgotten first, for here it comes again.
        """
        waiting = self._desk.hands.waiting.items()
        self._desk.hands.drop_stale(t for t, w in waiting if not self._bus.current(w.delivery))
        return self._bus.inbox.take(name, limit)

    def _stood_in(self) -> list[Delivery]:
        """Outcomes that came for other routers: we stand by on their queues."""
        found: list[Delivery] = []
        for queue in self._standing_by:
            if arrived := self._arrived(queue):
                self._yield.add(queue)
                found += arrived
        return found

    async def _from_intake(self) -> list[Delivery]:
        """As many as there are tokens for; an empty bucket stops consuming, it does not hold messages.

        It consumes again only when all that came is taken: every new consumer is sent a full prefetch at once.
        """
        now = self._desk.clock.monotonic()
        tokens = self._bucket.available(now)
        taken = self._arrived("intake", tokens)
        self._bucket.take(len(taken), now)
        await self._take(wanted=self.watch.settled() and (self._bucket.rate is None or len(taken) < tokens))
        return taken

    async def _take(self, *, wanted: bool) -> None:
        if wanted != self._taking:
            self._taking = wanted
            await self._bus.want("intake", wanted=wanted)
        if wanted or self._leaving:
            await self._bus.want("returns", wanted=wanted)

    async def _from_lanes(self) -> list[Step]:
        """What waits longest goes first: as many from each lane as its capability has free slots."""
        desk = self._desk
        now = desk.clock.monotonic()
        steps: list[Step] = []
        if not self.watch.settled():
            return steps
        for capability in desk.fleet.by_capability:
            due = (
                self._lanes.depths.get(capability, 0) > 0
                or now - self._polled.get(capability, -1e9) >= LANE_POLL_S
            )
            free = desk.fleet.free_slots(capability, now) if due else 0
            if free <= 0:
                continue
            self._polled[capability] = now
            got, left = await self._bus.get(desk.names.lane(capability), min(free, LANE_BATCH))
            self._lanes.depths[capability] = left
            steps += await self._admission.returned(got, from_lane=True)
        return [*steps, *await self._from_withdrawn_lanes()]

    async def _from_withdrawn_lanes(self) -> list[Step]:
        """What waits for a capability that nobody offers any more would wait for ever: it is looked at once more."""
        steps: list[Step] = []
        self._withdrawn.difference_update(self._desk.fleet.by_capability)
        for capability in sorted(self._withdrawn):
            got, _ = await self._bus.get(self._desk.names.lane(capability), LANE_BATCH)
            steps += await self._admission.returned(got, from_lane=True)
            if not got:
                self._withdrawn.discard(capability)
                self._lanes.depths.pop(capability, None)
        return steps

    def _offer_again(self) -> None:
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
        return delivery.queue if delivery.queue in self._standing_by else "returns"

    # -- time

    async def _tick(self) -> list[Step]:
        now = self._desk.clock.monotonic()
        if now - self._ticked < TICK_S:
            return []
        self._ticked = now
        await self._hear(self.watch.tick())
        await self._yield_to_owners()
        steps = await self._settlement.conclude(self._settlement.overdue())
        self._take_back |= self._judge.moved
        self._judge.moved.clear()
        for agent in self._desk.fleet.agents.values():
            if self._desk.fleet.leases.held(agent.agent_id) and self._unable(agent):
                self._take_back.add(agent.agent_id)
        for agent_id in sorted(self._take_back):
            steps += await self._take_back_from(agent_id)
        self._take_back.clear()
        return steps

    def _unable(self, agent: Agent) -> bool:
        """Nobody will take what waits in its queue. Half-open is not open: what waits there is the probe."""
        return agent.roster.state() in (PresenceState.DEAD, PresenceState.STALLED) or agent.breaker.shut

    async def _take_back_from(self, agent_id: str) -> list[Step]:
        """The queued backlog of an agent that died, stalled or is broken is routed again, by its owner."""
        agent = self._desk.fleet.agents.get(agent_id)
        if agent is None or not self._unable(agent):
            return []
        got, _ = await self._bus.get(self._desk.names.agent(agent_id), TAKE_BACK)
        if got:
            log.info("%d dispatches are taken back from %s", len(got), agent_id)
        return await self._came_back(got)

    async def _came_back(self, deliveries: Sequence[Delivery]) -> list[Step]:
        """Dispatches without an outcome: ours are settled, another router's go to it."""
        steps: list[Step] = []
        own: list[Told] = []
        for delivery in deliveries:
            dispatch = dispatch_from(delivery.headers)
            if isinstance(dispatch, BadHeaders):
                steps += await self._admission.returned([delivery])
                continue
            was_running = delivery.redelivered and self._ran(dispatch)
            told = came_back(dispatch, delivery, was_running=was_running)
            if dispatch.owner in (self._desk.router_id, *self._orphans):
                own.append(told)
            else:
                steps.append(self._forwarded(told))
        return [*steps, *await self._settlement.conclude(own)]

    def _ran(self, dispatch: Dispatch) -> bool:
        """Its instance said that it runs this: before it began, or in a heartbeat."""
        flight = self._desk.hands.in_flight.get(dispatch.dispatch_id)
        agent = self._desk.fleet.agents.get(dispatch.agent_id)
        said = agent is not None and dispatch.dispatch_id in agent.roster.last_running()
        return said or (flight is not None and flight.started)

    def _forwarded(self, told: Told) -> Step:
        owner = told.dispatch.owner
        step = forward(told, self._desk.names.outcomes(owner))

        def unsent(worst: Sent) -> None:
            if worst is Sent.UNROUTABLE:
                self._orphans.add(owner)
                if told.delivery is not None:
                    self._bus.inbox.put("returns", told.delivery)

        step.undo = unsent
        return step

    # -- who is there

    async def _hear(self, news: News) -> None:
        names = self._desk.names
        for agent_id in sorted(news.new_agents):
            await self._bus.declare_queue(names.agent(agent_id))
        for capability in sorted(news.new_capabilities):
            await self._bus.declare_queue(names.lane(capability))
        for router_id in sorted(news.routers):
            await self._stand_by(router_id)
        self._take_back |= news.gone
        self._withdrawn |= news.withdrawn
        await self._bus.publish(news.questions)
        if news.probes:
            results = await self._bus.publish([message for _, message in news.probes])
            await self._hear(self.watch.probed(news.probes, results))
        if news.rows:
            await self._store.record(news.rows)

    async def _stand_by(self, router_id: str) -> None:
        """Consume another router's outcomes as the one who waits: the broker hands over when its owner is gone."""
        queue = self._desk.names.outcomes(router_id)
        await self._bus.declare_queue(queue)
        self._standing_by[queue] = router_id
        self._orphans.discard(router_id)
        await self._bus.add_subscription(queue, queue, 200)

    async def _yield_to_owners(self) -> None:
        """Where outcomes come to us and their owner lives: queue up behind it."""
        for queue in sorted(self._yield):
            if self.watch.lives(self._standing_by[queue]):
                await self._bus.want(queue, wanted=False)
                await self._bus.want(queue, wanted=True)
        self._yield.clear()

    # -- carrying out

    async def _carry_out(self, steps: list[Step]) -> None:
        await self._tell_who_joined(steps)
        carried = await carry_out(steps, self._bus, self._store)
        if carried.recorded is not None:
            self._desk.recording.away = not carried.recorded
        later = self._desk.clock.monotonic() + AGAIN_S
        self._again += [(later, delivery) for delivery in carried.again]
        for name in sorted(self._dispatcher.missing_queues):
            await self._bus.declare_queue(name)
        self._dispatcher.missing_queues.clear()

    async def _tell_who_joined(self, steps: Sequence[Step]) -> None:
        ends = {step.ended[0]: step for step in steps if step.ended is not None}
        if not ends:
            return
        stored = await self._store.waiters(list(ends))
        for task_id, step in ends.items():
            told = step.ended[1] if step.ended else b""
            offered = {(message.routing_key, message.correlation_id) for message, _ in step.offer}
            for one in (*stored.get(task_id, ()), *self._desk.hands.joined.get(task_id, ())):
                if (one.reply_to, one.correlation_id) not in offered:
                    offered.add((one.reply_to, one.correlation_id))
                    step.offer.append(self._desk.offer(task_id, one.reply_to, one.correlation_id, told))


def _sort(deliveries: Sequence[Delivery]) -> tuple[list[Delivery], list[Delivery]]:
    """Tasks on one side; dispatches and outcomes that came back on the other."""
    tasks = [delivery for delivery in deliveries if DISPATCH not in delivery.headers]
    return tasks, [delivery for delivery in deliveries if DISPATCH in delivery.headers]
