"""Who consumes: the queues of agents that say nothing of themselves are looked into now and then."""

import logging
from typing import Final

from reach_worker.core.fleet import Agent, Fleet
from reach_worker.core.foreign import BY_CONSUMERS, beat_of, is_foreign
from reach_worker.core.names import Names
from reach_worker.core.presence import THERE, Heartbeat, PresencePolicy
from reach_worker.errors import OutsideWorld
from reach_worker.ports import Bus, Clock

log = logging.getLogger(__name__)

LOOKS_A_SECOND: Final = 20
"""More are looked at only where there are so many agents that it would take longer than a heartbeat period."""


class Consumers:
    """Looks into each such queue once a heartbeat period, a few queues at a time."""

    def __init__(self, fleet: Fleet, policy: PresencePolicy, names: Names, clock: Clock, bus: Bus) -> None:
        self._fleet = fleet
        self._policy = policy
        self._names = names
        self._clock = clock
        self._bus = bus
        self._looked: dict[str, float] = {}

    async def look(self, seconds: float) -> list[Heartbeat]:
        """What those whose queue has a consumer would say. ``seconds``: so often it is called. Never raises."""
        now = self._clock.monotonic()
        silent = [agent for agent in self._fleet.agents.values() if _says_nothing(agent)]
        due = [agent for agent in silent if self._due(agent, now)]
        due.sort(key=lambda agent: self._looked.get(agent.agent_id, float("-inf")))
        at_once = max(LOOKS_A_SECOND * seconds, len(silent) * seconds / self._policy.heartbeat_s)
        beats = []
        try:
            for agent in due[: 1 + int(at_once)]:
                self._looked[agent.agent_id] = now
                if await self._consumed(agent):
                    beats.append(beat_of(agent.manifest))
        except OutsideWorld as error:
            log.debug("nobody can tell who consumes: %s", error)
        return beats

    def _due(self, agent: Agent, now: float) -> bool:
        return now - self._looked.get(agent.agent_id, float("-inf")) >= self._policy.heartbeat_s

    async def _consumed(self, agent: Agent) -> bool:
        queue = self._names.agent(agent.agent_id)
        depth = await self._bus.depth(queue)
        if depth is None:
            await self._bus.declare_queue(queue)
        return depth is not None and depth[1] > 0


def _says_nothing(agent: Agent) -> bool:
    """And none of its instances speaks for itself all the same."""
    instances = agent.roster.instances.values()
    return is_foreign(agent.manifest) and not any(
        one.instance_id != BY_CONSUMERS and one.state in THERE for one in instances
    )
