"""What another policy would have done with logged decisions, and how well.

Each record holds the value of every dimension and multiplier for every agent whose gates were open, and the exact
probability of the choice. So another policy's choice can be worked out, and its success estimated by inverse probability.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from reach_worker.core.exploration import probabilities
from reach_worker.core.policy import RoutingPolicy
from reach_worker.core.routing import ranked
from reach_worker.core.scoring import weigh

Record = Mapping[str, Any]

THIN: Final = 100.0
"""An estimate is stated from this effective sample size on."""
EXAMPLES: Final = 20


@dataclass(frozen=True, slots=True)
class Logged:
    """A recorded decision that chose an agent; ``succeeded``: how that attempt ended, ``None`` if nobody can say."""

    record: Record
    succeeded: bool | None


@dataclass(frozen=True, slots=True)
class Difference:
    """A task that the other policy would have given to another agent."""

    task_id: str
    agent_id: str
    other: str
    score: float
    other_score: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """Success per attempt: ``rate`` ± ``error`` (one standard error), worth ``effective`` attempts."""

    rate: float
    error: float
    effective: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """What another policy would have changed.

    ``comparable``: decisions whose records tell enough; ``judged``: those whose attempt counts for or against its agent.
    ``estimate`` is ``None`` where the overlap is too thin to state one; ``effective`` says how thin.
    """

    decisions: int
    comparable: int
    judged: int
    differing: int
    examples: tuple[Difference, ...]
    logged_rate: float | None
    estimate: Estimate | None
    effective: float


def choose_again(
    record: Record, policy: RoutingPolicy
) -> tuple[list[str], dict[str, float], dict[str, float]]:
    """The agents best first, their scores, and how likely each is to be chosen, as the policy sees a record.

    Raises ``KeyError`` if the record lacks the facts that the policy needs (it was written by an older version).
    """
    open_ = {c["agent"]: c for c in record["candidates"] if c["score"] is not None}
    totals = {
        agent: [c["facts"][name] * weight for name, weight in policy.weight_table.items()]
        for agent, c in open_.items()
    }
    bonus = {agent: policy.score_bonus.get(agent, 0.0) for agent in open_}
    factors = {agent: [c["facts"][name] for name in policy.multiplier_names] for agent, c in open_.items()}
    scores = {agent: weigh(totals[agent], bonus[agent], factors[agent]) for agent in open_}
    hoped = {
        agent: weigh(
            totals[agent],
            bonus[agent],
            [
                c["facts"]["hoped"] ** 2 if name == "trust" else c["facts"][name]
                for name in policy.multiplier_names
            ],
        )
        for agent, c in open_.items()
    }
    best_first = ranked(scores, record["task"], policy.ties)
    shares = probabilities([hoped[agent] for agent in best_first], policy.exploration)
    return best_first, scores, dict(zip(best_first, shares, strict=True))


def compare(logged: Iterable[Logged], policy: RoutingPolicy) -> Comparison:
    """Ask the policy about every logged decision.

    The estimate is the self-normalised inverse probability one, Σ wᵢ rᵢ / Σ wᵢ with wᵢ = π(aᵢ) / pᵢ (Hájek), its
    effective sample size (Σ w)² / Σ w² (Kish). Below :data:`THIN` none is stated.
    """
    tally = _Tally()
    for item in logged:
        tally.decisions += 1
        try:
            best_first, scores, shares = choose_again(item.record, policy)
        except KeyError:
            continue
        if best_first:
            tally.add(item, best_first, scores, shares)
    return tally.comparison()


class _Tally:
    """Sums over the logged decisions."""

    def __init__(self) -> None:
        self.decisions = self.comparable = self.differing = 0
        self.examples: list[Difference] = []
        self.judged: list[tuple[float, float]] = []

    def add(
        self, item: Logged, best_first: list[str], scores: Mapping[str, float], shares: Mapping[str, float]
    ) -> None:
        record, best = item.record, best_first[0]
        chosen = record["agent"]
        self.comparable += 1
        if best != chosen:
            self.differing += 1
            if len(self.examples) < EXAMPLES:
                self.examples.append(Difference(record["task"], chosen, best, scores[chosen], scores[best]))
        if item.succeeded is not None and record["probability"] > 0.0:
            self.judged.append((shares[chosen] / record["probability"], float(item.succeeded)))

    def comparison(self) -> Comparison:
        weight = math.fsum(w for w, _ in self.judged)
        squares = math.fsum(w * w for w, _ in self.judged)
        effective = weight * weight / squares if squares > 0.0 else 0.0
        logged = math.fsum(r for _, r in self.judged) / len(self.judged) if self.judged else None
        return Comparison(
            decisions=self.decisions,
            comparable=self.comparable,
            judged=len(self.judged),
            differing=self.differing,
            examples=tuple(self.examples),
            logged_rate=logged,
            estimate=self._estimate(weight, effective) if effective >= THIN else None,
            effective=effective,
        )

    def _estimate(self, weight: float, effective: float) -> Estimate:
        rate = math.fsum(w * r for w, r in self.judged) / weight
        spread = math.fsum((w * (r - rate)) ** 2 for w, r in self.judged)
        return Estimate(rate, math.sqrt(spread) / weight, effective)
