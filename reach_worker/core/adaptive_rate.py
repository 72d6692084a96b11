"""An agent's adapted rate: it falls when the agent becomes slow under its load, and creeps back up.

What an agent declares of its latency may be wrong for ever, so it is compared with itself: slow is who takes twice its
usual time, and longer than it declared. Who stays slow becomes usual in time, and is let go again: a wrong guess costs
some throughput for some minutes, never an agent.
"""

import math
from collections import deque
from dataclasses import dataclass, field
from statistics import median
from typing import Final

SLOW: Final = 2.0
"""Times its usual service time, as the median of the last :data:`SAMPLES`."""
SAMPLES: Final = 16
KNOWN: Final = 64
"""Successes before an agent's usual time is known."""
PERIOD_S: Final = 5.0
"""Between two changes: what one does must show before the next."""
FALL: Final = 0.7
CREEP: Final = 1.1
LEAST_SHARE: Final = 0.25
"""The rate never falls below this share of what the agent did when it became slow."""
FREE_SHARE: Final = 2.0
"""At so many times that it is free again."""
MEMORY_S: Final = 30.0


@dataclass(slots=True)
class AdaptiveRate:
    """One agent's. ``limit``: tasks per second over all routers, ``None`` while it is free.

    ``ratios``: how the last attempts compare with what is usual. ``done``: attempts that ended lately, fading. ``since``,
    ``at``: from when, and until when, they were counted, monotonic seconds.
    """

    limit: float | None = None
    ratios: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    done: float = 0.0
    since: float = math.inf
    at: float = 0.0
    slow_at_rate: float = 0.0
    changed_at: float = -math.inf

    def ended(self, seconds: float, usual_s: float | None, declared_s: float, now: float) -> bool:
        """An attempt took ``seconds``; ``usual_s`` is the median of that work, ``None`` while too little is known.

        Returns whether the limit has changed.
        """
        self._count(now)
        if usual_s is None or usual_s <= 0.0:
            return False
        self.ratios.append(seconds / usual_s if seconds > declared_s else min(1.0, seconds / usual_s))
        if len(self.ratios) < SAMPLES or now - self.changed_at < PERIOD_S:
            return False
        before, self.limit = self.limit, self._next(now)
        if self.limit != before:
            self.changed_at = now
        return self.limit != before

    def rate(self, now: float) -> float:
        """Attempts per second that ended lately."""
        seen_s = max(1.0, now - self.since)
        return self.done * math.exp(-max(0.0, now - self.at) / MEMORY_S) / _window(seen_s)

    def _next(self, now: float) -> float | None:
        rate = self.rate(now)
        if median(self.ratios) > SLOW:
            if self.limit is None:
                self.slow_at_rate = rate
            lower = FALL * min(rate, rate if self.limit is None else self.limit)
            return max(lower, LEAST_SHARE * self.slow_at_rate)
        if self.limit is None:
            return None
        higher = self.limit * CREEP
        return None if higher >= FREE_SHARE * self.slow_at_rate else higher

    def _count(self, now: float) -> None:
        self.since = min(self.since, now)
        if now > self.at:
            self.done *= math.exp((self.at - now) / MEMORY_S)
            self.at = now
        self.done += 1.0


def _window(seen_s: float) -> float:
    """Seconds that a count which fades with mean life :data:`MEMORY_S` stands for, after ``seen_s`` seconds."""
    return MEMORY_S * (1.0 - math.exp(-seen_s / MEMORY_S))
