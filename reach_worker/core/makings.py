"""What a score is made of, in layers: what is declared, what was measured, what is believed, and what is under way.

Each layer stands on the one before. A declaration changes hardly ever, what was measured with every outcome on the
capability, the belief with every outcome of the agent, and what is under way with every task: so who keeps the layers, as
the scoreboard does, has little to work out again.
"""

import math
from collections.abc import Mapping
from typing import Final

from reach_worker.core.fleet import PHASES, Load, Offer
from reach_worker.core.policy import DimensionName, MultiplierName, RoutingPolicy
from reach_worker.core.presence import PresenceState
from reach_worker.core.scoring import (
    PLACE,
    STEP_S,
    Scene,
    Scored,
    added,
    cost_value,
    latency_value,
    load_value,
    relative_value,
    success_value,
)
from reach_worker.core.success import Belief, Track
from reach_worker.core.value import value

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

Part = tuple[tuple[float | None, ...], tuple[float, ...]]
"""Some of a score's raws, and of its values. All are there in the order of :data:`NAMES`."""


@value(frozen=True, slots=True)
class Recipe:
    """How a policy makes a score. ``weights``: the places, among the values, of what is added up, and how much it counts.

    ``factors``: the places of what multiplies among trust, low_success and rejections.
    """

    table: Mapping[DimensionName, float]
    multipliers: tuple[MultiplierName, ...]
    weights: tuple[tuple[int, float], ...]
    factors: tuple[int, ...]
    explores: bool

    @classmethod
    def of(cls, policy: RoutingPolicy) -> "Recipe":
        """The policy's."""
        return cls(
            policy.weight_table,
            policy.multiplier_names,
            tuple((PLACE[name], weight) for name, weight in policy.weight_table.items()),
            tuple(PLACE[name] - PLACE["trust"] for name in policy.multiplier_names),
            policy.exploration > 0.0,
        )


@value(frozen=True, slots=True)
class Declared:
    """Base, cost and latency; whether the agent is near by its own word; its bonus. ``service_s``: what a task takes."""

    part: Part
    near: bool
    bonus: float
    service_s: float


@value(frozen=True, slots=True)
class Measured:
    """All but load, speed and trust: the parts before, between and behind them."""

    first: Part
    middle: Part
    last: Part
    bonus: float
    service_s: float


@value(frozen=True, slots=True)
class Known:
    """All but load and speed: the parts before and behind them.

    ``hoped``: what its success may well be. ``factor``: the product of the multipliers; ``hoped_factor``: with that.
    """

    first: Part
    last: Part
    bonus: float
    service_s: float
    hoped: float
    factor: float
    hoped_factor: float


def declared(offer: Offer, policy: RoutingPolicy) -> Declared:
    """What the agent says of itself, as the policy takes it."""
    capability, manifest = offer.capability, offer.agent.manifest
    cost, latency_ms = capability.declared_cost, capability.declared_latency_ms
    return Declared(
        ((None, cost, latency_ms), (1.0, cost_value(cost), latency_value(latency_ms))),
        (policy.region is not None and manifest.region == policy.region)
        or (policy.team is not None and manifest.team == policy.team),
        policy.score_bonus.get(manifest.id, 0.0),
        capability.latency_ms / 1000,
    )


def utc_of(offer: Offer, step: int) -> float:
    """When that step of the offer began, and so the time for which its record is read."""
    return (step + offer.phase / PHASES) * STEP_S


def measured(of: Declared, offer: Offer, track: Track, utc: float, scene: Scene) -> Measured:
    """What was measured of the agent (``None`` = nothing known), and what that is worth."""
    agent, service = offer.agent, track.service
    success, recent, quality = track.slow.rate(), track.recent.rate(), track.feedback.rate()
    week, rejections = track.week.rate(), track.rejections.rate()
    pool_p50, pool_p95 = scene.pool_medians(utc)
    near = float(of.near or scene.fleet.last_in_session(scene.ask.session_id) == agent.agent_id)
    (match, matches), reach = _match(agent.agent_id, scene), _availability(offer)
    raws, values = of.part
    mean_s = service.mean()
    return Measured(
        ((*raws, success), (*values, success_value(success))),
        (
            (recent, service.p50, service.p95, quality, near, match, reach, agent.smoothed_load),
            (
                success_value(recent),
                relative_value(service.p50, pool_p50),
                relative_value(service.p95, pool_p95),
                success_value(quality),
                near,
                matches,
                reach,
                min(1.0, max(0.0, agent.smoothed_load)),
            ),
        ),
        ((week, rejections), (_low_success(week, track, utc), _rejections(rejections, track, utc))),
        of.bonus,
        of.service_s if mean_s is None else mean_s,
    )


def believed(of: Measured, belief: Belief, recipe: Recipe) -> Known:
    """With the belief in the agent's success: trust is its mean, squared."""
    (raws, values), (last_raws, last_values) = of.middle, of.last
    factors = (belief.mean * belief.mean, *last_values)
    factor = hoped_factor = math.prod([factors[at] for at in recipe.factors])
    hoped = belief.upper(OPTIMISM)
    if recipe.explores:
        hopes = (hoped * hoped, *last_values)
        hoped_factor = math.prod([hopes[at] for at in recipe.factors])
    return Known(
        of.first,
        ((*raws, belief.mean, *last_raws), (*values, *factors)),
        of.bonus,
        of.service_s,
        hoped,
        factor,
        hoped_factor,
    )


def loaded(of: Known, load: Load, recipe: Recipe) -> Scored:
    """The score at that load: how much is under way at the agent, and its slots.

    Its speed follows from the seconds until it would have answered: service time of a success · (1 + under way / slots).
    """
    held, slots = load
    seconds = of.service_s * (1.0 + held / (slots or 1))
    (raws, values), (last_raws, last_values) = of.first, of.last
    values = (*values, load_value(held, slots), math.exp(-seconds / PATIENCE_S), *last_values)
    share = added([values[at] * weight for at, weight in recipe.weights], of.bonus)
    return Scored(
        recipe.table,
        recipe.multipliers,
        (*raws, float(held), seconds, *last_raws),
        values,
        of.hoped,
        of.bonus,
        share * of.factor,
        share * of.hoped_factor,
    )


def _match(agent_id: str, scene: Scene) -> tuple[float | None, float]:
    """Similarity from the semantic level; a task that names its capability matches fully."""
    found = scene.ask.match
    if found is None:
        return None, 1.0
    similarity = found.get(agent_id, 0.0)
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
