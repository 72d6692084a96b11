"""Policies are data: which dimensions count, and how much."""

import math
from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

DimensionName = Literal["cost", "latency", "success", "load"]
DIMENSIONS: Final[tuple[DimensionName, ...]] = ("cost", "latency", "success", "load")

ROUNDING: Final = 1e-6

PRESETS: Final[Mapping[str, Mapping[DimensionName, float]]] = MappingProxyType(
    {"declared": MappingProxyType({"cost": 0.35, "latency": 0.35, "success": 0.20, "load": 0.10})}
)
"""Weights of the shipped policies. Each set adds up to 1."""


class RoutingPolicy(BaseModel):
    """How the best of the agents that may have a task is chosen."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    preset: Literal["declared"] = Field("declared", description="shipped policy to start from")
    weights: dict[DimensionName, float] | None = Field(
        None, description="own weights per dimension instead of the preset's; they add up to 1"
    )
    tie_break: Literal["name", "spread"] = Field(
        "name", description="equal agents: the first by name, or shared out by a hash of task and agent"
    )

    @model_validator(mode="after")
    def _weights_add_up(self) -> Self:
        if self.weights is None:
            return self
        total = math.fsum(self.weights.values())
        if any(weight < 0 for weight in self.weights.values()):
            raise ValueError("weights are between 0 and 1")
        if abs(total - 1.0) > ROUNDING:
            raise ValueError(f"weights add up to 1, these to {total:g}")
        return self

    @property
    def name(self) -> str:
        """The name that decisions are recorded under."""
        return self.preset if self.weights is None else f"{self.preset}+weights"

    @cached_property
    def weight_table(self) -> Mapping[DimensionName, float]:
        """Weight per dimension, in the order of :data:`DIMENSIONS`; those that do not count are left out."""
        source = PRESETS[self.preset] if self.weights is None else self.weights
        return {name: source[name] for name in DIMENSIONS if source.get(name, 0.0) > 0.0}
