"""How fast tasks are taken from the intake queue, and given to an agent."""

import math
from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

PACE_BURST_S: Final = 0.1
"""An agent's rate may be overdrawn by what is due in this time: a router looks about so often."""


class IntakePolicy(BaseModel):
    """What the router takes in, and how fast."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    rate: float | None = Field(None, gt=0, description="tasks per second taken from intake; none = no limit")
    burst: int = Field(200, ge=1, description="tasks that may be taken at once after a pause")
    prefetch: int = Field(
        200, ge=1, le=2000, description="deliveries the router holds unacknowledged at most"
    )
    max_body_bytes: int = Field(8 * 1024 * 1024, ge=1024, description="larger bodies become dead letters")

    def held_at_most(self) -> int:
        """Deliveries to prefetch: no more than about one second of tokens, so that none is held long."""
        if self.rate is None:
            return self.prefetch
        return max(1, min(self.prefetch, int(self.rate)))


def pace_burst(rate: float | None) -> int:
    """Tokens that an agent's bucket holds."""
    return 1 if rate is None else max(1, int(rate * PACE_BURST_S))


@dataclass(slots=True)
class TokenBucket:
    """Token bucket: ``burst`` tokens at most, refilled at ``rate`` per second of the time passed in.

    A rate of ``None`` never runs empty.
    """

    rate: float | None
    burst: int
    tokens: float
    refilled_at: float

    @classmethod
    def full(cls, rate: float | None, burst: int, now: float) -> "TokenBucket":
        """A bucket that starts full at ``now`` (seconds, monotonic)."""
        return cls(rate, burst, float(burst), now)

    @classmethod
    def paced(cls, rate: float | None) -> "TokenBucket":
        """A bucket for an agent that takes ``rate`` tasks per second: evenly, so with hardly any burst."""
        burst = pace_burst(rate)
        return cls(rate, burst, float(burst), -math.inf)

    def pace(self, rate: float | None) -> None:
        """Go on at another rate."""
        if rate != self.rate:
            self.rate, self.burst = rate, pace_burst(rate)

    def available(self, now: float) -> int:
        """Whole tokens there are at ``now``."""
        if self.rate is None:
            return self.burst
        elapsed = max(0.0, now - self.refilled_at)
        self.tokens = min(float(self.burst), self.tokens + elapsed * self.rate)
        self.refilled_at = max(now, self.refilled_at)
        return int(self.tokens + 1e-9)

    def take(self, count: int, now: float) -> int:
        """Take up to ``count`` tokens; returns how many were there."""
        if self.rate is None:
            return count
        taken = min(count, self.available(now))
        self.tokens -= taken
        return taken

    def give_back(self) -> None:
        """Return a token that was taken for nothing."""
        self.tokens = min(float(self.burst), self.tokens + 1.0)

    def seconds_to_next(self, now: float) -> float:
        """Seconds until one whole token is there; 0 if there is one."""
        if self.rate is None or self.available(now) >= 1:
            return 0.0
        return (1.0 - self.tokens) / self.rate
