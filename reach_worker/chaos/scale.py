"""How much happens in a run, and for how long."""

from dataclasses import dataclass
from typing import Final

ROUTERS: Final = ("router-1", "router-2")
AGENTS: Final = ("chaos-1", "chaos-2", "chaos-3", "chaos-4", "chaos-5", "chaos-6")


@dataclass(frozen=True, slots=True)
class Scale:
    """A run in numbers.

    ``load_s``: tasks come, and faults happen, for so long. ``rest_s``: afterwards the tasks that are left may come to
    their ends no further apart.
    ``poison``: tasks that kill the process they run in; each costs up to eight processes. ``every_kind``: of the kinds of
    faults all happen, else only the important ones, and none lasts long.
    """

    tasks: int
    load_s: float
    faults: int
    rest_s: float
    poison: int
    every_kind: bool

    @property
    def rate(self) -> float:
        """Tasks per second."""
        return self.tasks / self.load_s


SHORT: Final = Scale(tasks=1_000, load_s=30.0, faults=13, rest_s=30.0, poison=1, every_kind=False)
FULL: Final = Scale(tasks=20_000, load_s=390.0, faults=66, rest_s=60.0, poison=5, every_kind=True)


def soak(minutes: float) -> Scale:
    """As the full run, for so many minutes of load."""
    factor = minutes * 60 / FULL.load_s
    return Scale(
        tasks=max(1_000, round(FULL.tasks * factor)),
        load_s=minutes * 60,
        faults=max(20, round(FULL.faults * factor)),
        rest_s=FULL.rest_s,
        poison=max(1, round(FULL.poison * factor)),
        every_kind=True,
    )
