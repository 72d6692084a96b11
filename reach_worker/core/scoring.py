"""Who is best: named dimensions in [0, 1], weighted and added up."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from reach_worker.core.fleet import Fleet, Offer
from reach_worker.core.policy import DimensionName

COST_BEST: Final = 1.0
COST_WORST: Final = 5.0
LATENCY_BEST_MS: Final = 1_000.0
LATENCY_WORST_MS: Final = 10_000.0
LOAD_LIMIT: Final = 10
NO_RECORD: Final = 0.5
"""Success of an agent without a record: "no data" and "always fails" are different claims."""


class Dimension(NamedTuple):
    """One part of a score. ``raw``: as measured or declared (``None`` = nothing known). ``share`` = value · weight."""

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


def dimensions(offer: Offer, fleet: Fleet, weights: Mapping[DimensionName, float]) -> tuple[Dimension, ...]:
    """The dimensions that count, in the order of the weights."""
    found = []
    for name, weight in weights.items():
        raw, value = _MEASURES[name](offer, fleet)
        found.append(Dimension(name, raw, value, weight, value * weight))
    return tuple(found)


def score(parts: Iterable[Dimension]) -> float:
    """The sum of the shares, rounded once: 0.35 + 0.35 + 0.20 + 0.10 is 1, and a better part never lowers it."""
    return min(1.0, math.fsum([part.share for part in parts]))


_Measured = tuple[float | None, float]


def _cost(offer: Offer, _fleet: Fleet) -> _Measured:
    cost = offer.capability.declared_cost
    return cost, cost_value(cost)


def _latency(offer: Offer, _fleet: Fleet) -> _Measured:
    latency_ms = offer.capability.declared_latency_ms
    return latency_ms, latency_value(latency_ms)


def _success(offer: Offer, fleet: Fleet) -> _Measured:
    track = fleet.record.of(offer.agent.agent_id, offer.capability.id)
    rate = None if track is None else track.success()
    return rate, success_value(rate)


def _load(offer: Offer, fleet: Fleet) -> _Measured:
    held = fleet.leases.held(offer.agent.agent_id)
    return float(held), load_value(held, offer.agent.roster.slots())


_MEASURES: Final[Mapping[DimensionName, Callable[[Offer, Fleet], _Measured]]] = {
    "cost": _cost,
    "latency": _latency,
    "success": _success,
    "load": _load,
}
