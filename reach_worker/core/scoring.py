"""Who is best: named dimensions in [0, 1], weighted, added up and multiplied."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final, NamedTuple

from reach_worker.core.fleet import Fleet, Offer
from reach_worker.core.gates import Ask
from reach_worker.core.policy import RoutingPolicy
from reach_worker.core.presence import PresenceState
from reach_worker.core.success import Belief, Track

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


@dataclass(slots=True)
class Scene:
    """What is looked at for one decision; what all candidates share is worked out once.

    ``utc``: UTC seconds, because records outlive a process and its monotonic clock.
    """

    ask: Ask
    fleet: Fleet
    offers: Sequence[Offer]
    now: float
    policy: RoutingPolicy
    utc: float = field(init=False)
    medians: dict[float, float | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.utc = self.now + self.fleet.utc_ahead

    def seen(self, offer: Offer) -> "Seen":
        """One candidate of this scene."""
        agent_id, fleet = offer.agent.agent_id, self.fleet
        return Seen(
            offer,
            self.track(offer),
            fleet.leases.held(agent_id),
            offer.agent.roster.slots(),
            fleet.record.belief(agent_id, offer.capability.id, self.utc),
        )

    def track(self, offer: Offer) -> Track:
        """The agent's record on the capability, an empty one where there is none."""
        return self.fleet.record.of(offer.agent.agent_id, offer.capability.id) or _EMPTY

    def pool_median(self, quantile: float) -> float | None:
        """Median over the candidates of this quantile of their service times, ``None`` where nobody has any."""
        if quantile not in self.medians:
            found = [self.track(offer).service.quantile(quantile) for offer in self.offers]
            known = [seconds for seconds in found if seconds is not None]
            self.medians[quantile] = median(known) if known else None
        return self.medians[quantile]


_EMPTY: Final = Track()
"""Only ever read."""


@dataclass(slots=True)
class Seen:
    """One candidate, looked up once for all that is measured of it. ``held`` of its ``slots`` are taken."""

    offer: Offer
    track: Track
    held: int
    slots: int
    belief: Belief


@dataclass(frozen=True, slots=True)
class Scored:
    """A score and everything it is made of. ``optimistic``: the score if success were as good as may well be.

    ``facts``: the value of every dimension and multiplier, also of those that do not count, and ``hoped``, the belief in
    success :data:`OPTIMISM` deviations up: with them another policy can be asked later what it would have done.
    """

    dimensions: tuple[Dimension, ...]
    factors: tuple[Factor, ...]
    bonus: float
    score: float
    optimistic: float
    facts: Mapping[str, float]


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


def wait_s(seen: Seen) -> float:
    """Seconds until the agent would have answered: service time of its successes · (1 + under way / slots)."""
    service = seen.track.service.mean()
    if service is None:
        service = seen.offer.capability.latency_ms / 1000
    return service * (1.0 + seen.held / (seen.slots or 1))


def weigh(shares: Iterable[float], bonus: float, factors: Iterable[float]) -> float:
    """A score in [0, 1]: min(1, Σ share + bonus), not below 0, · Π factors.

    The sum is rounded once: 0.35 + 0.35 + 0.20 + 0.10 is 1, and a better part never lowers it.
    """
    return min(1.0, max(0.0, math.fsum([*shares, bonus]))) * math.prod(factors)


def score(offer: Offer, scene: Scene) -> Scored:
    """The score of one agent whose gates are all open: its dimensions and multipliers as :func:`weigh` has them."""
    seen, policy = scene.seen(offer), scene.policy
    found = {name: measure(seen, scene) for name, measure in _MEASURES.items()}
    parts = tuple(
        [
            Dimension(name, *found[name], weight, found[name][1] * weight)
            for name, weight in policy.weight_table.items()
        ]
    )
    factors = tuple([Factor(name, *found[name]) for name in policy.multiplier_names])
    bonus = policy.score_bonus.get(offer.agent.agent_id, 0.0)
    shares = [part.share for part in parts]
    value = weigh(shares, bonus, [factor.value for factor in factors])
    facts = {name: measured for name, (_, measured) in found.items()}
    facts["hoped"] = hoped = seen.belief.upper(OPTIMISM)
    optimistic = value
    if policy.exploration > 0.0:
        optimistic = weigh(
            shares, bonus, [hoped * hoped if name == "trust" else one for name, _, one in factors]
        )
    return Scored(parts, factors, bonus, value, optimistic, facts)


_Measured = tuple[float | None, float]
_Measure = Callable[[Seen, Scene], _Measured]


def _base(_seen: Seen, _scene: Scene) -> _Measured:
    return None, 1.0


def _cost(seen: Seen, _scene: Scene) -> _Measured:
    cost = seen.offer.capability.declared_cost
    return cost, cost_value(cost)


def _latency(seen: Seen, _scene: Scene) -> _Measured:
    latency_ms = seen.offer.capability.declared_latency_ms
    return latency_ms, latency_value(latency_ms)


def _success(seen: Seen, _scene: Scene) -> _Measured:
    rate = seen.track.success()
    return rate, success_value(rate)


def _recent_success(seen: Seen, _scene: Scene) -> _Measured:
    rate = seen.track.recent.rate()
    return rate, success_value(rate)


def _load(seen: Seen, _scene: Scene) -> _Measured:
    return float(seen.held), load_value(seen.held, seen.slots)


def _smoothed_load(seen: Seen, _scene: Scene) -> _Measured:
    load = seen.offer.agent.smoothed_load
    return load, min(1.0, max(0.0, load))


def _speed(seen: Seen, _scene: Scene) -> _Measured:
    seconds = wait_s(seen)
    return seconds, math.exp(-seconds / PATIENCE_S)


def _p50(seen: Seen, scene: Scene) -> _Measured:
    return _relative(seen, scene, 0.5)


def _p95(seen: Seen, scene: Scene) -> _Measured:
    return _relative(seen, scene, 0.95)


def _relative(seen: Seen, scene: Scene, quantile: float) -> _Measured:
    seconds = seen.track.service.quantile(quantile)
    return seconds, relative_value(seconds, scene.pool_median(quantile))


def _quality(seen: Seen, _scene: Scene) -> _Measured:
    rate = seen.track.feedback.rate()
    return rate, success_value(rate)


def _affinity(seen: Seen, scene: Scene) -> _Measured:
    agent, policy = seen.offer.agent, scene.policy
    near = (
        (policy.region is not None and agent.manifest.region == policy.region)
        or (policy.team is not None and agent.manifest.team == policy.team)
        or scene.fleet.last_in_session(scene.ask.session_id) == agent.agent_id
    )
    return float(near), float(near)


def _match(seen: Seen, scene: Scene) -> _Measured:
    """Similarity from the semantic level; a task that names its capability matches fully."""
    found = scene.ask.match
    if found is None:
        return None, 1.0
    similarity = found.get(seen.offer.agent.agent_id, 0.0)
    return similarity, min(1.0, max(0.0, similarity))


def _reach(seen: Seen, _scene: Scene) -> _Measured:
    """Base (1.0: it has all that is required) · availability (share of the agent's known instances that are active)."""
    instances = seen.offer.agent.roster.instances.values()
    active = sum([instance.state is PresenceState.ACTIVE for instance in instances])
    availability = active / len(instances) if instances else 0.0
    return availability, availability


def _trust(seen: Seen, _scene: Scene) -> _Measured:
    """The square of the belief in success."""
    mean = seen.belief.mean
    return mean, mean * mean


def _low_success(seen: Seen, scene: Scene) -> _Measured:
    rate = seen.track.week.rate()
    floor, factor = LOW_SUCCESS
    low = rate is not None and rate < floor and seen.track.week.effective(scene.utc) >= ENOUGH
    return rate, factor if low else 1.0


def _rejections(seen: Seen, scene: Scene) -> _Measured:
    rate = seen.track.rejections.rate()
    ceiling, factor = MANY_REJECTIONS
    many = rate is not None and rate > ceiling and seen.track.rejections.effective(scene.utc) >= ENOUGH
    return rate, factor if many else 1.0


_MEASURES: Final[Mapping[str, _Measure]] = {
    "base": _base,
    "cost": _cost,
    "latency": _latency,
    "success": _success,
    "load": _load,
    "speed": _speed,
    "recent_success": _recent_success,
    "p50": _p50,
    "p95": _p95,
    "quality": _quality,
    "affinity": _affinity,
    "match": _match,
    "reach": _reach,
    "smoothed_load": _smoothed_load,
    "trust": _trust,
    "low_success": _low_success,
    "rejections": _rejections,
}
