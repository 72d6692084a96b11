"""How much one task may ask of other agents in the middle of its work."""

from pydantic import BaseModel, ConfigDict, Field


class CallPolicy(BaseModel):
    """What a handler may ask of other agents, per attempt. An agent that loops is stopped by it."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    max: int = Field(
        8, ge=0, le=10_000, description="calls to other agents; one that repeats another is none"
    )
    seconds: float = Field(120.0, gt=0, description="seconds spent in them, in all")
