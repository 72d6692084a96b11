"""Simple ways to choose that people use, to compare with. They pass the same gates as a policy of ``core``.

What they know of an agent is what the router's track record holds: the decayed success rate, the median service time of
successes; without a record 0.5, and the declared latency.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from reach_worker.bench.knowledge import Knowledge
from reach_worker.bench.router import Contender
from reach_worker.core.fleet import Offer
from reach_worker.core.gates import Ask
from reach_worker.core.policy import RoutingPolicy
from reach_worker.core.routing import plan
from reach_worker.core.scoring import success_value

LATENCIES_ALIKE_S: Final = 0.1
"""Latencies that round to the same multiple of this are a tie."""
PENDING_WEIGHT: Final = 0.1

_GATES: Final = RoutingPolicy(preset="declared")
_Pick = Callable[[Sequence[Offer], Knowledge], Offer]
_Any = TypeVar("_Any")


def behind_the_gates(pick: _Pick) -> Contender:
    """A contender that picks among the agents to which every gate is open."""

    def choose(ask: Ask, knowledge: Knowledge, now: float) -> str | None:
        decision = plan(ask, knowledge.fleet, _GATES, now)
        eligible = {candidate.agent_id for candidate in decision.candidates if candidate.eligible}
        offers = [o for o in knowledge.fleet.capable(ask.capability) if o.agent.agent_id in eligible]
        return pick(offers, knowledge).agent.agent_id if offers else None

    return choose


def at_random(offers: Sequence[Offer], knowledge: Knowledge) -> Offer:
    """Any."""
    return _one_of(offers, knowledge)


def least_busy(offers: Sequence[Offer], knowledge: Knowledge) -> Offer:
    """The one with the least under way, as far as the router knows; any of several."""
    return _lowest(offers, knowledge, lambda offer: knowledge.under_way(offer.agent.agent_id))


def lowest_latency(offers: Sequence[Offer], knowledge: Knowledge) -> Offer:
    """The fastest; any of several that are alike."""
    return _lowest(offers, knowledge, lambda offer: round(_latency_s(offer, knowledge) / LATENCIES_ALIKE_S))


def power_of_two(offers: Sequence[Offer], knowledge: Knowledge) -> Offer:
    """Two at random, the better one by success / (1 + latency × (1 + 0.1 × pending))."""
    one = _one_of(offers, knowledge)
    other = _one_of([offer for offer in offers if offer is not one] or [one], knowledge)
    return max(one, other, key=lambda offer: _ewma_like(offer, knowledge))


STAND_INS: Final[Mapping[str, Contender]] = {
    "random": behind_the_gates(at_random),
    "least_busy": behind_the_gates(least_busy),
    "lowest_latency": behind_the_gates(lowest_latency),
    "p2c": behind_the_gates(power_of_two),
}


def _ewma_like(offer: Offer, knowledge: Knowledge) -> float:
    track = knowledge.fleet.record.of(offer.agent.agent_id, offer.capability.id)
    success = success_value(track.success() if track else None)
    pending = knowledge.under_way(offer.agent.agent_id)
    return success / (1.0 + _latency_s(offer, knowledge) * (1.0 + PENDING_WEIGHT * pending))


def _latency_s(offer: Offer, knowledge: Knowledge) -> float:
    track = knowledge.fleet.record.of(offer.agent.agent_id, offer.capability.id)
    observed = track.service.quantile(0.5) if track else None
    return offer.capability.declared_latency_ms / 1000 if observed is None else observed


def _lowest(offers: Sequence[Offer], knowledge: Knowledge, value: Callable[[Offer], float]) -> Offer:
    values = [value(offer) for offer in offers]
    lowest = min(values)
    return _one_of([o for o, found in zip(offers, values, strict=True) if found == lowest], knowledge)


def _one_of(several: Sequence[_Any], knowledge: Knowledge) -> _Any:
    return several[int(knowledge.draw() * len(several))]
