"""The one place that reads the clock, rolls dice and makes ids. Everything else is handed values or a ``Clock``."""

import asyncio
import os
import random
import time
from dataclasses import dataclass, field
from typing import Final

_ID_TIME_BITS: Final = 26
"""Of the nanoseconds, those that an id leaves out."""


@dataclass(slots=True)
class SystemClock:
    """The machine's own."""

    _random: random.Random = field(default_factory=random.Random)

    def monotonic(self) -> float:
        """Seconds for measuring."""
        return time.monotonic()

    def utc_us(self) -> int:
        """UTC now in microseconds."""
        return time.time_ns() // 1000

    def draw(self) -> float:
        """Uniform in [0, 1)."""
        return self._random.random()

    def new_id(self) -> str:
        """A new unique id: 67 milliseconds of UTC in its first 10 digits, chance in the other 22."""
        return ((time.time_ns() >> _ID_TIME_BITS).to_bytes(5, "big") + os.urandom(11)).hex()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)
