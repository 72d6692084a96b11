"""Who is best: named dimensions in [0, 1], weighted and added up."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from reach_worker.core.fleet import Agent, Fleet
from reach_worker.core.manifest import Capability

COST_BEST: Final = 1.0
COST_WORST: Final = 5.0
LATENCY_BEST_MS: Final = 1_000.0
LATENCY_WORST_MS: Final = 10_000.0
LOAD_LIMIT: Final = 10
NO_RECORD: Final = 0.5
"""Success of an agent without a record: "no data" and "always fails" are different claims."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """One part of a score. ``raw`` is what was measured or declared (``None`` = nothing known), ``share`` = value · weight."""

    name: str
    raw: float | None
    value: float
    weight: float
    share: float


def cost_value(cost: float) -> float:
    """(5 − c) / 4 of the declared cost, clamped to 1–5: an agent's own word is never extrapolated."""
    clamped = min(COST_WORST, max(COST_BEST, cost))
    return (COST_WORST - clamped) / (COST_WORST - COST_BEST)


def latency_value(latency_ms: float) -> float:
    """1 at a second or less, 0 at ten or more, straight in between."""
    clamped = min(LATENCY_WORST_MS, max(LATENCY_BEST_MS, latency_ms))
    return (LATENCY_WORST_MS - clamped) / (LATENCY_WORST_MS - LATENCY_BEST_MS)


def success_value(rate: float | None) -> float:
    """The rate itself, 0.5 where nothing is known."""
    return NO_RECORD if rate is None else min(1.0, max(0.0, rate))


def load_value(under_way: int, slots: int) -> float:
    """1 idle, 0 when as much is under way as the agent has slots (10 where it tells none)."""
    limit = slots if slots > 0 else LOAD_LIMIT
    return 1.0 - min(1.0, max(0, under_way) / limit)


def dimensions(
    agent: Agent, capability: Capability, fleet: Fleet, weights: Mapping[str, float]
) -> tuple[Dimension, ...]:
    """The dimensions that count, in the order of the weights."""
    found = []
    for name, weight in weights.items():
        raw, value = _measure(name, agent, capability, fleet)
        found.append(Dimension(name, raw, value, weight, value * weight))
    return tuple(found)


def _measure(name: str, agent: Agent, capability: Capability, fleet: Fleet) -> tuple[float | None, float]:
    match name:
        case "cost":
            return capability.cost, cost_value(capability.cost)
        case "latency":
            return capability.latency_ms, latency_value(capability.latency_ms)
        case "success":
            track = fleet.record.of(agent.agent_id, capability.id)
            rate = None if track is None else track.success()
            return rate, success_value(rate)
        case "load":
            held = fleet.leases.held(agent.agent_id)
            return float(held), load_value(held, agent.roster.slots())
        case _:
            raise ValueError(f"no dimension is called {name!r}")
