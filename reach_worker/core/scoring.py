"""Who is best: named dimensions in [0, 1], weighted, added up and multiplied."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final, NamedTuple, get_args

from reach_worker.core.fleet import PHASES, Fleet, Load, Medians, Offer
from reach_worker.core.gates import Ask
from reach_worker.core.policy import DIMENSIONS, DimensionName, MultiplierName, RoutingPolicy
from reach_worker.core.presence import PresenceState
from reach_worker.core.success import Track
from reach_worker.core.value import value

TIE: Final = 9
"""Scores that agree to so many decimals are equal."""

COST_BEST: Final = 1.0
COST_WORST: Final = 5.0
LATENCY_BEST_MS: Final = 1_000.0
LATENCY_WORST_MS: Final = 10_000.0
LOAD_LIMIT: Final = 10
NO_RECORD: Final = 0.5
"""Success of an agent without a record: "no data" and "always fails" are different claims."""
PATIENCE_S: Final = 10.0
"""The speed of an agent falls to 1/e where it would take so long."""
OPTIMISM: Final = 1.5
"""Exploration looks at the belief in success so many standard deviations above its mean."""

LOW_SUCCESS: Final = (0.90, 0.8)
"""A success rate below the first over a week multiplies the score by the second."""
MANY_REJECTIONS: Final = (0.20, 0.05)
"""A rejection rate above the first multiplies the score by the second."""
ENOUGH: Final = 5.0
"""Effective attempts before a rate multiplies anything: one bad row must not."""


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

    def step_of(self, offer: Offer) -> int:
        """The step of this offer that has begun last: those of later phases are still in the one before."""
        return self.step if offer.phase <= self.begun else self.step - 1

    def utc_of(self, offer: Offer, step: int) -> float:
        """When that step of this offer began, and so the time for which its record is read."""
        return (step + offer.phase / PHASES) * STEP_S

    def pool_medians(self, utc: float) -> Medians:
        """Medians over the candidates of the two quantiles of their service times, as they were in that step."""
        kept = self.fleet.medians.setdefault(self.ask.capability, {})
        step = utc // STEP_S
        if (found := kept.get(step)) is None:
            for other in [other for other in kept if abs(other - step) > 1.0]:
                del kept[other]
            tracks = self.fleet.record.tracks
            times = [tracks[offer.key].service for offer in self.offers if offer.key in tracks]
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
                name, self.raws[_AT[name]], self.values[_AT[name]], weight, self.values[_AT[name]] * weight
            )
            for name, weight in self.weights.items()
        )

    @property
    def factors(self) -> tuple[Factor, ...]:
        """The multipliers."""
        return tuple(Factor(name, self.raws[_AT[name]], self.values[_AT[name]]) for name in self.multipliers)

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
        return [self.raws[_AT[name]] for name in names]

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
_AT: Final[Mapping[str, int]] = {name: place for place, name in enumerate(NAMES)}


_LOAD: Final = _AT["load"]
_SPEED: Final = _AT["speed"]
"""What follows from an agent's load stands together: load, and speed after it."""
_NOT_LOOKED_AT: Final = (0.0, 0.0)


@value(frozen=True, slots=True)
class Recipe:
    """How a policy makes a score: the places, in :data:`NAMES`, of what is added up and of what multiplies."""

    policy: RoutingPolicy
    table: Mapping[DimensionName, float]
    multipliers: tuple[MultiplierName, ...]
    weights: tuple[tuple[int, float], ...]

    @classmethod
    def of(cls, policy: RoutingPolicy) -> "Recipe":
        """The policy's."""
        table = policy.weight_table
        weights = tuple((_AT[name], weight) for name, weight in table.items())
        return cls(policy, table, policy.multiplier_names, weights)


@value(frozen=True, slots=True)
class Known:
    """All that a score is made of but the load: it stays the same while tasks come and go.

    ``raws`` and ``values`` as a score has them, those before the load and those after the speed. ``service_s``: what a
    task takes. ``factor`` is the product of the multipliers, ``hoped_factor`` what it may well be.
    """

    raws: tuple[tuple[float | None, ...], tuple[float | None, ...]]
    values: tuple[tuple[float, ...], tuple[float, ...]]
    service_s: float
    hoped: float
    bonus: float
    factor: float
    hoped_factor: float


def loaded(known: Known, load: Load, recipe: Recipe) -> Scored:
    """The score at that load: how much is under way at the agent, and its slots.

    Seconds until it would have answered: service time of its successes · (1 + under way / slots).
    """
    held, slots = load
    seconds = known.service_s * (1.0 + held / (slots or 1))
    (raws, more_raws), (values, more_values) = known.raws, known.values
    values = (*values, load_value(held, slots), math.exp(-seconds / PATIENCE_S), *more_values)
    share = added([values[at] * weight for at, weight in recipe.weights], known.bonus)
    return Scored(
        recipe.table,
        recipe.multipliers,
        (*raws, float(held), seconds, *more_raws),
        values,
        known.hoped,
        known.bonus,
        share * known.factor,
        share * known.hoped_factor,
    )


def known(offer: Offer, track: Track, step: int, scene: Scene, recipe: Recipe) -> Known:
    """What is known of an agent in that step, whatever its load is."""
    utc = scene.utc_of(offer, step)
    belief = scene.fleet.record.belief(*offer.key, utc)
    raws, values = _measured(offer, track, utc, belief.mean, scene)
    service_s = track.service.mean()
    multiply = [values[_AT[name]] for name in recipe.multipliers]
    hoped = belief.upper(OPTIMISM)
    hope = multiply
    if recipe.policy.exploration > 0.0:
        hope = [
            hoped * hoped if name == "trust" else value
            for name, value in zip(recipe.multipliers, multiply, strict=True)
        ]
    return Known(
        (raws[:_LOAD], raws[_SPEED + 1 :]),
        (values[:_LOAD], values[_SPEED + 1 :]),
        offer.capability.latency_ms / 1000 if service_s is None else service_s,
        hoped,
        recipe.policy.score_bonus.get(offer.agent.agent_id, 0.0),
        math.prod(multiply),
        math.prod(hope),
    )


def _measured(
    offer: Offer, track: Track, utc: float, mean: float, scene: Scene
) -> tuple[tuple[float | None, ...], tuple[float, ...]]:
    """Of every name in :data:`NAMES` what was measured or declared (``None`` = nothing known), and its value.

    Load and speed are not looked at. ``mean``: of the belief in its success.
    """
    capability, smoothed = offer.capability, offer.agent.smoothed_load
    success, recent, quality = track.slow.rate(), track.recent.rate(), track.feedback.rate()
    p50, p95 = track.service.p50, track.service.p95
    pool_p50, pool_p95 = scene.pool_medians(utc)
    near, (match, matches), reach = _near(offer, scene), _match(offer, scene), _availability(offer)
    week, rejections = track.week.rate(), track.rejections.rate()
    raws = (
        None,
        capability.declared_cost,
        capability.declared_latency_ms,
        success,
        *_NOT_LOOKED_AT,
        recent,
        p50,
        p95,
        quality,
        near,
        match,
        reach,
        smoothed,
        mean,
        week,
        rejections,
    )
    values = (
        1.0,
        cost_value(capability.declared_cost),
        latency_value(capability.declared_latency_ms),
        success_value(success),
        *_NOT_LOOKED_AT,
        success_value(recent),
        relative_value(p50, pool_p50),
        relative_value(p95, pool_p95),
        success_value(quality),
        near,
        matches,
        reach,
        min(1.0, max(0.0, smoothed)),
        mean * mean,
        _low_success(week, track, utc),
        _rejections(rejections, track, utc),
    )
    return raws, values


def _near(offer: Offer, scene: Scene) -> float:
    agent, policy = offer.agent, scene.policy
    return float(
        (policy.region is not None and agent.manifest.region == policy.region)
        or (policy.team is not None and agent.manifest.team == policy.team)
        or scene.fleet.last_in_session(scene.ask.session_id) == agent.agent_id
    )


def _match(offer: Offer, scene: Scene) -> tuple[float | None, float]:
    """Similarity from the semantic level; a task that names its capability matches fully."""
    found = scene.ask.match
    if found is None:
        return None, 1.0
    similarity = found.get(offer.agent.agent_id, 0.0)
    return similarity, min(1.0, max(0.0, similarity))


def _availability(offer: Offer) -> float:
    """Share of the agent's known instances that are active; times the base of 1.0: it has all that is required."""
    instances = offer.agent.roster.instances.values()
    active = sum([instance.state is PresenceState.ACTIVE for instance in instances])
    return active / len(instances) if instances else 0.0


def _low_success(rate: float | None, track: Track, utc: float) -> float:
    floor, factor = LOW_SUCCESS
    low = rate is not None and rate < floor and track.week.effective(utc) >= ENOUGH
    return factor if low else 1.0


def _rejections(rate: float | None, track: Track, utc: float) -> float:
    ceiling, factor = MANY_REJECTIONS
    many = rate is not None and rate > ceiling and track.rejections.effective(utc) >= ENOUGH
    return factor if many else 1.0
