"""The router's turn: hear who is there, settle what ended, admit what arrived, bind what can be bound, carry it all out.

Everything that has arrived is handled together: one burst of messages with pipelined confirms, one
transaction, one batch of acknowledgements. One task runs the turns, so nothing here needs a lock. What a turn has
decided goes on a conveyor, and where nothing but new tasks and ordinary outcomes has come (:mod:`calm`), the next
turn begins at once; any other first waits until all that was decided is sent.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final

from reach_worker.core.admission import CALL
from reach_worker.core.cancel import CANCEL_TASK
from reach_worker.core.dispatch import DISPATCH, OUTCOME
from reach_worker.core.envelope import GROUP
from reach_worker.core.fresh_files import Changed
from reach_worker.core.group import ROUND
from reach_worker.core.hearsay import HEARSAY
from reach_worker.core.lookup import FETCH
from reach_worker.core.manifest import Manifest
from reach_worker.core.message import Delivery
from reach_worker.core.presence import PresencePolicy
from reach_worker.core.recovery import MICROSECONDS
from reach_worker.core.slots import Lease
from reach_worker.core.status import QUESTION, Health
from reach_worker.ports import ConsumingBus, Store
from reach_worker.services.consumers import Consumers
from reach_worker.services.effects import Step
from reach_worker.services.fleet_watch import FleetWatch
from reach_worker.services.news import News
from reach_worker.services.router.admit import Admission
from reach_worker.services.router.bind import Binder
from reach_worker.services.router.calm import only_ordinary
from reach_worker.services.router.cancels import Cancels
from reach_worker.services.router.desk import Desk
from reach_worker.services.router.dispatcher import Dispatcher
from reach_worker.services.router.foreign import Foreign
from reach_worker.services.router.group_begin import GroupBegin
from reach_worker.services.router.groups import Groups
from reach_worker.services.router.hands import InFlight
from reach_worker.services.router.judge import AgentJudge
from reach_worker.services.router.lanes import Lanes
from reach_worker.services.router.led import Led
from reach_worker.services.router.lookups import Lookups
from reach_worker.services.router.outgoing import Outgoing
from reach_worker.services.router.reread import reread
from reach_worker.services.router.settle import Settlement
from reach_worker.services.router.sources import Sources
from reach_worker.services.router.standby import Standby
from reach_worker.services.router.status import Status
from reach_worker.services.router.take_back import TakeBack

log = logging.getLogger(__name__)

TICK_S: Final = 0.5
DEAF_S: Final = 5.0
"""Turns that are so far apart were held up (by a memory alarm, a machine that slept): nothing was heard meanwhile."""
WAITING_S: Final = 0.1
SHORTEST_S: Final = 0.01
"""How long a turn is waited for: the tick, while tasks wait in the window, and at the least."""


class Router:
    """Admit, bind, settle. ``health``: how the store is, for whoever asks for the router's status."""

    def __init__(
        self,
        desk: Desk,
        presence: PresencePolicy,
        bus: ConsumingBus,
        store: Store,
        health: Callable[[], Health] = dict,
    ) -> None:
        self._desk = desk
        self._bus = bus
        self._store = store
        self._dispatcher = Dispatcher(desk)
        self._lanes = Lanes(desk, self._dispatcher)
        self._cancels = Cancels(desk, store)
        led = Led()
        self._groups = Groups(desk, store, self._cancels, led)
        self._binder = Binder(desk, self._dispatcher, self._lanes, GroupBegin(desk, led))
        self.watch = FleetWatch(desk.fleet, presence, desk.names, desk.clock, desk.tags, desk.router_id)
        self.watch.ghost_s = desk.policies.ghost_s
        desk.lives, desk.alone = self.watch.may_live, self.watch.alone
        self._admission = Admission(desk, self._binder, self._dispatcher, store)
        self._judge = AgentJudge(desk, self._cancels.not_wanted)
        self._settlement = Settlement(desk, self._binder, self._dispatcher, self._judge, store, self._groups)
        self._standby = Standby(desk, bus, self.watch)
        self._sources = Sources(desk, bus, self.watch, self._admission, self._lanes, self._standby)
        self.watch.unready = self._sources.unready
        self._status = Status(desk, self.watch, self._lanes, self._sources, health)
        self._lookups = Lookups(desk, store)
        self._take_back = TakeBack(desk, bus, self._admission, self._settlement, self._standby, presence)
        self._consumers = Consumers(desk.fleet, presence, desk.names, desk.clock, bus)
        self._foreign = Foreign(desk, bus, self._settlement, store)
        self._outgoing = Outgoing(desk, bus, store, self._dispatcher)
        self._ticked = float("-inf")
        self._fresh: list[Changed] = []
        self.stop_asked = asyncio.Event()

    # -- life

    async def begin(self, manifests: Sequence[Manifest]) -> None:
        """Remember what an earlier process of this router knew: statistics, and dispatches that are still out."""
        desk = self._desk
        desk.fleet.record = await self._store.track_record()
        await self._hear(self.watch.remember(manifests))
        now, timeouts = desk.clock.monotonic(), desk.policies.timeouts
        for known in await self._store.open_dispatches(desk.router_id):
            agent = desk.fleet.agents.get(known.agent_id)
            capability = None if agent is None else agent.manifest.capability(known.capability)
            declared_ms = None if capability is None else capability.timeout_ms
            longest_s = max(timeouts.attempt_ms, declared_ms or 0) / 1000
            lease = Lease(
                dispatch_id=known.dispatch_id,
                agent_id=known.agent_id,
                task_id=known.task_id,
                since=now,
                backstop_at=now + timeouts.pickup_s + longest_s + timeouts.backstop_s,
                size=0,
                probe=False,
            )
            desk.fleet.leases.add(lease)
            desk.hands.send(InFlight.recovered(known))

    async def run(self) -> None:
        """Turn until asked to stop, then drain: take no more, hand back what waits, wait for what is out."""
        async with self.flowing:
            while not self.stop_asked.is_set():
                await self._wait()
                await self.advance()
        await self.drain()

    @property
    def flowing(self) -> AbstractAsyncContextManager[None]:
        """Within this context turns may :meth:`advance`; at its end all that they decided is carried out."""
        return self._outgoing.flowing()

    def take_files(self, changed: Changed) -> None:
        """What was read again from the files; the next turn, which this wakes, takes it."""
        self._fresh.append(changed)
        self._bus.inbox.arrived.set()

    async def turn(self) -> None:
        """One turn over everything that has arrived, with all that follows from it."""
        await self._outgoing.carry_out(await self._decided(self._inputs))
        await self._tell()

    async def advance(self) -> None:
        """One turn, and what follows from it is sent off; within :attr:`flowing` only."""
        await self._outgoing.room()
        if self._calm():
            steps = await self._decided(self._ordinary)
        else:
            await self._outgoing.all_sent()
            steps = await self._decided(self._inputs)
        await self._outgoing.send_off(steps)
        await self._tell()

    async def _decided(self, inputs: Callable[[], Awaitable[list[Step]]]) -> list[Step]:
        """What follows from what came in, and from the time that has passed."""
        self._desk.hands.begin_turn()
        self._groups.begin_turn()
        self._desk.session = self.watch.sessions
        clock = self._desk.clock
        self._desk.fleet.utc_ahead = clock.utc_us() / MICROSECONDS - clock.monotonic()
        self._sources.keep(self._outgoing.taken_again())
        await self._admission.begin_turn()
        steps = [*await inputs(), *await self._admission.besides()]
        if not self._binder.closed:
            overdue = self._binder.overdue()
            known = await self._store.known_tasks(overdue) if overdue and not self._desk.alone() else {}
            steps += self._binder.expire(overdue, known)
            steps += self._binder.bind()
            steps += self._lanes.spill()
        return [*self._judge.tell(), *steps, *self._lanes.send_on()]

    async def _tell(self) -> None:
        """What is sent on a best effort: to those who asked for something, and to agents that are to stop."""
        told = [
            *self._status.answers(),
            *self._cancels.messages(),
            *self._groups.messages(),
            *await self._lookups.answers(),
        ]
        if told:
            await self._bus.publish(told)
        if self._lookups.left:
            self._bus.inbox.arrived.set()

    async def drain(self) -> None:
        """Stop taking; hand back what waits; wait for outcomes until the grace period ends."""
        self._binder.closed = self._sources.closed = True
        await self._sources.take(wanted=False)
        await self.turn()
        await self._outgoing.carry_out(self._lanes.hand_back())
        await self._bus.publish([self.watch.farewell()])
        deadline = self._desk.clock.monotonic() + self._desk.policies.grace_s
        while self._desk.hands.held() and self._desk.clock.monotonic() < deadline:
            await self._wait()
            await self.turn()
            await self._outgoing.carry_out(self._lanes.hand_back())
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
        longest = WAITING_S if waits else self._sources.bucket.seconds_to_next(now) or TICK_S
        by_rate = self._desk.fleet.next_by_rate(now) if waits or any(self._lanes.depths.values()) else None
        return max(SHORTEST_S, min(TICK_S, longest, TICK_S if by_rate is None else by_rate))

    # -- what comes in

    def _calm(self) -> bool:
        """Nothing but new tasks and ordinary outcomes has come, in the same session, and it is not time for more."""
        same = self._desk.session == self.watch.sessions
        if not same or self._fresh or self._sources.others_wait(self._desk.clock.monotonic()):
            return False
        if self._desk.clock.monotonic() - self._ticked >= TICK_S or any(self._lanes.depths.values()):
            return False
        return only_ordinary(self._bus.inbox.waiting)

    async def _ordinary(self) -> list[Step]:
        """Just the outcomes that were looked at: what comes while this turn waits for something may be of any kind."""
        outcomes = self._sources.arrived("outcomes")
        await self._sources.trust_what_waits()
        steps = await self._settlement.settle(outcomes)
        return [*steps, *await self._admission.published(await self._sources.from_intake())]

    async def _inputs(self) -> list[Step]:
        await self._sources.trust_what_waits()
        self._sources.offer_again()
        cancelled = await self._announced()
        arrived = self._sources.arrived
        outcomes = [*arrived("outcomes"), *self._standby.arrived()]
        tasks, others, watches = _sort(arrived("returns"))
        watches += [delivery for delivery in outcomes if ROUND in delivery.headers]
        legs, outcomes = _legs([delivery for delivery in outcomes if ROUND not in delivery.headers])
        others, of_foreign = await self._foreign.came_back(others)
        outcomes, more = await self._foreign.read(outcomes)
        steps = [*of_foreign, *more]
        steps += await self._settlement.settle([*outcomes, *(d for d in others if OUTCOME in d.headers)])
        steps += [*cancelled, *self._cancels.besides(), *await self._groups.ended(legs)]
        steps += await self._groups.watched(watches)
        steps += await self._tick()
        steps += await self._take_back.came_back([d for d in others if OUTCOME not in d.headers])
        steps += await self._admission.returned([d for d in tasks if CALL not in d.headers])
        steps += await self._admission.called([d for d in tasks if CALL in d.headers])
        if self._binder.closed:
            return [*steps, *await self._admission.published(arrived("intake"))]
        steps += await self._sources.from_lanes()
        steps += await self._admission.published(await self._sources.from_intake())
        return steps

    async def _announced(self) -> list[Step]:
        """Who is there, what other routers have seen, questions, and requests to cancel; the ends that come of those."""
        announced = self._bus.inbox.take("router")
        fresh, self._fresh = self._fresh, []
        for changed in fresh:
            await self._hear(reread(changed, self._desk, self.watch))
        await self._hear(self.watch.take(announced))
        self._judge.hear([d for d in announced if d.routing_key.startswith(f"{HEARSAY}.")])
        self._status.hear([d for d in announced if d.routing_key == QUESTION])
        cancelled = await self._cancels.hear([d for d in announced if d.routing_key == CANCEL_TASK])
        self._lookups.hear([d for d in announced if d.routing_key == FETCH])
        await self._bus.ack(announced)
        return cancelled

    # -- time

    async def _tick(self) -> list[Step]:
        now = self._desk.clock.monotonic()
        if now - self._ticked < TICK_S:
            return []
        if now - self._ticked > DEAF_S or not self._bus.mailbox:
            self.watch.was_deaf()
        self._ticked = now
        await self._hear(self.watch.consumed(await self._consumers.look(TICK_S)))
        await self._hear(self.watch.tick())
        await self._standby.yield_to_owners()
        steps = await self._settlement.conclude(self._settlement.overdue())
        self._cancels.remind()
        # What time ends has no message behind it: without a session its answer would be lost.
        if self._bus.mailbox:
            steps += await self._groups.tick()
        self._take_back.wanted |= self._judge.moved
        self._judge.moved.clear()
        return [*steps, *await self._take_back.from_agents()]

    # -- who is there

    async def _hear(self, news: News) -> None:
        names = self._desk.names
        for agent_id in sorted(news.new_agents):
            await self._bus.declare_queue(names.agent(agent_id))
        for capability in sorted(news.new_capabilities):
            await self._bus.declare_queue(names.lane(capability))
        for router_id in sorted(news.routers):
            await self._standby.stand_by(router_id)
        self._take_back.wanted |= news.gone
        self._sources.withdrawn |= news.withdrawn
        await self._bus.publish(news.questions)
        if news.probes:
            results = await self._bus.publish([message for _, message in news.probes])
            await self._hear(self.watch.probed(news.probes, results))
        if news.rows:
            await self._store.record(news.rows)


def _sort(deliveries: Sequence[Delivery]) -> tuple[list[Delivery], list[Delivery], list[Delivery]]:
    """Tasks; dispatches and outcomes that came back; the watches of groups."""
    watches = [delivery for delivery in deliveries if ROUND in delivery.headers]
    tasks = [d for d in deliveries if DISPATCH not in d.headers and ROUND not in d.headers]
    return tasks, [delivery for delivery in deliveries if DISPATCH in delivery.headers], watches


def _legs(deliveries: Sequence[Delivery]) -> tuple[list[Delivery], list[Delivery]]:
    """Ends of legs on one side, outcomes on the other."""
    legs = [
        delivery for delivery in deliveries if GROUP in delivery.headers and DISPATCH not in delivery.headers
    ]
    return legs, [delivery for delivery in deliveries if delivery not in legs] if legs else list(deliveries)
