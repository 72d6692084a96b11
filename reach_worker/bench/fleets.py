"""The six fleets, as data. Each is a situation that some way to choose an agent handles badly."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from reach_worker.bench.chance import log_normal


@dataclass(frozen=True, slots=True)
class SimulatedAgent:
    """What an agent really is, and what it says of itself.

    ``success``: share of its attempts that succeed; from each time (seconds) in ``changes`` on, another one.
    ``mean_s``, ``sigma``: log-normal service time. ``cost``: what an attempt really costs.
    ``fails_within_s``: its failures are that quick. ``joins_at``: seconds; before, nobody knows it.
    """

    agent_id: str
    success: float
    mean_s: float
    slots: int
    cost: float
    declared_latency_ms: float
    declared_cost: float
    sigma: float = 0.5
    fails_within_s: float | None = None
    joins_at: float = 0.0
    changes: tuple[tuple[float, float], ...] = ()

    def success_at(self, now: float) -> float:
        """Share of attempts begun at ``now`` that succeed."""
        success = self.success
        for since, changed in self.changes:
            if now >= since:
                success = changed
        return success

    def service_s(self, draw: float, *, good: bool) -> float:
        """Seconds that an attempt takes."""
        if not good and self.fails_within_s is not None:
            return self.fails_within_s * draw
        return log_normal(self.mean_s, self.sigma, draw)


@dataclass(frozen=True, slots=True)
class SimulatedFleet:
    """Agents, and the work that comes for them: a Poisson process of ``rate_per_s`` for ``seconds``.

    ``routers`` share the work by chance; each knows its own dispatches, and of the others' only what heartbeats say,
    ``news_s`` seconds late.
    """

    letter: str
    what: str
    agents: tuple[SimulatedAgent, ...]
    rate_per_s: float
    seconds: float
    routers: int = 1
    news_s: float = 0.0


_A_GOOD: Final = SimulatedAgent("a_good", 0.95, 2.0, 8, 3, 2000, 3)
_B_GOOD: Final = SimulatedAgent("b_good", 0.93, 2.5, 8, 2, 2500, 2)
_REST: Final = (
    SimulatedAgent("c_mid", 0.80, 1.5, 8, 1, 1500, 1),
    SimulatedAgent("d_prem", 0.99, 4.0, 8, 5, 4000, 5),
    SimulatedAgent("e_slow", 0.90, 8.0, 8, 2, 3000, 2),
)
_HONEST: Final = (_A_GOOD, _B_GOOD, *_REST)
_LIAR: Final = SimulatedAgent("a0_liar", 0.60, 0.5, 50, 1, 500, 1, fails_within_s=0.2)
_SICK: Final = (
    replace(_A_GOOD, changes=((900.0, 0.5),)),
    replace(_B_GOOD, changes=((600.0, 0.05), (1200.0, 0.93))),
    *_REST,
)
_EQUAL: Final = tuple(SimulatedAgent(f"w{n}", 0.95, 2.0, 4, 2, 2000, 2, sigma=0.8) for n in range(10))
_NEWCOMER: Final = (
    SimulatedAgent("a_old", 0.75, 2.0, 10, 3, 2000, 3),
    SimulatedAgent("b_old", 0.70, 2.0, 10, 3, 2000, 3),
    SimulatedAgent("z_new", 0.97, 2.0, 10, 3, 2500, 3, joins_at=300.0),
)
_CROWDED: Final = (
    SimulatedAgent("a_best", 0.97, 2.0, 4, 3, 2000, 3),
    SimulatedAgent("b", 0.90, 2.0, 8, 3, 2200, 3),
    SimulatedAgent("c", 0.90, 2.0, 8, 3, 2400, 3),
)

_ALL: Final = (
    SimulatedFleet("A", "five honest agents", _HONEST, 3.0, 1800.0),
    SimulatedFleet("B", "a cheap, instant one that fails 40 %", (*_HONEST, _LIAR), 0.05, 21600.0),
    SimulatedFleet("C", "one fails for ten minutes, another sickens", _SICK, 3.0, 1800.0),
    SimulatedFleet("D", "four routers over ten equal agents", _EQUAL, 14.0, 900.0, routers=4, news_s=5.0),
    SimulatedFleet("E", "a good newcomer after five minutes", _NEWCOMER, 2.0, 1800.0),
    SimulatedFleet("F", "near capacity", _CROWDED, 6.0, 900.0),
)
FLEETS: Final[Mapping[str, SimulatedFleet]] = {fleet.letter: fleet for fleet in _ALL}
