"""Routers, agents and callers around one broker in memory, one store in memory and one clock that the test moves."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from reach_worker.core.breaker import BreakerPolicy
from reach_worker.core.dead_letter import DeadLetter, dead_letter_from
from reach_worker.core.document import Document
from reach_worker.core.fleet import Fleet
from reach_worker.core.manifest import Manifest, manifest_from
from reach_worker.core.message import Delivery
from reach_worker.core.policy import RoutingPolicy
from reach_worker.core.presence import PresencePolicy
from reach_worker.core.slots import SlotPolicy
from reach_worker.core.tags import TagTable
from reach_worker.ports import Dispatched, Ended, OutcomeSeen, Row
from reach_worker.services.router.desk import Desk, RouterPolicies
from reach_worker.services.router.reception import router_on
from reach_worker.services.router.router import Router
from reach_worker.store import MemoryStore
from reach_worker.testing import MemoryBroker, MemoryBus, SteppedClock
from tests.services.scripted import Script, ScriptedAgent, manifest, succeed

CALLER = "caller"
"""The queue that answers come to."""
STEP_S = 0.5


def rules(**given: Any) -> RouterPolicies:
    """A router's policies, with a routing whose choices follow from what is declared."""
    return RouterPolicies(**{"routing": RoutingPolicy(preset="declared"), **given})


class Killed(Exception):  # noqa: N818 - not an error of anything under test
    """The router's process dies here."""


def die() -> None:
    """What a test has a moment do to kill the router that meets it."""
    raise Killed


@dataclass(repr=False)
class OnStage:
    """A router and what it stands on."""

    router: Router
    desk: Desk
    bus: MemoryBus

    async def turn(self, times: int = 1) -> None:
        for _ in range(times):
            await self.router.turn()

    @property
    def leases(self) -> int:
        return len(self.desk.fleet.leases)


@dataclass(repr=False)
class Stage:
    """Where a test plays. Policies are those of every router it brings on."""

    policies: RouterPolicies = field(default_factory=rules)
    presence: PresencePolicy = field(default_factory=lambda: PresencePolicy(newcomers_s=0))
    breaker: BreakerPolicy = field(default_factory=BreakerPolicy)
    slots: SlotPolicy = field(default_factory=SlotPolicy)
    store: MemoryStore = field(default_factory=MemoryStore)
    clock: SteppedClock = field(default_factory=SteppedClock)
    routers: list[OnStage] = field(default_factory=list)
    agents: list[ScriptedAgent] = field(default_factory=list)
    bus_of: Callable[[MemoryBroker], MemoryBus] = MemoryBus

    def __post_init__(self) -> None:
        self.broker = MemoryBroker(self.clock)
        self.names = self.broker.names
        self.broker.declare_private(CALLER)

    # -- who is on stage

    async def two_routers(self) -> tuple[OnStage, OnStage]:
        """Two routers that know of each other."""
        first = await self.router("r1")
        second = await self.router("r2")
        await self.pass_time(4)
        return first, second

    async def router(
        self, router_id: str = "r1", manifests: Sequence[Manifest] = (), *, settled: bool = True
    ) -> OnStage:
        """A router that has begun, and remembers what the store does.

        ``settled``: the time has passed in which it only listens.
        """
        bus = self.bus_of(self.broker)
        fleet = Fleet(self.breaker, self.slots)
        desk = Desk(router_id, self.names, self.clock, self.policies, fleet, TagTable({}))
        router = router_on(bus, desk, self.presence, self.store, lambda: {"away": self.store.away})
        bus.connect()
        remembered = [
            manifest_from(Document(orjson.loads(text)), tags=TagTable({}))
            for text in await self.store.manifests()
        ]
        await router.begin([*remembered, *manifests])
        on_stage = OnStage(router, desk, bus)
        self.routers.append(on_stage)
        if settled:
            await self.pass_time(2 * self.presence.heartbeat_s)
        return on_stage

    def kill(self, router: OnStage) -> None:
        """The router's process is gone; what it had in its hands is gone with it."""
        router.bus.disconnect()
        self.routers.remove(router)

    async def agent(
        self,
        agent_id: str,
        *capabilities: str,
        slots: int = 1,
        script: Script = succeed,
        instance_id: str = "1",
        **fields: Any,
    ) -> ScriptedAgent:
        """An agent that all routers know and believe to be there."""
        made = ScriptedAgent(
            self.broker, manifest(agent_id, *capabilities, slots=slots, **fields), script, instance_id
        )
        self.agents.append(made)
        await made.start()
        await self.settle()
        return made

    # -- what happens

    def publish(self, task_id: str | None, capability: str = "text.echo", **task: Any) -> None:
        """A caller publishes a task, and waits for its answer."""
        given = ("user_id", "headers", "expiration_ms")
        message: dict[str, Any] = {name: task.pop(name) for name in given if name in task}
        message.setdefault("reply_to", task.pop("reply_to", CALLER))
        message.setdefault("correlation_id", task.pop("correlation_id", task_id))
        body = {"capability": capability, "payload": task.pop("payload", {}), **task}
        self.broker.send_task(body, message_id=task_id, **message)

    async def settle(self, rounds: int = 6) -> None:
        """Let everybody do what there is to do, without any time passing."""
        for _ in range(rounds):
            for agent in self.agents:
                await agent.step()
            for router in list(self.routers):
                await self._turn(router)

    async def _turn(self, router: OnStage) -> None:
        """A turn, and if it kills the router, a new one in its place."""
        try:
            await router.turn()
        except Killed:
            self.kill(router)
            await self.router(router.desk.router_id, settled=False)

    async def pass_time(self, seconds: float, *, step: float = STEP_S) -> None:
        """Move the clock in small steps, everybody doing what there is to do at each."""
        left = seconds
        while left > 1e-9:
            self.clock.advance(min(step, left))
            left -= step
            await self.settle(rounds=3)

    async def come_to_rest(self) -> None:
        """Let all end that can: agents do what they hold, time-outs pass, until nothing is under way."""
        for _ in range(120):
            await self.pass_time(3, step=1.5)
            if self.at_rest():
                return
            for agent in self.agents:
                for work in list(agent.held):
                    await agent.end(work)

    def at_rest(self) -> bool:
        """Nothing is under way, and nobody holds anything."""
        busy = any(router.leases or router.desk.hands.held() for router in self.routers)
        return not busy and not self.unacknowledged() and set(self.ready()) <= {"caller", "dlq", "unmatched"}

    # -- what can be seen

    @property
    def r1(self) -> OnStage:
        return self.routers[0]

    def answers(self) -> list[dict[str, Any]]:
        """What callers were told, in order."""
        return [orjson.loads(delivery.body) for delivery in self.broker.messages(CALLER)]

    def answer(self, task_id: str) -> dict[str, Any]:
        """The one answer of a task."""
        (found,) = [answer for answer in self.answers() if answer["task_id"] == task_id]
        return found

    def rows(self, *kinds: type[Row]) -> list[Any]:
        """What was recorded, of some kinds."""
        return [row for row in self.store.rows if isinstance(row, kinds)]

    def ends(self, task_id: str) -> list[Ended]:
        """Every end that was recorded of a task."""
        return [row for row in self.rows(Ended) if row.task_id == task_id]

    def end(self, task_id: str) -> Ended:
        """The one end of a task."""
        (end,) = self.ends(task_id)
        return end

    def dispatches(self, task_id: str) -> list[Dispatched]:
        """Where a task was sent."""
        return [row for row in self.rows(Dispatched) if row.task_id == task_id]

    def outcomes(self, task_id: str) -> list[OutcomeSeen]:
        """What came back for a task."""
        return [row for row in self.rows(OutcomeSeen) if row.task_id == task_id]

    def letters(self) -> list[DeadLetter]:
        """The dead letters."""
        return [dead_letter_from(delivery) for delivery in self.broker.messages(self.names.dlq)]

    def letter(self) -> DeadLetter:
        """The one dead letter."""
        (found,) = self.letters()
        return found

    def lane(self, capability: str = "text.echo") -> list[Delivery]:
        """What waits in a lane."""
        name = self.names.lane(capability)
        return self.broker.messages(name) if name in self.broker.queues else []

    def ready(self) -> Mapping[str, int]:
        """Messages per queue, of queues that are not empty."""
        found = {name: len(queue.ready) for name, queue in self.broker.queues.items() if queue.ready}
        return Counter({name.removeprefix(f"{self.names.prefix}."): n for name, n in found.items()})

    def unacknowledged(self) -> int:
        """Deliveries that somebody holds."""
        return sum(bus.unacked for bus in self._buses())

    def _buses(self) -> list[MemoryBus]:
        return [on_stage.bus for on_stage in self.routers] + [agent.bus for agent in self.agents]
