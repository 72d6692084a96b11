"""Counting what an agent has done, and how fast: (n − 1) / (last − first), as the rate of every contender is taken."""

from dataclasses import dataclass, field

from reach_worker.bench.live.lines import say
from reach_worker.clock import SystemClock


@dataclass(slots=True)
class Tally:
    """Says ``done`` with the rate once so many are done."""

    wanted: int
    count: int = 0
    _first: float = 0.0
    _clock: SystemClock = field(default_factory=SystemClock)

    def one(self) -> None:
        """One more is done."""
        self.count += 1
        if self.count == 1:
            self._first = self._clock.monotonic()
        if self.count == self.wanted:
            say("done", tasks_per_s=(self.wanted - 1) / (self._clock.monotonic() - self._first))
