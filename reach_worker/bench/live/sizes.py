"""How much is measured: in full, or in a form that is over in a minute or two."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """``runs``: of each contender, alternating. ``tasks``: of a complete run.

    ``level_s``: how long each rate of ``latency`` is held. ``candidates``: that a run of ``decide`` looks at in all.
    ``outcomes``, ``agents``: what the store, what the fleet grows to. ``in_flight``, ``waiting``: tasks while memory is
    looked at. ``rows_of``: tasks whose rows are written, and dead letters that are listed and replayed: ``letters``.
    """

    runs: int = 3
    tasks: int = 5_000
    level_s: float = 10.0
    candidates: int = 100_000
    outcomes: tuple[int, ...] = (0, 100_000, 1_000_000)
    agents: tuple[int, ...] = (10, 100, 500)
    in_flight: int = 10_000
    waiting: int = 100_000
    rows_of: int = 20_000
    questions: int = 500
    letters: int = 10_000
    limit_s: float = 300.0


FULL = Sizes()
SHORT = Sizes(
    runs=1,
    tasks=300,
    level_s=1.0,
    candidates=5_000,
    outcomes=(0, 5_000),
    agents=(4, 12),
    in_flight=300,
    waiting=1_000,
    rows_of=400,
    questions=50,
    letters=300,
    limit_s=90.0,
)
