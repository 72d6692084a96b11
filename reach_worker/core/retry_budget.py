"""The retry budget: what fails must not crowd out what is new, and an outage must not become a storm of retries.

A token bucket that first attempts fill: each puts in ``budget_share`` of a token, and time ``budget_floor_per_min`` a
minute in any case. A retry takes one. It holds no more than a minute's worth, so that a quiet hour buys no burst.
Source of the idea: "retry budget" of Finagle (Twitter, 2016), https://finagle.github.io/blog/2016/02/08/retry-budgets/.
"""

import math
from dataclasses import dataclass
from typing import Final

from reach_worker.core.backoff import RetryPolicy

MINUTE_S: Final = 60.0
SHORTEST_WAIT_S: Final = 2.0
LONGEST_WAIT_S: Final = 60.0
ROUNDING: Final = 1e-9
INSTANT_S: Final = 0.01
"""Less time than that is passed with the next: of what is sent in one turn each would fade by next to nothing."""


@dataclass(slots=True)
class RetryBudget:
    """One router's budget. Times are monotonic seconds.

    ``recent``: first attempts of about the last minute (decayed, mean life 60 s). ``owed``: retries turned away in it.
    """

    policy: RetryPolicy
    routers: int = 1
    tokens: float = 0.0
    recent: float = 0.0
    owed: float = 0.0
    at: float | None = None

    def first_attempt(self, now: float) -> None:
        """A task was sent to an agent for the first time."""
        self._pass_time(now)
        self.recent += 1.0
        self.tokens = min(self._most(), self.tokens + self.policy.budget_share)

    def take(self, now: float) -> bool:
        """Whether one more retry may go now."""
        self._pass_time(now)
        if self.tokens < 1.0 - ROUNDING:
            self.owed += 1.0
            return False
        self.tokens -= 1.0
        return True

    def wait_s(self, draw: float) -> float:
        """How long a retry that was turned away waits before it asks again, jittered by ``draw`` in [0, 1).

        About as long as those before it need at the present rate: so many retries do not ask again and again.
        """
        rate = self._floor() / MINUTE_S + self.policy.budget_share * self.recent / MINUTE_S
        wanted = max(1.0, self.owed) / rate if rate > 0.0 else LONGEST_WAIT_S
        return min(LONGEST_WAIT_S, max(SHORTEST_WAIT_S, wanted)) * (0.5 + 0.5 * draw)

    def _pass_time(self, now: float) -> None:
        if self.at is None:
            self.at, self.tokens = now, self._floor()
        elapsed = now - self.at
        if elapsed < INSTANT_S:
            return
        self.at = now
        faded = math.exp(-elapsed / MINUTE_S)
        self.recent *= faded
        self.owed *= faded
        self.tokens = min(self._most(), self.tokens + elapsed * self._floor() / MINUTE_S)

    def _floor(self) -> float:
        """Retries a minute in any case; live routers share them."""
        return self.policy.budget_floor_per_min / max(1, self.routers)

    def _most(self) -> float:
        return max(1.0, self._floor() + self.policy.budget_share * self.recent)
