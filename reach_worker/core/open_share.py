"""How many breakers of one capability may be open, and what all of them open means.

At most ``max_open_share`` of a capability's agents, and always one, may be open **by rate**, counted after opening: if it
is the tasks, or something that all agents need, then taking all of them out helps nobody. An agent that fails again and
again without a success (a streak) is taken out however many are. So all may be open: then tasks wait, without spending an
attempt, for the first of them that asks for its probe.
"""

import math
from collections.abc import Sequence
from typing import Final

from reach_worker.core.breaker import Admits
from reach_worker.core.fleet import Agent, Fleet
from reach_worker.core.presence import THERE

MANY: Final = 2
"""Of one agent alone its own gate says it all."""


def room_by_rate(fleet: Fleet, agent: Agent) -> bool:
    """The agent's breaker may open by rate, for all that each of its capabilities' agents allow.

    Counted over the agents that are there: one that is away takes no work from the others, open or not.
    """
    return all(_room(fleet, agent, capability.id) for capability in agent.manifest.capabilities)


def _room(fleet: Fleet, agent: Agent, capability: str) -> bool:
    others = [
        offer.agent
        for offer in fleet.capable(capability)
        if offer.agent is not agent and offer.agent.roster.state() in THERE
    ]
    most = max(1, int(fleet.breaker_policy.max_open_share * (1 + len(others))))
    return 1 + sum(other.breaker.by_rate for other in others) <= most


def all_open(fleet: Fleet, agent_ids: Sequence[str], now: float) -> str:
    """Who is asked first where the breakers of all these agents refuse, in words; nothing where one of them admits."""
    waits: list[tuple[float, str]] = []
    for agent_id in agent_ids:
        answer = fleet.agents[agent_id].breaker.admits(now)
        if isinstance(answer, Admits):
            return ""
        waits.append((answer.seconds, agent_id))
    if len(waits) < MANY:
        return ""
    seconds, agent_id = min(waits)
    return f"all {len(waits)} breakers are open, {agent_id} is asked first, in {math.ceil(seconds)} s"
