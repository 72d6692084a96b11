"""Simulated time: what is due, in order."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

Call = Callable[[], None]


@dataclass(slots=True)
class Timeline:
    """A list of events. ``now`` is monotonic seconds; what is due at one moment happens in the order it was entered."""

    now: float = 0.0
    _due: list[tuple[float, int, Call]] = field(default_factory=list)
    _entered: int = 0

    def at(self, when: float, call: Call) -> None:
        """Let it happen at ``when``; now, if that has passed."""
        self._entered += 1
        heapq.heappush(self._due, (when, self._entered, call))

    def run(self) -> None:
        """Let everything happen, also what is entered meanwhile, until nothing is left."""
        while self._due:
            when, _, call = heapq.heappop(self._due)
            self.now = max(self.now, when)
            call()
