"""The plan of faults."""

from collections.abc import Iterator

import pytest

from reach_worker.chaos.faults import (
    APART_S,
    IMPORTANT,
    LASTS_S,
    SHORT_LASTS_S,
    Fault,
    FaultKind,
    plan_faults,
)
from reach_worker.chaos.scale import AGENTS, FULL, ROUTERS, SHORT, Scale, soak

SEEDS = range(300)
KILLS = {FaultKind.ROUTER_KILL, FaultKind.AGENT_KILL, FaultKind.BROKER_KILL}


def plans(scale: Scale) -> Iterator[list[Fault]]:
    return (plan_faults(seed, scale) for seed in SEEDS)


def test_a_seed_repeats_its_plan_and_another_has_another() -> None:
    assert plan_faults(7, FULL) == plan_faults(7, FULL)
    assert plan_faults(7, FULL) != plan_faults(8, FULL)


@pytest.mark.parametrize("scale", [FULL, soak(3), soak(60)])
def test_every_kind_happens(scale: Scale) -> None:
    assert all({fault.kind for fault in plan} == set(FaultKind) for plan in plans(scale))


def test_of_a_short_run_every_important_kind_happens() -> None:
    assert set(IMPORTANT) >= KILLS
    assert all({fault.kind for fault in plan} == set(IMPORTANT) for plan in plans(SHORT))


def test_there_are_as_many_as_asked_for_and_sixty_at_least() -> None:
    assert all(len(plan) == FULL.faults >= 60 for plan in plans(FULL))
    assert all(len(plan) == SHORT.faults >= 12 for plan in plans(SHORT))


@pytest.mark.parametrize("scale", [FULL, SHORT])
def test_they_come_in_order_while_there_is_load_and_last_as_long_as_they_may(scale: Scale) -> None:
    for plan in plans(scale):
        times = [fault.at_s for fault in plan]
        assert times == sorted(times)
        assert 0 < times[0] < times[-1] < scale.load_s
        for fault in plan:
            low, high = LASTS_S.get(fault.kind, (0.0, 0.0))
            assert low <= fault.lasts_s <= (high if scale.every_kind else min(high, SHORT_LASTS_S))


def test_each_meets_somebody_it_can_meet() -> None:
    for fault in plan_faults(3, FULL):
        if fault.kind.startswith("router_"):
            assert fault.target in ROUTERS
        elif fault.kind.startswith("agent_") or fault.kind is FaultKind.QUEUE_DELETED:
            assert fault.target in AGENTS
        else:
            assert fault.target in ("broker", "store")


@pytest.mark.parametrize("scale", [FULL, SHORT, soak(30)])
def test_no_router_goes_while_only_it_has_what_was_in_a_deleted_queue(scale: Scale) -> None:
    for plan in plans(scale):
        deleted = [fault.at_s for fault in plan if fault.kind is FaultKind.QUEUE_DELETED]
        gone = [f.at_s for f in plan if f.kind in (FaultKind.ROUTER_KILL, FaultKind.ROUTER_STOP)]
        assert all(abs(one - other) >= APART_S for one in deleted for other in gone)
