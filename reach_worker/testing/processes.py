"""The processes of a world: each with its own connection, and each can be killed."""

import asyncio
from dataclasses import dataclass

import orjson

from reach_worker.agent.agent import Agent
from reach_worker.agent.reception import worker_on
from reach_worker.agent.worker import Worker
from reach_worker.core.document import Document
from reach_worker.core.fleet import Fleet
from reach_worker.core.manifest import manifest_from
from reach_worker.core.tags import TagTable
from reach_worker.ports import Store
from reach_worker.services.router.desk import Desk
from reach_worker.services.router.reception import router_on
from reach_worker.services.router.router import Router
from reach_worker.settings import Settings
from reach_worker.testing.broker import MemoryBroker
from reach_worker.testing.bus import MemoryBus
from reach_worker.wiring import breaker_policy, router_policies, worker_policy


@dataclass(eq=False, slots=True)
class Process:
    """Something that runs. ``kind`` and ``name``: ``router`` and its id, or ``agent`` and its id."""

    kind: str
    name: str
    bus: MemoryBus
    stop_asked: asyncio.Event
    work: "asyncio.Task[None]"

    @property
    def names(self) -> tuple[str, ...]:
        """What it can be called by."""
        return (self.name,)

    @property
    def alive(self) -> bool:
        """It runs."""
        return not self.work.done()

    def kill(self) -> None:
        """It is gone between one moment and the next: nothing is said, its connection breaks with it."""
        self.bus.disconnect()
        self.work.cancel()

    def stop(self) -> None:
        """Ask it to stop: it drains first."""
        self.stop_asked.set()
        self.bus.inbox.arrived.set()


@dataclass(eq=False, slots=True)
class RouterProcess(Process):
    """A router, and the desk that it works at."""

    desk: Desk


@dataclass(eq=False, slots=True)
class AgentProcess(Process):
    """One instance of an agent."""

    worker: Worker
    instance_id: str

    @property
    def names(self) -> tuple[str, ...]:
        """The agent's id, and its own."""
        return (self.name, self.instance_id)


def start_router(
    router_id: str, settings: Settings, broker: MemoryBroker, store: Store, group: asyncio.TaskGroup
) -> RouterProcess:
    """A router as ``reach router`` starts one."""
    bus = MemoryBus(broker, name=f"router {router_id}")
    fleet = Fleet(breaker_policy(settings), settings.slots)
    desk = Desk(router_id, broker.names, broker.clock, router_policies(settings), fleet, TagTable({}))
    router = router_on(bus, desk, settings.presence, store, dict)
    work = group.create_task(_route(router, bus, store), name=f"router {router_id}")
    return RouterProcess("router", router_id, bus, router.stop_asked, work, desk)


async def _route(router: Router, bus: MemoryBus, store: Store) -> None:
    async with bus.running():
        remembered = [Document(orjson.loads(text)) for text in await store.manifests()]
        await router.begin([manifest_from(one, tags=TagTable({})) for one in remembered])
        await router.run()


def start_agent(
    agent: Agent, instance_id: str, settings: Settings, broker: MemoryBroker, group: asyncio.TaskGroup
) -> AgentProcess:
    """An instance of an agent as ``reach agent`` starts one."""
    agent_id = agent.manifest.id
    bus = MemoryBus(broker, name=f"agent {agent_id} {instance_id}")
    worker = worker_on(bus, agent, instance_id, broker.names, worker_policy(settings), broker.clock)
    work = group.create_task(_work(worker, bus), name=f"agent {agent_id} {instance_id}")
    return AgentProcess("agent", agent_id, bus, worker.stop_asked, work, worker, instance_id)


async def _work(worker: Worker, bus: MemoryBus) -> None:
    async with bus.running():
        await worker.run()
