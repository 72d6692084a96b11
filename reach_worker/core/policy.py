"""Policies are data: which dimensions count and how much, what multiplies, how much is explored."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from types import MappingProxyType
from typing import Final, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

from reach_worker.core.breaker import DECLARED_BREAKER, BreakerPolicy
from reach_worker.core.identifier import Identifier

DimensionName = Literal[
    "base",
    "cost",
    "latency",
    "success",
    "load",
    "speed",
    "recent_success",
    "p50",
    "p95",
    "quality",
    "affinity",
    "match",
    "reach",
    "smoothed_load",
]
DIMENSIONS: Final[tuple[DimensionName, ...]] = get_args(DimensionName)
MultiplierName = Literal["trust", "low_success", "rejections"]
PresetName = Literal["adaptive", "declared", "reachability", "observed", "balanced", "semantic"]
TieBreak = Literal["name", "spread"]

ROUNDING: Final = 1e-6
DEFAULT_BREAKER: Final = BreakerPolicy()


@dataclass(frozen=True, slots=True)
class Preset:
    """A shipped policy: score = min(1, Σ weight · dimension) · Π multipliers, never below 0."""

    weights: Mapping[DimensionName, float]
    multipliers: tuple[MultiplierName, ...] = ()
    explore: float = 0.0
    tie_break: TieBreak = "name"
    breaker: BreakerPolicy = DEFAULT_BREAKER


def _weights(**weights: float) -> Mapping[DimensionName, float]:
    return MappingProxyType({name: weights[name] for name in DIMENSIONS if name in weights})


PRESETS: Final[Mapping[PresetName, Preset]] = MappingProxyType(
    {
        "adaptive": Preset(
            _weights(base=0.60, speed=0.25, cost=0.15),
            multipliers=("trust", "rejections"),
            explore=0.08,
            tie_break="spread",
        ),
        "declared": Preset(
            _weights(cost=0.35, latency=0.35, success=0.20, load=0.10), breaker=DECLARED_BREAKER
        ),
        "reachability": Preset(_weights(reach=1.0, smoothed_load=-1.0)),
        "observed": Preset(
            _weights(recent_success=0.35, p95=0.25, cost=0.20, match=0.20),
            multipliers=("low_success", "rejections"),
        ),
        "balanced": Preset(
            _weights(load=0.4, quality=0.3, p50=0.2, affinity=0.1), multipliers=("low_success", "rejections")
        ),
        "semantic": Preset(_weights(match=1.0), multipliers=("low_success", "rejections")),
    }
)
"""The shipped policies.

``adaptive`` is q² · (0.6 + 0.25 e^(−wait / 10 s) + 0.15 cost): success multiplies, because added it lets a free, instant
agent that never succeeds beat a reliable one. ``reachability`` is base · availability − load, the load smoothed.
"""


class RoutingPolicy(BaseModel):
    """How the best of the agents that may have a task is chosen."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    preset: PresetName = Field("adaptive", description="shipped policy to start from")
    weights: dict[DimensionName, float] | None = Field(
        None, description="own weights per dimension instead of the preset's; they add up to 1"
    )
    multipliers: tuple[MultiplierName, ...] | None = Field(
        None,
        description="own multipliers instead of the preset's: trust (success squared), low_success, rejections",
    )
    explore: float | None = Field(
        None, ge=0, le=0.5, description="share of decisions that explore; none = the preset's"
    )
    seed: str = Field("reach", max_length=200, description="what the draws of exploration are made from")
    tie_break: TieBreak | None = Field(
        None,
        description="equal agents: the first by name, or shared out by a hash of task and agent; none = the preset's",
    )
    score_bonus: dict[Identifier, float] = Field(
        default_factory=dict, description="added to the score of an agent by its id, from -1 to 1"
    )
    region: str | None = Field(None, description="agents of this region are near")
    team: str | None = Field(None, description="agents of this team are near")
    fallback: dict[Identifier, tuple[Identifier, ...]] = Field(
        default_factory=dict,
        description="by capability: agents that are used only when no other could take a task",
    )
    fallback_after_ms: int = Field(
        5_000, ge=0, description="how long a task waits for others before a fallback agent may take it"
    )

    shadow: "RoutingPolicy | None" = Field(
        None, description="a second policy that scores every task beside this one and is only logged"
    )

    @model_validator(mode="after")
    def _weights_add_up(self) -> Self:
        if any(not -1 <= bonus <= 1 for bonus in self.score_bonus.values()):
            raise ValueError("a score bonus is between -1 and 1")
        if self.weights is None:
            return self
        total = math.fsum(self.weights.values())
        if any(weight < 0 for weight in self.weights.values()):
            raise ValueError("weights are between 0 and 1")
        if self.weights.get("smoothed_load"):
            raise ValueError(
                "smoothed_load speaks against an agent and only reachability subtracts it: weigh load"
            )
        if abs(total - 1.0) > ROUNDING:
            raise ValueError(f"weights add up to 1, these to {total:g}")
        return self

    @cached_property
    def name(self) -> str:
        """The name that decisions are recorded under: the preset's, and where it decides otherwise a hash of how.

        ``adaptive#3f2a``: equal names mean equal rules. The shadow is no part of it, it never acts.
        """
        rules = self.rules
        if rules == RoutingPolicy(preset=self.preset).rules:
            return self.preset
        text = json.dumps(rules, sort_keys=True, ensure_ascii=True)
        return f"{self.preset}#{blake2b(text.encode(), digest_size=2).hexdigest()}"

    @property
    def rules(self) -> dict[str, object]:
        """What it decides by, however much of that was left to the preset."""
        return {
            **self.model_dump(mode="json", exclude={"shadow"}),
            "weights": dict(self.weight_table),
            "multipliers": sorted(self.multiplier_names),
            "explore": self.exploration,
            "tie_break": self.ties,
        }

    @cached_property
    def weight_table(self) -> Mapping[DimensionName, float]:
        """Weight per dimension, in the order of :data:`DIMENSIONS`; those that do not count are left out."""
        source = PRESETS[self.preset].weights if self.weights is None else self.weights
        return {name: source[name] for name in DIMENSIONS if source.get(name, 0.0) != 0.0}

    @cached_property
    def multiplier_names(self) -> tuple[MultiplierName, ...]:
        """What the weighted sum is multiplied by."""
        return PRESETS[self.preset].multipliers if self.multipliers is None else self.multipliers

    @cached_property
    def exploration(self) -> float:
        """Share of decisions that explore, in [0, 0.5]."""
        return PRESETS[self.preset].explore if self.explore is None else self.explore

    @cached_property
    def ties(self) -> TieBreak:
        """How ties are broken."""
        return self.tie_break or PRESETS[self.preset].tie_break
