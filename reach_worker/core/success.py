"""What is known of an agent's work on a capability: decayed counts and recent service times."""

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Final, Self

SLOW_HALF_LIFE_S: Final = 1800.0
FAST_HALF_LIFE_S: Final = 60.0
WINDOW: Final = 256
"""Service times kept per agent and capability."""


@dataclass(slots=True)
class DecayedCount:
    """Successes among tries, both halving every ``half_life_s``. Prior-free: a prior is added when it is read."""

    half_life_s: float
    good: float = 0.0
    tries: float = 0.0
    at: float = 0.0

    def add(self, now: float, *, good: bool) -> None:
        """Count one try that ended at ``now`` (seconds; a time before the last one counts as the last one)."""
        self._decay(now)
        self.good += 1.0 if good else 0.0
        self.tries += 1.0

    def rate(self) -> float | None:
        """Share of good ones, ``None`` while nothing was ever counted. Decay does not change it."""
        return None if self.tries <= 0.0 else min(1.0, max(0.0, self.good / self.tries))

    def effective(self, now: float) -> float:
        """Effective number of tries at ``now``."""
        return self.tries * self._factor(now)

    def _factor(self, now: float) -> float:
        return math.exp2(-max(0.0, now - self.at) / self.half_life_s)

    def _decay(self, now: float) -> None:
        factor = self._factor(now)
        self.good *= factor
        self.tries *= factor
        self.at = max(now, self.at)


@dataclass(slots=True)
class ServiceTimes:
    """The last service times of successes, in seconds."""

    recent: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    _sorted: list[float] | None = None

    def add(self, seconds: float) -> None:
        """Add one success's service time."""
        self.recent.append(max(0.0, seconds))
        self._sorted = None

    def __len__(self) -> int:
        return len(self.recent)

    def quantile(self, q: float) -> float | None:
        """The ``q`` quantile (nearest rank), ``None`` without observations."""
        if not self.recent:
            return None
        if self._sorted is None:
            self._sorted = sorted(self.recent)
        return self._sorted[max(0, math.ceil(q * len(self._sorted)) - 1)]


@dataclass(slots=True)
class Track:
    """The record of one agent on one capability. Times are UTC seconds, so that it can outlive a process."""

    slow: DecayedCount = field(default_factory=lambda: DecayedCount(SLOW_HALF_LIFE_S))
    fast: DecayedCount = field(default_factory=lambda: DecayedCount(FAST_HALF_LIFE_S))
    rejections: DecayedCount = field(default_factory=lambda: DecayedCount(SLOW_HALF_LIFE_S))
    service: ServiceTimes = field(default_factory=ServiceTimes)

    def ended(self, now: float, *, good: bool, seconds: float | None) -> None:
        """Count an attempt that speaks for or against the agent."""
        self.slow.add(now, good=good)
        self.fast.add(now, good=good)
        self.rejections.add(now, good=False)
        if good and seconds is not None:
            self.service.add(seconds)

    def rejected(self, now: float) -> None:
        """Count an attempt that the agent handed back as not its own."""
        self.rejections.add(now, good=True)

    def success(self) -> float | None:
        """Decayed success rate, ``None`` where nothing is known."""
        return self.slow.rate()


@dataclass(slots=True)
class TrackRecord:
    """All tracks, by agent and capability."""

    tracks: dict[tuple[str, str], Track] = field(default_factory=dict)

    def of(self, agent_id: str, capability: str) -> Track | None:
        """The track, ``None`` where nothing is known."""
        return self.tracks.get((agent_id, capability))

    def touch(self, agent_id: str, capability: str) -> Track:
        """The track, made where there was none."""
        return self.tracks.setdefault((agent_id, capability), Track())

    @classmethod
    def empty(cls) -> Self:
        """A record of nothing."""
        return cls({})
