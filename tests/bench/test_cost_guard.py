"""What a decision costs, held against a loop of plain Python in the same process.

Both are CPU time of this thread, the least of several tries, taken in turns: neither another process, nor the machine,
nor a pause of the interpreter moves their ratio by much. Three times what it is now would be no accident.
"""

import gc
import math
import time
from collections.abc import Callable

import pytest

from reach_worker.bench.live.decide import asks
from reach_worker.bench.live.known_fleet import known_fleet
from reach_worker.clock import SystemClock
from reach_worker.core.policy import RoutingPolicy
from reach_worker.core.routing import Chosen, plan

TRIES = 7
DECISIONS = 40
REFERENCE = 2_000
WORTH = {4: 350.0, 20: 1_600.0, 200: 20_000.0}
"""By number of agents: steps of the reference loop that a decision may cost, three times what it does (115, 520, 6,500).

To be lowered whenever deciding becomes cheaper."""


def reference(steps: int) -> float:
    """Arithmetic, a dictionary, a tuple and a sort: what deciding is made of."""
    total = 0.0
    for step in range(steps):
        parts = {name: (name, step * 0.5, math.exp(-step / 1000)) for name in ("a", "b", "c", "d")}
        total += math.fsum(sorted(value * weight for _, weight, value in parts.values()))
    return total


def least_cpu_s(*works: Callable[[], object]) -> list[float]:
    """Of each, the least CPU time of several tries, in turns."""
    least = [math.inf] * len(works)
    for _ in range(TRIES):
        for place, work in enumerate(works):
            began = time.thread_time()
            work()
            least[place] = min(least[place], time.thread_time() - began)
    return least


@pytest.mark.parametrize("agents", WORTH)
def test_a_decision_costs_no_more_than_it_should(agents: int) -> None:
    now = SystemClock().monotonic()
    fleet, policy = known_fleet(agents, now), RoutingPolicy()
    wanted = asks(max(4, DECISIONS * 4 // agents))

    def decide() -> None:
        for ask in wanted:
            ask.checked.clear()
            assert isinstance(plan(ask, fleet, policy, now).choice, Chosen)

    gc.collect()
    deciding, looping = least_cpu_s(decide, lambda: reference(REFERENCE))
    cost = (deciding / len(wanted)) / (looping / REFERENCE)
    assert cost < WORTH[agents], (
        f"a decision among {agents} agents costs {cost:.0f} steps of the reference loop"
    )
