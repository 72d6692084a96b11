"""Breaker: keeps tasks from an agent that fails, and finds out with one probe whether it is well again.

States and what moves between them (every other event leaves the state as it is)::

    CLOSED     failure, streak reached           → OPEN
    CLOSED     failure, rate too low, room       → OPEN by rate (room = few enough others are open by rate, see fleet)
    OPEN       cool-down over, asked             → HALF_OPEN (asked = the routing wants to know if it admits)
    OPEN       another router sent the probe     → HALF_OPEN, with that probe
    HALF_OPEN  another router sent the probe     → HALF_OPEN, with that probe unless one is under way
    HALF_OPEN  probe succeeded                   → CLOSED, slots come back in steps (see ramp)
    HALF_OPEN  probe failed                      → OPEN, longer
    HALF_OPEN  probe released, or its lease over → HALF_OPEN, free for the next probe
    CLOSED     agent was away and came back      → CLOSED, streak 0

One probe at a time: it is a lease with an end, so it can neither be lost nor taken twice.
Results of attempts that began before the breaker opened are history: they move nothing while it is not closed, and
nothing when it has closed again, be they ten time-outs from the bad time.

A breaker that only observes (``mode: observe``) goes through the same states and lets everything through: the first
dispatch after its cool-down is the probe it would have sent, what else comes back meanwhile moves nothing.
"""

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from reach_worker.core.ramp import Ramp
from reach_worker.core.success import FAST_HALF_LIFE_S, DecayedCount


class BreakerPolicy(BaseModel):
    """When an agent gets no more tasks, and for how long."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    mode: Literal["enforce", "observe"] = Field(
        "enforce", description="observe: it lets everything through, and only records what it would have done"
    )
    streak: int = Field(5, ge=1, le=1000, description="failures in a row that open it")
    rate_floor: float | None = Field(
        0.6,
        gt=0,
        lt=1,
        description="opens when the recent success rate is clearly below this; none = never by rate",
    )
    min_samples: float = Field(8.0, ge=1, description="effective recent attempts before the rate is judged")
    max_open_share: float = Field(
        0.5,
        ge=0,
        le=1,
        description="share of a capability's agents that may be open by rate at once; one always may",
    )
    open_s: float = Field(30.0, gt=0, le=86_400, description="first cool-down, seconds")
    growth: float = Field(2.0, ge=1, le=10, description="factor on the cool-down for each failed probe")
    max_open_s: float = Field(300.0, gt=0, le=86_400, description="longest cool-down, seconds")
    probe_lease_s: float = Field(
        120.0, gt=0, le=86_400, description="a probe not heard of for so long is given up"
    )
    steps: tuple[Annotated[float, Field(gt=0, le=1)], ...] = Field(
        (0.1, 0.25, 0.5), description="shares of its slots that an agent has back, step by step, before all"
    )
    step_successes: int = Field(5, ge=1, le=1000, description="successes that make a step")

    @field_validator("steps")
    @classmethod
    def _steps_go_up(cls, steps: tuple[float, ...]) -> tuple[float, ...]:
        if list(steps) != sorted(steps):
            raise ValueError("each step gives back at least as much as the one before")
        return steps


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
    """The guard on one agent. All times are monotonic seconds passed in.

    ``by_rate``: it opened by rate, and has not closed since. ``held_back``: its rate is too low, and too many others
    were open by rate.
    """

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
    by_rate: bool = False
    held_back: bool = False
    ramp: Ramp = field(init=False)

    def __post_init__(self) -> None:
        self.ramp = Ramp(self.policy.steps, self.policy.step_successes)

    @property
    def shut(self) -> bool:
        """Open, and it means it: nothing goes to the agent, nobody takes what waits there."""
        return self.state is BreakerState.OPEN and self.policy.mode == "enforce"

    @property
    def calm(self) -> bool:
        """Closed, and all slots are back: it neither refuses nor holds back anything."""
        return self.state is BreakerState.CLOSED and self.ramp.successes is None

    @property
    def shown(self) -> str:
        """Its state, for people."""
        return self.state.value if self.policy.mode == "enforce" else f"{self.state.value} (observed)"

    def told(self, now: float) -> str:
        """Its state and, while it is open, for how long."""
        left = f" for {self.open_until - now:.0f} s" if self.state is BreakerState.OPEN else ""
        return f"{self.shown}{left}"

    def slots(self, of: int) -> int:
        """How many of so many slots the agent may use: fewer for a while after the breaker has closed."""
        return self.ramp.slots(of) if self.policy.mode == "enforce" else of

    def admits(self, now: float) -> Admits | Refuses:
        """May the agent have a task at ``now``? Asking moves nothing but open → half-open once the cool-down is over."""
        if self.state is BreakerState.CLOSED:
            return _ADMITS
        answer = self._answer(now)
        return answer if self.policy.mode == "enforce" else _ADMITS

    def sent(self, dispatch_id: str, now: float) -> bool:
        """A dispatch goes out; returns whether it is the one probe, which it holds from now on."""
        if self.state is BreakerState.CLOSED:
            return False
        answer = self._answer(now)
        probe = isinstance(answer, Admits) and answer.probe
        if probe:
            self.take_probe(dispatch_id, now)
        return probe

    def sent_elsewhere(self, dispatch_id: str, now: float) -> None:
        """Another router sent its one probe: none goes out here before its result is told, or its lease is over."""
        if self.state is BreakerState.CLOSED or (self.probe is not None and now < self.probe_until):
            return
        self.state = BreakerState.HALF_OPEN
        self.take_probe(dispatch_id, now)

    def give_way(self, seconds: float) -> None:
        """Stay open a little longer, so that another router sends the probe first."""
        if self.state is BreakerState.OPEN:
            self.open_until += seconds

    def came_back(self) -> None:
        """The agent was away and is there again: failures of before are no streak."""
        if self.state is BreakerState.CLOSED:
            self.streak = 0

    def _answer(self, now: float) -> Admits | Refuses:
        if self.state is BreakerState.OPEN:
            if now < self.open_until:
                left = self.open_until - now
                return Refuses(left, f"breaker open for {math.ceil(left)} s more")
            self.state = BreakerState.HALF_OPEN
            self.probe = None
        if self.probe is not None and now < self.probe_until:
            return Refuses(self.probe_until - now, "breaker half-open, its one probe is under way")
        return _ADMITS_PROBE

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
                self.ramp.succeeded()
                self.held_back = self.held_back and self._rate_too_low(now)
            return False
        if dispatch_id != self.probe:
            return False
        self.state = BreakerState.CLOSED
        self.closed_at = now
        self.streak = 0
        self.failed_probes = 0
        self.probe = None
        self.recent = DecayedCount(FAST_HALF_LIFE_S)
        self.by_rate = False
        self.ramp.begin()
        return True

    def failed(
        self, dispatch_id: str, now: float, draw: float, *, since: float, room_by_rate: bool = True
    ) -> bool:
        """An attempt that was sent at ``since`` failed; returns whether this opened the breaker.

        Only what speaks against the agent is a failure (see the outcome classes). ``draw`` in [0, 1) jitters the
        cool-down of failed probes (equal jitter: half fixed, half drawn). ``room_by_rate``: one more agent may be open
        by rate.
        """
        if self.state is BreakerState.CLOSED:
            if since < self.closed_at:
                return False
            self.streak += 1
            self.recent.add(now, good=False)
            streak, too_low = self.streak >= self.policy.streak, self._rate_too_low(now)
            if streak or (too_low and room_by_rate):
                self.by_rate = not streak
                self._open(now, draw)
                return True
            self.held_back = too_low
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
        self.held_back = False
        self.openings += 1
