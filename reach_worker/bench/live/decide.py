"""``decide``: one decision after the other, in process, with nothing around it."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from reach_worker.bench.live.figures import middle, quantile
from reach_worker.bench.live.known_fleet import CAPABILITIES, known_fleet
from reach_worker.bench.live.scene import TEXT_BYTES
from reach_worker.bench.live.sizes import Sizes
from reach_worker.bench.live.usage import Usage
from reach_worker.clock import SystemClock
from reach_worker.core.fleet import Fleet
from reach_worker.core.gates import Ask
from reach_worker.core.policy import RoutingPolicy
from reach_worker.core.routing import Chosen, plan
from reach_worker.core.success import TrackRecord
from reach_worker.errors import OurBug
from reach_worker.services.lifecycle import few_collections

AGENTS: Final = (5, 20, 200, 1_000)
WARM_UP: Final = 5
POLICIES: Final[Mapping[str, RoutingPolicy]] = {
    "": RoutingPolicy(),
    "without_exploration": RoutingPolicy(explore=0.0),
}


@dataclass(frozen=True, slots=True)
class Decided:
    """One run. Microseconds of one decision: by the clock, and of CPU time, which a busy machine does not stretch."""

    per_s: float
    p50_us: float
    p99_us: float
    cpu_us: float
    cpu_p99_us: float


def run(sizes: Sizes) -> dict[str, object]:
    """Each number of agents with each policy, alternating."""
    found: dict[tuple[int, str], list[Decided]] = {}
    for agents in AGENTS:
        fleet = known_fleet(agents, SystemClock().monotonic())
        few_collections()  # as a router does once its fleet is there
        for _ in range(sizes.runs):
            for name, policy in POLICIES.items():
                measured = decisions(fleet, max(sizes.fewest, sizes.candidates // agents), policy)
                found.setdefault((agents, name), []).append(measured)
    return {
        "capabilities": len(CAPABILITIES),
        **{str(agents): _summary({name: found[agents, name] for name in POLICIES}) for agents in AGENTS},
        "peak_mb": middle([Usage.own().peak_mb]),
    }


def decisions(fleet: Fleet, count: int, policy: RoutingPolicy) -> Decided:
    """So many decisions, each for another task. Raises ``OurBug`` if a task finds no agent."""
    clock = SystemClock()
    wanted = asks(WARM_UP + count)
    for ask in wanted[:WARM_UP]:
        if not isinstance(plan(ask, fleet, policy, clock.monotonic()).choice, Chosen):
            raise OurBug("a task of the bench found no agent")
    took: list[float] = []
    used: list[float] = []
    for ask in wanted[WARM_UP:]:
        began, cpu = clock.monotonic(), time.thread_time()
        plan(ask, fleet, policy, began)
        used.append(time.thread_time() - cpu)
        took.append(clock.monotonic() - began)
    took.sort()
    cpu_s = sum(used)
    used.sort()
    return Decided(
        per_s=count / sum(took),
        p50_us=quantile(took, 0.5) * 1e6,
        p99_us=quantile(took, 0.99) * 1e6,
        cpu_us=cpu_s / count * 1e6,
        cpu_p99_us=quantile(used, 0.99) * 1e6,
    )


def with_record(agents: int, record: TrackRecord, count: int) -> Decided:
    """Decisions over a fleet whose record came out of a store."""
    return decisions(known_fleet(agents, SystemClock().monotonic(), record), count, POLICIES[""])


def summary(measured: list[Decided]) -> dict[str, float]:
    """Medians of the runs."""
    return {
        "decisions_per_s": middle([one.per_s for one in measured]),
        "p50_us": middle([one.p50_us for one in measured]),
        "p99_us": middle([one.p99_us for one in measured]),
        "cpu_us": middle([one.cpu_us for one in measured]),
        "cpu_p99_us": middle([one.cpu_p99_us for one in measured]),
    }


def _summary(by_policy: Mapping[str, list[Decided]]) -> dict[str, object]:
    return {
        **summary(by_policy[""]),
        **{name: summary(measured) for name, measured in by_policy.items() if name},
    }


def asks(count: int) -> list[Ask]:
    """So many tasks of the bench, as a decision sees them."""
    return [_ask(number) for number in range(count)]


def _ask(number: int) -> Ask:
    payload = {"text": "x" * TEXT_BYTES}
    return Ask(f"task-{number:08}", CAPABILITIES[number % len(CAPABILITIES)], payload)
