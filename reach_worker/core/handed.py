"""What a task that was handed on says of that: one field of its body, which only routers write."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Handed(BaseModel):
    """Who handed the task on, why, and what goes with it."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    from_agent: str = Field(description="the agent that handed it on")
    reason: str = Field("", description="why, in its words")
    context: dict[str, Any] = Field(default_factory=dict, description="what the next agent should know")
    origin: str = Field(description="the task as its caller sent it, byte for byte")
