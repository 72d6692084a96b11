"""The simulation against what is known of queues, and against itself."""

import math
from dataclasses import replace
from itertools import pairwise
from statistics import fmean

import pytest

from reach_worker.bench.fleets import FLEETS, SimulatedAgent
from reach_worker.bench.simulation import Run, Simulation, simulate
from reach_worker.bench.stand_ins import STAND_INS
from reach_worker.bench.tasks import ATTEMPT_S, DEADLINE_S, MOST_ATTEMPTS, Task
from tests.bench.small_fleets import agent, fleet

ANY = STAND_INS["random"]


def ended_at(task: Task) -> float:
    assert task.ended_at is not None
    return task.ended_at


def mean_seconds(run: Run) -> float:
    return fmean(ended_at(task) - task.arrived_at for task in run.tasks)


def erlang_c(slots: int, load: float) -> float:
    """Share of arrivals that wait in an M/M/c queue; ``load`` in erlangs."""
    terms = [load**n / math.factorial(n) for n in range(slots)]
    last = load**slots / math.factorial(slots) * slots / (slots - load)
    return last / (sum(terms) + last)


@pytest.mark.parametrize("early", [False, True])
def test_one_slot_is_an_m_g_1_queue(early: bool) -> None:
    """Pollaczek and Khinchine: the mean wait is λ E[S²] / 2 (1 - λ E[S])."""
    rate, mean = 1.0, 0.5
    run = simulate(fleet(agent(mean_s=mean), rate_per_s=rate, seconds=20_000.0), ANY, seed=1, early=early)
    square = mean**2 * math.exp(0.5**2)
    assert mean_seconds(run) == pytest.approx(mean + rate * square / (2 * (1 - rate * mean)), rel=0.03)


def test_several_slots_are_an_m_m_c_queue() -> None:
    """Service times as wide as exponential ones (σ² = ln 2) make about the same mean wait."""
    slots, mean, load = 4, 1.0, 3.2
    as_wide = replace(agent(mean_s=mean, slots=slots), sigma=math.sqrt(math.log(2)))
    run = simulate(fleet(as_wide, rate_per_s=load / mean, seconds=8_000.0), ANY, seed=1)
    wait = erlang_c(slots, load) * mean / (slots - load)
    assert mean_seconds(run) == pytest.approx(mean + wait, rel=0.06)


def test_with_one_agent_it_is_the_same_where_tasks_wait() -> None:
    alone = fleet(agent(mean_s=0.8), seconds=500.0)
    late, early = (simulate(alone, ANY, seed=3, early=early) for early in (False, True))
    assert [task.ended_at for task in late.tasks] == pytest.approx([task.ended_at for task in early.tasks])
    assert late.longest_queue == 0
    assert early.longest_queue > 0


def test_arrivals() -> None:
    run = simulate(fleet(agent(slots=8), rate_per_s=3.0, seconds=5000.0), ANY, seed=1)
    gaps = [after.arrived_at - before.arrived_at for before, after in pairwise(run.tasks)]
    assert fmean(gaps) == pytest.approx(1 / 3, rel=0.03)
    assert sum(gap > 1.0 for gap in gaps) / len(gaps) == pytest.approx(math.exp(-3.0), rel=0.1)
    assert all(0 <= task.arrived_at < 5000 for task in run.tasks)


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("letter", FLEETS)
def test_every_task_ends_once_and_every_slot_is_given_back(letter: str, early: bool) -> None:
    short = replace(FLEETS[letter], seconds=FLEETS[letter].seconds / 6)
    simulation = Simulation(short, ANY, seed=1, early=early)
    run = simulation.run()
    assert len(run.tasks) == pytest.approx(short.rate_per_s * short.seconds, rel=0.3)
    for task in run.tasks:  # that none ends twice, Task.end sees to
        assert 0 < ended_at(task) - task.arrived_at <= DEADLINE_S + 1e-6
        assert len(task.agents) <= MOST_ATTEMPTS
        assert task.good >= task.first_good
        assert not (task.first_good and len(task.agents) > 1)
    assert all(len(router.knowledge.fleet.leases) == 0 for router in simulation.routers)
    assert all(not router.waiting for router in simulation.routers)


def test_what_was_spent_is_what_the_attempts_cost() -> None:
    two = fleet(agent("a", success=0.5, cost=1.0, slots=8), agent("b", success=0.5, cost=10.0, slots=8))
    run = simulate(two, ANY, seed=1)
    assert run.spent == sum({"a": 1.0, "b": 10.0}[name] for task in run.tasks for name in task.agents)


def test_a_failed_task_goes_to_another_agent_once() -> None:
    run = simulate(fleet(agent("a", success=0.0, slots=8), agent("b", success=0.0, slots=8)), ANY, seed=1)
    tried = [task for task in run.tasks if task.agents]
    assert {tuple(sorted(task.agents)) for task in tried} <= {("a",), ("b",), ("a", "b")}
    assert any(len(task.agents) == 2 for task in tried)
    assert not any(task.good for task in run.tasks)


def test_an_agent_that_always_fails_is_left_alone_but_for_probes() -> None:
    pair = fleet(agent("bad", success=0.0, slots=8), agent("good", slots=8), rate_per_s=2.0)
    run = simulate(pair, ANY, seed=1)
    asked = [task.arrived_at for task in run.tasks if "bad" in task.agents]
    assert 5 <= len([at for at in asked if at < 60]) <= 30
    assert len([at for at in asked if at >= 60]) <= 10


def test_an_attempt_may_take_so_long_and_the_only_agent_may_try_again() -> None:
    run = simulate(fleet(agent("a", mean_s=500.0, slots=8), rate_per_s=0.1, seconds=40.0), ANY, seed=1)
    assert run.tasks
    assert all(task.agents == ["a", "a"] and not task.good for task in run.tasks)
    assert [ended_at(task) - task.arrived_at for task in run.tasks] == pytest.approx(
        [2 * ATTEMPT_S] * len(run.tasks)
    )


def newcomer(joins_at: float) -> SimulatedAgent:
    return replace(agent("b", slots=8), joins_at=joins_at)


def test_a_newcomer_gets_work_from_when_it_joins() -> None:
    run = simulate(fleet(agent("a", slots=8), newcomer(300.0)), ANY, seed=1)
    at_b = [task.arrived_at for task in run.tasks if "b" in task.agents]
    assert min(at_b) > 290
    assert len([at for at in at_b if at > 300]) > 100


def test_when_nobody_can_take_it_a_task_waits_until_its_deadline() -> None:
    run = simulate(fleet(newcomer(100.0), seconds=20.0), ANY, seed=1)
    assert run.tasks
    assert not any(task.agents or task.first_good or task.good for task in run.tasks)
    assert [ended_at(task) for task in run.tasks] == pytest.approx([task.deadline for task in run.tasks])


def test_what_waits_for_a_newcomer_is_bound_when_it_joins() -> None:
    run = simulate(fleet(newcomer(20.0), seconds=5.0, rate_per_s=2.0), ANY, seed=1)
    assert all(task.good and ended_at(task) > 20 for task in run.tasks)


def test_routers_share_the_slots_and_hear_of_each_other_late() -> None:
    simulation = Simulation(fleet(agent(slots=8), rate_per_s=6.0, routers=4), ANY, seed=1, early=False)
    run = simulation.run()
    assert run.longest_queue == 0
    assert all(router.knowledge.fleet.routers == 4 for router in simulation.routers)
    assert all(task.good for task in run.tasks)


def test_policies_get_the_same_tasks_and_the_same_run_comes_twice() -> None:
    one, again, other = (
        simulate(FLEETS["E"], STAND_INS[name], seed=5) for name in ("random", "random", "least_busy")
    )
    assert [task.agents for task in one.tasks] == [task.agents for task in again.tasks]
    assert [task.ended_at for task in one.tasks] == [task.ended_at for task in again.tasks]
    assert [(task.arrived_at, task.luck) for task in one.tasks] == [
        (task.arrived_at, task.luck) for task in other.tasks
    ]
    assert [task.agents for task in one.tasks] != [task.agents for task in other.tasks]
