"""A router and the crew, as processes that can be killed."""

import signal
from collections.abc import Sequence
from pathlib import Path

from tests.system.crew import CREW, NOTES
from tests.system.processes import Processes, Running


class CrewAtWork:
    """``store`` is the router's, ``notes`` is what the agents wrote down; ``settings`` are of all processes."""

    def __init__(self, processes: Processes, agents: Sequence[str] = tuple(CREW), **settings: str) -> None:
        self.notes = processes.folder / "notes"
        self.store = Path(processes.environment["REACH_STORE__PATH"])
        self._processes = processes
        self._settings = settings
        self.router = processes.router(**settings)
        self.agents = {agent_id: self.agent(agent_id) for agent_id in agents}

    def agent(self, agent_id: str, **more: str) -> Running:
        """One more process of an agent, which the router has heard of."""
        agent = self._processes.agent(CREW[agent_id], **{NOTES: str(self.notes)}, **self._settings, **more)
        instance = agent.wait_for(r"instance (\S+) is up")[1]
        self.router.wait_for(rf"{agent_id} instance {instance} is active")
        return agent

    def restart_router(self) -> None:
        """SIGKILL, and at once another one."""
        self.router.kill()
        self.router = self._processes.router(**self._settings)

    def restart_agent(self, agent_id: str) -> None:
        """SIGKILL, and at once another one."""
        self.agents[agent_id].kill()
        self.agents[agent_id] = self.agent(agent_id)

    def stop(self) -> list[int]:
        """SIGTERM for the agents, then for the router, which hears their last words; the exit statuses."""
        running = [agent for agent in self.agents.values() if agent.process.poll() is None]
        for agent in running:
            agent.signal(signal.SIGTERM)
        statuses = [agent.wait_end() for agent in running]
        return [*statuses, self.router.stop()]
