"""Fleets of one or two agents, for the tests of the simulation itself."""

from reach_worker.bench.fleets import SimulatedAgent, SimulatedFleet


def agent(
    agent_id: str = "a", *, success: float = 1.0, mean_s: float = 1.0, slots: int = 1, cost: float = 1.0
) -> SimulatedAgent:
    return SimulatedAgent(agent_id, success, mean_s, slots, cost, mean_s * 1000, 3)


def fleet(
    *agents: SimulatedAgent, rate_per_s: float = 1.0, seconds: float = 600.0, routers: int = 1
) -> SimulatedFleet:
    return SimulatedFleet(
        "T", "a test", agents, rate_per_s, seconds, routers=routers, news_s=5.0 * (routers > 1)
    )
