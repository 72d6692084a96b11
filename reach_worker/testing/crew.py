"""Who is there in a world: its routers and the instances of its agents, each findable by its name."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from reach_worker.agent.agent import Agent
from reach_worker.core.document import nearest
from reach_worker.core.fleet import Agent as Known
from reach_worker.core.presence import PresenceState
from reach_worker.errors import BadInput, Problem
from reach_worker.ports import Store
from reach_worker.settings import Settings
from reach_worker.testing.broker import MemoryBroker
from reach_worker.testing.faults import Client
from reach_worker.testing.processes import AgentProcess, Process, RouterProcess, start_agent, start_router


class Crew:
    """Starts processes in a task group, and finds them again."""

    def __init__(
        self, settings: Settings, broker: MemoryBroker, store: Store, group: asyncio.TaskGroup
    ) -> None:
        self._settings = settings
        self._broker = broker
        self._store = store
        self._group = group
        self.routers: dict[str, RouterProcess] = {}
        self.instances: list[AgentProcess] = []

    def start_router(self, router_id: str) -> None:
        """Start a router; one with this id must not run."""
        if router_id in self.routers and self.routers[router_id].alive:
            raise BadInput(f"router {router_id!r} runs already")
        self.routers[router_id] = start_router(
            router_id, self._settings, self._broker, self._store, self._group
        )

    def start_agent(self, agent: Agent) -> AgentProcess:
        """Start one more instance."""
        instance_id = f"{agent.manifest.id}-{len(self.instances) + 1}"
        process = start_agent(agent, instance_id, self._settings, self._broker, self._group)
        self.instances.append(process)
        return process

    def everybody(self) -> list[Process]:
        """All that run: agents, then routers."""
        return [process for process in (*self.instances, *self.routers.values()) if process.alive]

    def find(self, who: Agent | str) -> list[Process]:
        """The running processes of an agent, of an instance or of a router. Raises :class:`BadInput`."""
        name = _name(who)
        found = [process for process in self.everybody() if name in process.names]
        if not found:
            raise _unknown("running process", name, [process.name for process in self.everybody()])
        return found

    def kill_owner(self, client: Client) -> None:
        """Kill the process whose connection this is."""
        for process in self.everybody():
            if process.bus is client:
                process.kill()

    def complete(self) -> bool:
        """Every router that runs believes that every agent that runs is there."""
        running = [process for process in self.instances if process.alive]
        return all(
            self._hears(router, process)
            for router in self.routers.values()
            if router.alive
            for process in running
        )

    def router(self, router_id: str = "") -> RouterProcess:
        """A router by its id; without one the first that runs."""
        running = {router.name: router for router in self.routers.values() if router.alive}
        if not router_id and running:
            return next(iter(running.values()))
        if router_id not in self.routers:
            raise _unknown("router", router_id, self.routers)
        return self.routers[router_id]

    def known(self, agent: Agent | str, router_id: str) -> Known:
        """What a router knows of an agent."""
        agents = self.router(router_id).desk.fleet.agents
        name = _name(agent)
        if name not in agents:
            raise _unknown("agent", name, agents)
        return agents[name]

    def _hears(self, router: RouterProcess, process: AgentProcess) -> bool:
        agent = router.desk.fleet.agents.get(process.name)
        instance = None if agent is None else agent.roster.instances.get(process.instance_id)
        return instance is not None and instance.state is PresenceState.ACTIVE


def _name(who: Agent | str) -> str:
    return who if isinstance(who, str) else who.manifest.id


def _unknown(kind: str, name: str, known: Iterable[str]) -> BadInput:
    names: Sequence[Any] = sorted(set(known))
    close = nearest(name, names)
    hint = f"did you mean {close!r}?" if close else f"there are {', '.join(names) or 'none'}"
    return BadInput(Problem(f"no {kind} is called {name!r}", hint=hint))
