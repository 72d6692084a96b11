"""Who is best: named dimensions in [0, 1], weighted, added up and multiplied."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final, NamedTuple, get_args

from reach_worker.core.fleet import PHASES, Fleet, Load, Medians, Offer
from reach_worker.core.gates import Ask
from reach_worker.core.policy import DIMENSIONS, DimensionName, MultiplierName, RoutingPolicy

TIE: Final = 9
"""Scores that agree to so many decimals are equal."""

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


class Factor(NamedTuple):
    """One multiplier of a score. ``raw``: what it was made from (``None`` = nothing known)."""

    name: str
    raw: float | None
    value: float


STEP_S: Final = 4.0
"""Records fade as time passes, and that is looked at in steps: within one, what did not change otherwise is not worked
out again. In that time the count that fades the fastest loses less than a twentieth. Each agent's step begins at another
time, so that this work is spread over all decisions."""


@dataclass(slots=True)
class Scene:
    """What is looked at for one decision; what all candidates share is worked out once.

    UTC, because records outlive a process and its monotonic clock: the step, and which of its phases has begun last.
    """

    ask: Ask
    fleet: Fleet
    offers: tuple[Offer, ...]
    now: float
    policy: RoutingPolicy
    step: int = field(init=False)
    begun: int = field(init=False)

    def __post_init__(self) -> None:
        utc = self.now + self.fleet.utc_ahead
        self.step = math.floor(utc / STEP_S)
        self.begun = int((utc / STEP_S - self.step) * PHASES)

    def pool_medians(self, utc: float) -> Medians:
        """Medians over the candidates of the two quantiles of their service times, as they were in that step."""
        kept = self.fleet.medians.setdefault(self.ask.capability, {})
        step = utc // STEP_S
        if (found := kept.get(step)) is None:
            for other in [other for other in kept if abs(other - step) > 1.0]:
                del kept[other]
            tracks = self.fleet.record.tracks
            found_tracks = [tracks.get(offer.key) for offer in self.offers]
            times = [track.service for track in found_tracks if track is not None]
            found = kept[step] = (
                _median([one.p50 for one in times]),
                _median([one.p95 for one in times]),
            )
        return found


def _median(quantiles: Iterable[float | None]) -> float | None:
    known = [seconds for seconds in quantiles if seconds is not None]
    return median(known) if known else None


@dataclass(slots=True)
class Scored:
    """A score and everything it is made of. ``optimistic``: the score if success were as good as may well be.

    ``raws`` and ``values`` are of every dimension and multiplier in the order of :data:`NAMES`, also of those that do not
    count, and ``hoped`` is the belief in success :data:`OPTIMISM` deviations up: with them another policy can be asked
    later what it would have done. ``fragment``: what the reach log keeps of all that, once it was asked for, see record.
    """

    weights: Mapping[DimensionName, float]
    multipliers: tuple[MultiplierName, ...]
    raws: tuple[float | None, ...]
    values: tuple[float, ...]
    hoped: float
    bonus: float
    score: float
    optimistic: float
    fragment: bytes = field(default=b"", compare=False, repr=False)

    @property
    def dimensions(self) -> tuple[Dimension, ...]:
        """The parts of the sum."""
        return tuple(
            Dimension(
                name,
                self.raws[PLACE[name]],
                self.values[PLACE[name]],
                weight,
                self.values[PLACE[name]] * weight,
            )
            for name, weight in self.weights.items()
        )

    @property
    def factors(self) -> tuple[Factor, ...]:
        """The multipliers."""
        return tuple(
            Factor(name, self.raws[PLACE[name]], self.values[PLACE[name]]) for name in self.multipliers
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as the reach log tells it; what is stored of every score is more compact, see record."""
        return {
            "dimensions": [part._asdict() for part in self.dimensions],
            "factors": [factor._asdict() for factor in self.factors],
            "bonus": self.bonus,
            "optimistic": self.optimistic,
            "facts": self.facts,
        }

    def raw_of(self, names: Iterable[str]) -> list[float | None]:
        """What these dimensions and multipliers were made from."""
        return [self.raws[PLACE[name]] for name in names]

    @property
    def facts(self) -> dict[str, float]:
        """Every value by its name, and ``hoped``."""
        return {**dict(zip(NAMES, self.values, strict=True)), "hoped": self.hoped}


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


def relative_value(seconds: float | None, pool: float | None) -> float:
    """A time x beside the pool's median m as m / (m + x): 0.5 at the median or where nothing is known, 1 at no time."""
    if seconds is None or pool is None or seconds + pool <= 0:
        return NO_RECORD
    return pool / (pool + seconds)


def weigh(shares: Iterable[float], bonus: float, factors: Iterable[float]) -> float:
    """A score in [0, 1]: min(1, Σ share + bonus), not below 0, · Π factors.

    The sum is rounded once: 0.35 + 0.35 + 0.20 + 0.10 is 1, and a better part never lowers it.
    """
    return added(shares, bonus) * math.prod(factors)


def added(shares: Iterable[float], bonus: float) -> float:
    """The sum that :func:`weigh` multiplies."""
    return min(1.0, max(0.0, math.fsum([*shares, bonus])))


def place_of(score: float) -> float:
    """What a score is ranked by, the lowest first."""
    return -round(score, TIE)


def loads_of(offers: Sequence[Offer], fleet: Fleet) -> list[Load]:
    """How much is under way at each agent, and the slots of its active instances."""
    taken = fleet.leases.by_agent
    return [
        (len(taken[agent.agent_id]) if agent.agent_id in taken else 0, agent.roster.slots())
        for agent in [offer.agent for offer in offers]
    ]


NOT_YET: Final = Scored({}, (), (), (), 0.0, 0.0, 0.0, 0.0)
"""Stands where no score was worked out yet."""

NAMES: Final[tuple[str, ...]] = (*DIMENSIONS, *get_args(MultiplierName))
"""Every dimension and multiplier, in the order in which they are measured."""
PLACE: Final[Mapping[str, int]] = {name: place for place, name in enumerate(NAMES)}
