from collections import Counter

import pytest

from reach_worker.bench.chance import Chance
from reach_worker.bench.fleets import SimulatedAgent
from reach_worker.bench.knowledge import UTC_AT_START_S, Knowledge, fleet_for, manifest_of
from reach_worker.bench.stand_ins import STAND_INS
from reach_worker.bench.tasks import CAPABILITY
from reach_worker.core.gates import Ask
from reach_worker.core.slots import Lease
from tests.bench.small_fleets import agent

ASK = Ask("t1", CAPABILITY, {})


def known(*agents: SimulatedAgent) -> Knowledge:
    knowledge = Knowledge(fleet_for(1, early=False), Chance("stand-ins").draw)
    for one in agents:
        knowledge.meet(manifest_of(one), 0.0)
    return knowledge


def occupy(knowledge: Knowledge, agent_id: str, count: int) -> None:
    for number in range(count):
        knowledge.fleet.leases.add(Lease(f"{agent_id}{number}", agent_id, "t", 0.0, 60.0, 0, probe=False))


def served(knowledge: Knowledge, agent_id: str, seconds: float, *, good: int = 10, bad: int = 0) -> None:
    track = knowledge.fleet.record.touch(agent_id, CAPABILITY)
    for number in range(good + bad):
        track.ended(UTC_AT_START_S, good=number < good, seconds=seconds)


def chosen(name: str, knowledge: Knowledge, times: int = 400) -> dict[str | None, float]:
    found = Counter(STAND_INS[name](ASK, knowledge, 0.0) for _ in range(times))
    return {agent_id: count / times for agent_id, count in found.items()}


@pytest.mark.parametrize("name", STAND_INS)
def test_gates_hold(name: str) -> None:
    knowledge = known(agent("a"), agent("b"))
    occupy(knowledge, "a", 1)
    assert chosen(name, knowledge, 20) == {"b": 1.0}
    occupy(knowledge, "b", 1)
    assert chosen(name, knowledge, 20) == {None: 1.0}


@pytest.mark.parametrize("name", STAND_INS)
def test_equal_agents_share(name: str) -> None:
    knowledge = known(agent("a"), agent("b"))
    assert chosen(name, knowledge) == {"a": pytest.approx(0.5, abs=0.08), "b": pytest.approx(0.5, abs=0.08)}


def test_random_does_not_look() -> None:
    knowledge = known(agent("a", slots=8), agent("b", slots=8))
    occupy(knowledge, "a", 7)
    served(knowledge, "a", 9.0, good=1, bad=9)
    assert chosen("random", knowledge)["a"] == pytest.approx(0.5, abs=0.08)


def test_least_busy() -> None:
    knowledge = known(agent("a", slots=8), agent("b", slots=8), agent("c", slots=8))
    occupy(knowledge, "a", 2)
    occupy(knowledge, "b", 1)
    occupy(knowledge, "c", 1)
    assert set(chosen("least_busy", knowledge)) == {"b", "c"}


def test_lowest_latency_is_the_declared_one_until_some_is_observed() -> None:
    knowledge = known(agent("a", mean_s=2.0), agent("b", mean_s=1.0))
    assert chosen("lowest_latency", knowledge) == {"b": 1.0}
    served(knowledge, "b", 3.0)
    assert chosen("lowest_latency", knowledge) == {"a": 1.0}
    served(knowledge, "a", 3.04)
    assert set(chosen("lowest_latency", knowledge)) == {"a", "b"}


def test_the_better_of_two() -> None:
    knowledge = known(agent("a", slots=8), agent("b", slots=8), agent("c", slots=8))
    served(knowledge, "a", 1.0)
    served(knowledge, "b", 1.0, good=8, bad=2)
    served(knowledge, "c", 9.0)
    shares = chosen("p2c", knowledge, 1500)
    assert shares == {"a": pytest.approx(2 / 3, abs=0.05), "b": pytest.approx(1 / 3, abs=0.05)}


def test_what_is_pending_makes_one_of_two_worse() -> None:
    knowledge = known(agent("a", slots=8), agent("b", slots=8))
    served(knowledge, "a", 1.0)
    served(knowledge, "b", 1.2)
    assert chosen("p2c", knowledge, 50) == {"a": 1.0}
    occupy(knowledge, "a", 3)  # 1 / (1 + 1.0 × 1.3) is less than 1 / (1 + 1.2)
    assert chosen("p2c", knowledge, 50) == {"b": 1.0}
