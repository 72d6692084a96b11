"""What is known of an agent's work on a capability: decayed counts and recent service times."""

import math
from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass, field
from typing import Final, Self

SLOW_HALF_LIFE_S: Final = 1800.0
FAST_HALF_LIFE_S: Final = 60.0
WINDOW: Final = 256
"""Service times kept per agent and capability."""


CLOCK_WAS_WRONG_S: Final = 86_400.0


@dataclass(slots=True)
class DecayedCount:
    """Successes among tries, both halving every ``half_life_s``. Prior-free: a prior is added when it is read.

    ``at``: the time, in seconds, to which both are decayed.
    """

    half_life_s: float
    good: float = 0.0
    tries: float = 0.0
    at: float = 0.0

    def add(self, now: float, *, good: bool) -> None:
        """Count one try that ended at ``now`` (seconds). One that comes late weighs as little as if it had come in time.

        A count that stands more than a day ahead was made while a clock was wrong: it is brought back to ``now``.
        """
        late = self.at - now
        if late > CLOCK_WAS_WRONG_S:
            self.at, late = now, 0.0
        weight = 1.0
        if late > 0.0:
            weight = math.exp2(-late / self.half_life_s)
        else:
            self._decay(now)
        self.good += weight if good else 0.0
        self.tries += weight

    def rate(self) -> float | None:
        """Share of good ones, ``None`` while nothing was ever counted. Decay does not change it."""
        return min(1.0, max(0.0, self.good / self.tries)) if self.tries > 0.0 else None

    def effective(self, now: float) -> float:
        """Effective number of tries at ``now``."""
        return self.tries * self._factor(now)

    def _factor(self, now: float) -> float:
        return math.exp2(-max(0.0, now - self.at) / self.half_life_s)

    def _decay(self, now: float) -> None:
        """Decay to ``now``. What no count can be (a damaged row of the store) is dropped: it would never decay."""
        factor = self._factor(now)
        good, tries = self.good * factor, self.tries * factor
        sound = 0.0 <= good <= tries < math.inf
        self.good, self.tries = (good, tries) if sound else (0.0, 0.0)
        self.at = now


@dataclass(slots=True)
class ServiceTimes:
    """The last service times of successes, in seconds; ``ordered`` holds the same by length, for whoever decides."""

    recent: deque[float] = field(default_factory=deque)
    ordered: list[float] = field(default_factory=list)

    def add(self, seconds: float) -> None:
        """Add one success's service time; beyond :data:`WINDOW` the oldest one goes."""
        seconds = max(0.0, seconds)
        if len(self.recent) == WINDOW:
            del self.ordered[bisect_left(self.ordered, self.recent.popleft())]
        self.recent.append(seconds)
        insort(self.ordered, seconds)

    def __len__(self) -> int:
        return len(self.recent)

    def quantile(self, q: float) -> float | None:
        """The ``q`` quantile (nearest rank), ``None`` without observations."""
        if not self.ordered:
            return None
        return self.ordered[max(0, math.ceil(q * len(self.ordered)) - 1)]


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
