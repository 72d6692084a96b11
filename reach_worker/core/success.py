"""What is known of an agent's work on a capability: decayed counts and recent service times."""

import math
from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self

SLOW_HALF_LIFE_S: Final = 1800.0
FAST_HALF_LIFE_S: Final = 60.0
RECENT_HALF_LIFE_S: Final = 600.0 * math.log(2)
"""An attempt's weight is spread over ten minutes, on average."""
WEEK_HALF_LIFE_S: Final = 7 * 86_400.0 * math.log(2)
"""An attempt's weight is spread over seven days, on average."""
WINDOW: Final = 256
"""Service times kept per agent and capability."""


CLOCK_WAS_WRONG_S: Final = 86_400.0


@dataclass(slots=True)
class DecayedCount:
    """Successes among tries, both halving every ``half_life_s``. Prior-free: a prior is added when it is read.

    ``at``: the time, in seconds, to which both are decayed. ``version``: another one after every change.
    """

    half_life_s: float
    good: float = 0.0
    tries: float = 0.0
    at: float = 0.0
    version: int = field(default=0, compare=False, repr=False)

    def add(self, now: float, *, good: bool) -> None:
        """Count one try that ended at ``now`` (seconds). One that comes late weighs as little as if it had come in time.

        A count that stands more than a day ahead was made while a clock was wrong: it is brought back to ``now``.
        """
        self.version += 1
        late = self.at - now
        if late > CLOCK_WAS_WRONG_S:
            self.at, late = now, 0.0
        weight = 1.0
        if late > 0.0:
            weight = math.exp2(-late / self.half_life_s)
        else:
            (self.good, self.tries), self.at = self.counts(now), now
        self.good += weight if good else 0.0
        self.tries += weight

    def rate(self) -> float | None:
        """Share of good ones, ``None`` while nothing was ever counted. Decay does not change it."""
        return min(1.0, max(0.0, self.good / self.tries)) if self.tries > 0.0 else None

    def effective(self, now: float) -> float:
        """Effective number of tries at ``now``."""
        return self.counts(now)[1]

    def counts(self, now: float) -> tuple[float, float]:
        """Good ones and tries, decayed to ``now``. What no count can be (a damaged row of the store) is none at all.

        It would never decay: whoever counts on from there drops it.
        """
        good, tries, past_s = self.good, self.tries, now - self.at
        if past_s > 0.0:
            factor = math.exp2(-past_s / self.half_life_s)
            good, tries = good * factor, tries * factor
        return (good, tries) if 0.0 <= good <= tries < math.inf else (0.0, 0.0)

    def merge(self, other: "DecayedCount") -> None:
        """Add another count with the same half-life."""
        self.version += 1
        now = max(self.at, other.at)
        (self.good, self.tries), self.at = self.counts(now), now
        good, tries = other.counts(now)
        self.good += good
        self.tries += tries


@dataclass(slots=True)
class ServiceTimes:
    """The last service times of successes, in seconds; ``ordered`` holds the same by length, for whoever decides.

    ``p50`` and ``p95`` are those quantiles, ``None`` without observations.
    """

    recent: deque[float] = field(default_factory=deque)
    ordered: list[float] = field(default_factory=list)
    total: float = 0.0
    p50: float | None = field(init=False)
    p95: float | None = field(init=False)

    def __post_init__(self) -> None:
        self._note()

    def add(self, seconds: float) -> None:
        """Add one success's service time; beyond :data:`WINDOW` the oldest one goes."""
        seconds = max(0.0, seconds)
        if len(self.recent) == WINDOW:
            oldest = self.recent.popleft()
            del self.ordered[bisect_left(self.ordered, oldest)]
            self.total -= oldest
        self.recent.append(seconds)
        self.total += seconds
        insort(self.ordered, seconds)
        self._note()

    def __len__(self) -> int:
        return len(self.recent)

    def mean(self) -> float | None:
        """The mean in seconds, ``None`` without observations. What rounding left in the running total stays outside."""
        if not self.ordered:
            return None
        return min(self.ordered[-1], max(self.ordered[0], self.total / len(self.ordered)))

    def quantile(self, q: float) -> float | None:
        """The ``q`` quantile (nearest rank), ``None`` without observations."""
        if not self.ordered:
            return None
        return self.ordered[max(0, math.ceil(q * len(self.ordered)) - 1)]

    def _note(self) -> None:
        self.p50, self.p95 = self.quantile(0.5), self.quantile(0.95)


class Belief(NamedTuple):
    """What is believed of an agent's success: the posterior's mean and standard deviation."""

    mean: float
    deviation: float

    def upper(self, deviations: float) -> float:
        """The mean and so many standard deviations, at most 1."""
        return min(1.0, self.mean + deviations * self.deviation)


@dataclass(slots=True)
class Track:
    """The record of one agent on one capability. Times are UTC seconds, so that it can outlive a process.

    ``overall`` is shared by all tracks of the agent. ``version``: another one after everything that was taken in.
    """

    slow: DecayedCount = field(default_factory=lambda: DecayedCount(SLOW_HALF_LIFE_S))
    fast: DecayedCount = field(default_factory=lambda: DecayedCount(FAST_HALF_LIFE_S))
    recent: DecayedCount = field(default_factory=lambda: DecayedCount(RECENT_HALF_LIFE_S))
    week: DecayedCount = field(default_factory=lambda: DecayedCount(WEEK_HALF_LIFE_S))
    overall: DecayedCount = field(default_factory=lambda: DecayedCount(SLOW_HALF_LIFE_S))
    feedback: DecayedCount = field(default_factory=lambda: DecayedCount(WEEK_HALF_LIFE_S))
    rejections: DecayedCount = field(default_factory=lambda: DecayedCount(SLOW_HALF_LIFE_S))
    service: ServiceTimes = field(default_factory=ServiceTimes)
    version: int = field(default=0, compare=False, repr=False)

    def ended(self, now: float, *, good: bool, seconds: float | None) -> None:
        """Count an attempt that speaks for or against the agent."""
        self.version += 1
        for count in (self.slow, self.fast, self.recent, self.week, self.overall):
            count.add(now, good=good)
        self.rejections.add(now, good=False)
        if good and seconds is not None:
            self.service.add(seconds)

    def rejected(self, now: float) -> None:
        """Count an attempt that the agent handed back as not its own."""
        self.version += 1
        self.rejections.add(now, good=True)

    def judged(self, now: float, verdict: str) -> None:
        """Take in what a person says of a result: ``good``, ``bad`` or ``wrong-agent`` (a routing error)."""
        self.version += 1
        self.feedback.add(now, good=verdict == "good")
        if verdict == "wrong-agent":
            self.rejected(now)

    def success(self) -> float | None:
        """Decayed success rate, ``None`` where nothing is known."""
        return self.slow.rate()


AGENT_MASS: Final = 5.0
"""An agent's rate on its other capabilities weighs as much as so many attempts."""
EVEN: Final = (1.0, 1.0)
"""Beta(1, 1): nothing known, every rate equally likely."""
LEAST_ELSEWHERE: Final = 0.5
"""Effective tries elsewhere below which an agent has no rate there: what is left of old ones, or of rounding."""
SHRINK_MASS: Final = 5.0
"""The fast rate is drawn to the slow one as if by so many attempts."""


@dataclass(slots=True)
class TrackRecord:
    """All tracks, by agent and capability. ``entered``: another one after every track that was entered."""

    tracks: dict[tuple[str, str], Track] = field(default_factory=dict)
    overall: dict[str, DecayedCount] = field(default_factory=dict)
    entered: int = field(default=0, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Share one overall count among each agent's tracks: the sum of what they hold."""
        for key, track in self.tracks.items():
            self.put(key, track)

    def put(self, key: tuple[str, str], track: Track) -> None:
        """Enter a track that was counted elsewhere, of an agent (first of the key) on a capability that has none yet."""
        self.entered += 1
        self.tracks[key] = track
        overall = self._overall(key[0])
        overall.merge(track.slow)
        track.overall = overall

    def of(self, agent_id: str, capability: str) -> Track | None:
        """The track, ``None`` where nothing is known."""
        return self.tracks.get((agent_id, capability))

    def touch(self, agent_id: str, capability: str) -> Track:
        """The track, made where there was none."""
        track = self.tracks.get((agent_id, capability))
        if track is None:
            self.entered += 1
            track = self.tracks[agent_id, capability] = Track(overall=self._overall(agent_id))
        return track

    def belief(self, agent_id: str, capability: str, now: float) -> Belief:
        """The belief in the agent's success on the capability at ``now`` (UTC seconds).

        Posterior of a Beta prior (conjugate to Bernoulli trials): the agent's rate on its other capabilities
        with mass 5 where it has one, else Beta(1, 1), so no record is 0.5. Its own tries are not in their own
        prior: counted twice, one failure would leave an agent at 0 for good, and one success at 1. The mean is
        the lower of two: the slow one, and the fast one shrunk to the slow one with mass 5. The deviation is
        the slow posterior's, √(m (1 − m) / (n + 1)).
        """
        track = self.of(agent_id, capability)
        slow_good, slow_tries = (0.0, 0.0) if track is None else track.slow.counts(now)
        good, bad = self._prior(agent_id, slow_good, slow_tries, now)
        mass = good + bad + slow_tries
        slow = (good + slow_good) / mass
        mean = slow
        if track is not None:
            fast_good, fast_tries = track.fast.counts(now)
            mean = min(slow, (fast_good + SHRINK_MASS * slow) / (fast_tries + SHRINK_MASS))
        return Belief(mean, math.sqrt(slow * (1.0 - slow) / (mass + 1.0)))

    def _prior(self, agent_id: str, own_good: float, own_tries: float, now: float) -> tuple[float, float]:
        """Successes and failures that count as if seen: the agent's on other capabilities, itself on an even prior."""
        overall = self.overall.get(agent_id)
        if overall is None:
            return EVEN
        good, tries = overall.counts(now)
        good, tries = max(0.0, good - own_good), max(0.0, tries - own_tries)
        if tries < LEAST_ELSEWHERE:
            return EVEN
        rate = (min(good, tries) + EVEN[0]) / (tries + EVEN[0] + EVEN[1])
        return AGENT_MASS * rate, AGENT_MASS * (1.0 - rate)

    def _overall(self, agent_id: str) -> DecayedCount:
        if agent_id not in self.overall:
            self.overall[agent_id] = DecayedCount(SLOW_HALF_LIFE_S)
        return self.overall[agent_id]

    @classmethod
    def empty(cls) -> Self:
        """A record of nothing."""
        return cls({})
