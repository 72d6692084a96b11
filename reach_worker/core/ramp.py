"""Ramp: the slots of an agent that was broken come back in steps.

States and what moves between them (with steps 10 %, 25 %, 50 % and five successes a step)::

    ALL    breaker closed by its probe → STEP 1  (10 %)
    STEP 1 five successes              → STEP 2  (25 %)
    STEP 2 five successes              → STEP 3  (50 %)
    STEP 3 five successes              → ALL
    any    breaker opened              → as it was: an open breaker lets nothing through anyway

A failure moves nothing here: the breaker's own rules say when it opens again, and the next probe begins at step 1.
"""

from dataclasses import dataclass

_ROUNDING = 1e-9


@dataclass(slots=True)
class Ramp:
    """How much of its slots an agent has back. ``successes`` since the probe, ``None`` while it has all of them."""

    steps: tuple[float, ...]
    step_successes: int
    successes: int | None = None

    def begin(self) -> None:
        """The probe succeeded."""
        self.successes = 0 if self.steps else None

    def succeeded(self) -> None:
        """One more success."""
        if self.successes is None:
            return
        self.successes += 1
        if self.successes >= self.step_successes * len(self.steps):
            self.successes = None

    def slots(self, of: int) -> int:
        """How many of so many slots are back: rounded down, at least one of any."""
        if self.successes is None or of <= 0:
            return of
        return max(1, int(of * self.steps[self.successes // self.step_successes] + _ROUNDING))
