"""Breaker: keeps tasks from an agent that fails, and finds out with one probe whether it is well again.

States and what moves between them (every other event leaves the state as it is)::

    CLOSED     failure, streak or rate reached   → OPEN
    OPEN       cool-down over, asked             → HALF_OPEN (asked = the routing wants to know if it admits)
    HALF_OPEN  probe succeeded                   → CLOSED
    HALF_OPEN  probe failed                      → OPEN, longer
    HALF_OPEN  probe released, or its lease over → HALF_OPEN, free for the next probe

One probe at a time: it is a lease with an end, so it can neither be lost nor taken twice.
Results of attempts that began before the breaker opened are history: they move nothing while it is not closed, and
nothing when it has closed again, be they ten time-outs from the bad time.
"""

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from reach_worker.core.success import FAST_HALF_LIFE_S, DecayedCount


class BreakerPolicy(BaseModel):
    """When an agent gets no more tasks, and for how long."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    streak: int = Field(5, ge=1, le=1000, description="failures in a row that open it")
    rate_floor: float | None = Field(
        0.6,
        gt=0,
        lt=1,
        description="opens when the recent success rate is clearly below this; none = never by rate",
    )
    min_samples: float = Field(8.0, ge=1, description="effective recent attempts before the rate is judged")
    open_s: float = Field(30.0, gt=0, le=86_400, description="first cool-down, seconds")
    growth: float = Field(2.0, ge=1, le=10, description="factor on the cool-down for each failed probe")
    max_open_s: float = Field(300.0, gt=0, le=86_400, description="longest cool-down, seconds")
    probe_lease_s: float = Field(
        120.0, gt=0, le=86_400, description="a probe not heard of for so long is given up"
    )


DECLARED_BREAKER: Final = BreakerPolicy(streak=3, rate_floor=None, open_s=60.0, growth=1.0, max_open_s=60.0)
"""The numbers that the ``declared`` preset keeps: three in a row, a minute, no growth, no rate."""


class BreakerState(StrEnum):
    """Closed lets all through, open none, half-open one."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True)
class Admits:
    """The agent may have a task; as the one probe if ``probe``."""

    probe: bool


@dataclass(frozen=True, slots=True)
class Refuses:
    """Not now. ``seconds`` until it can be asked again, with the reason in words."""

    seconds: float
    reason: str


_ADMITS: Final = Admits(probe=False)
_ADMITS_PROBE: Final = Admits(probe=True)


@dataclass(slots=True)
class Breaker:
    """The guard on one agent. All times are monotonic seconds passed in."""

    policy: BreakerPolicy
    state: BreakerState = BreakerState.CLOSED
    streak: int = 0
    recent: DecayedCount = field(default_factory=lambda: DecayedCount(FAST_HALF_LIFE_S))
    opened_at: float = 0.0
    open_until: float = 0.0
    failed_probes: int = 0
    probe: str | None = None
    probe_until: float = 0.0
    closed_at: float = -math.inf
    openings: int = 0

    def admits(self, now: float) -> Admits | Refuses:
        """May the agent have a task at ``now``? Asking moves nothing but open → half-open once the cool-down is over."""
        if self.state is BreakerState.OPEN:
            if now < self.open_until:
                left = self.open_until - now
                return Refuses(left, f"breaker open for {math.ceil(left)} s more")
            self.state = BreakerState.HALF_OPEN
            self.probe = None
        if self.state is BreakerState.HALF_OPEN:
            if self.probe is not None and now < self.probe_until:
                return Refuses(self.probe_until - now, "breaker half-open, its one probe is under way")
            return _ADMITS_PROBE
        return _ADMITS

    def take_probe(self, dispatch_id: str, now: float) -> None:
        """Lease the probe to a dispatch. Only after :meth:`admits` offered it."""
        if self.state is not BreakerState.HALF_OPEN or (self.probe is not None and now < self.probe_until):
            raise ValueError("no probe to take")
        self.probe = dispatch_id
        self.probe_until = now + self.policy.probe_lease_s

    def succeeded(self, dispatch_id: str, now: float, *, since: float) -> bool:
        """An attempt that was sent at ``since`` succeeded; returns whether this closed the breaker."""
        if self.state is BreakerState.CLOSED:
            if since >= self.closed_at:
                self.streak = 0
                self.recent.add(now, good=True)
            return False
        if dispatch_id != self.probe:
            return False
        self.state = BreakerState.CLOSED
        self.closed_at = now
        self.streak = 0
        self.failed_probes = 0
        self.probe = None
        self.recent = DecayedCount(FAST_HALF_LIFE_S)
        return True

    def failed(self, dispatch_id: str, now: float, draw: float, *, since: float) -> bool:
        """An attempt that was sent at ``since`` failed; returns whether this opened the breaker.

        Only what speaks against the agent is a failure (see the outcome classes). ``draw`` in [0, 1) jitters the
        cool-down of failed probes (equal jitter: half fixed, half drawn).
        """
        if self.state is BreakerState.CLOSED:
            if since < self.closed_at:
                return False
            self.streak += 1
            self.recent.add(now, good=False)
            if self.streak >= self.policy.streak or self._rate_too_low(now):
                self._open(now, draw)
                return True
            return False
        if dispatch_id != self.probe:
            return False
        self.failed_probes += 1
        self._open(now, draw)
        return True

    def released(self, dispatch_id: str) -> None:
        """A dispatch came back unrun, or ended in a way that says nothing of the agent: the probe is free again."""
        if dispatch_id == self.probe:
            self.probe = None

    def _rate_too_low(self, now: float) -> bool:
        floor = self.policy.rate_floor
        tries = self.recent.effective(now)
        rate = self.recent.rate()
        if floor is None or rate is None or tries < self.policy.min_samples:
            return False
        return rate + math.sqrt(0.25 / tries) < floor

    def _open(self, now: float, draw: float) -> None:
        cooldown = min(
            self.policy.max_open_s, self.policy.open_s * self.policy.growth ** min(self.failed_probes, 64)
        )
        if self.failed_probes and self.policy.growth > 1:
            cooldown = cooldown / 2 + draw * cooldown / 2
        self.state = BreakerState.OPEN
        self.opened_at = now
        self.open_until = now + cooldown
        self.probe = None
        self.openings += 1
