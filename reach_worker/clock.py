"""The one place that reads the clock, rolls dice and makes ids. Everything else is handed values or a ``Clock``."""

import asyncio
import os
import random
import time
from dataclasses import dataclass, field
from typing import Final

_ID_TIME_BITS: Final = 26
"""Of the nanoseconds, those that an id leaves out."""
_DIGITS: Final = 22
"""Of an id that are chance."""
_AT_ONCE: Final = 256


class _Chance:
    """Random digits, taken from the system for many ids at once.

    Whoever asks it lets go of the interpreter's lock, and gets it back when the threads that write the store let him.
    """

    def __init__(self) -> None:
        self._ready: list[str] = []
        os.register_at_fork(after_in_child=self._forget)

    def next_digits(self) -> str:
        """Digits that nobody had before, in no other thread either."""
        try:
            return self._ready.pop()
        except IndexError:
            digits = os.urandom(_AT_ONCE * _DIGITS // 2).hex()
            ready = [digits[at : at + _DIGITS] for at in range(0, len(digits), _DIGITS)]
            first = ready.pop()
            self._ready = ready
            return first

    def _forget(self) -> None:
        """A child process must not hand out its parent's."""
        self._ready = []


_CHANCE: Final = _Chance()


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
        return f"{time.time_ns() >> _ID_TIME_BITS:010x}{_CHANCE.next_digits()}"

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)
