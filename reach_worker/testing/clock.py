"""A clock that only its holder moves."""

import asyncio
import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class SteppedClock:
    """A clock that only its holder moves; draws and ids follow from a seed. For tests and simulations."""

    now: float = 1000.0
    wall_us: int = 1_800_000_000_000_000
    seed: int = 0
    _random: random.Random = field(init=False)
    _ids: int = 0
    _calls: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _order: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def monotonic(self) -> float:
        """The time it was moved to."""
        return self.now

    def utc_us(self) -> int:
        """The UTC time it was moved to."""
        return self.wall_us

    def draw(self) -> float:
        """The next of the seeded draws."""
        return self._random.random()

    def new_id(self) -> str:
        """Ids that count up, and differ in their first digits and in their last."""
        self._ids += 1
        return f"{self._ids:012x}{self._ids:020x}"

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock was moved so far."""
        woken = asyncio.Event()
        self.call_at(self.now + seconds, woken.set)
        await woken.wait()

    def call_at(self, when: float, call: Callable[[], None]) -> None:
        """Call it as soon as the clock was moved to ``when``; at once with the next move if that has passed."""
        self._order += 1
        heapq.heappush(self._calls, (when, self._order, call))

    def next_call(self) -> float | None:
        """When the next of these is due, ``None`` if there is none."""
        return self._calls[0][0] if self._calls else None

    def advance(self, seconds: float) -> None:
        """Move on. What falls due on the way happens in order, each at its own time."""
        end = self.now + seconds
        while self._calls and self._calls[0][0] <= end:
            due, _, call = heapq.heappop(self._calls)
            self._move_to(max(self.now, due))
            call()
        self._move_to(end)

    def _move_to(self, now: float) -> None:
        self.wall_us += round((now - self.now) * 1_000_000)
        self.now = now
