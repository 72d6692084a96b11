"""How much is measured: in full, or in a form that is over in a minute or two."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """How often, how much, how long.

    ``runs``: of each contender, alternating. ``tasks``: of a complete run. ``level_s``: how long each rate of ``latency``
    is held. ``candidates``: that a run of ``decide`` looks at in all. ``fewest``: decisions, or tasks, that quantiles are
    taken of. ``outcomes``, ``agents``: what the store, what the fleet grows to. ``in_flight``, ``waiting``: tasks while
    memory is looked at; those that wait are let wait ``steady_s``. ``rows_of``: tasks whose rows are written.
    ``questions``: asked of the longest history. ``letters``: dead letters that are listed and replayed.
    """

    runs: int = 3
    tasks: int = 5_000
    level_s: float = 10.0
    candidates: int = 100_000
    fewest: int = 100
    outcomes: tuple[int, ...] = (0, 100_000, 1_000_000)
    agents: tuple[int, ...] = (10, 100, 500)
    in_flight: int = 10_000
    waiting: int = 100_000
    steady_s: float = 10.0
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
    fewest=20,
    outcomes=(0, 5_000),
    agents=(4, 12),
    in_flight=300,
    waiting=1_000,
    steady_s=1.0,
    rows_of=400,
    questions=50,
    letters=300,
    limit_s=90.0,
)
