"""Tasks that kill the process they run in: each ends as a dead letter after its own attempts, and takes nobody along."""

from collections.abc import Iterator

import pytest

from reach_worker.core.names import Names
from tests.system.books import assert_one_end_each, attempts, histories
from tests.system.caller import Caller
from tests.system.crew import ONLY, WORK, runs
from tests.system.crew_at_work import CrewAtWork
from tests.system.processes import Processes

pytestmark = [pytest.mark.broker, pytest.mark.system]

LIMIT_S = 90.0
COMES_BACK = "memory"
"""What fails without taking its process along."""


@pytest.fixture
def caller(broker_url: str, names: Names) -> Iterator[Caller]:
    with Caller(broker_url, names.tasks) as caller:
        yield caller


@pytest.mark.parametrize("ways", [("exit", "segv"), ("kill", COMES_BACK)])
def test_of_thirty_tasks_around_two_that_kill_all_thirty_finish_and_nobody_is_charged(
    processes: Processes, caller: Caller, ways: tuple[str, ...]
) -> None:
    """Who runs agents starts them again when they die; this test does too. The breakers are as they are by default."""
    deadly = set(ways) - {COMES_BACK}
    fleet = CrewAtWork(
        processes,
        ["crew-1", "crew-2"],
        REACH_RETRY__MAX_RETRIES="1",
        REACH_BREAKER__STREAK="5",
        REACH_BREAKER__MIN_SAMPLES="8",
    )
    poison = {way: {"capability": WORK, "payload": {"die": 99, "way": way}} for way in ways}
    innocent = {
        f"t-{n}": {"capability": ONLY if n % 3 == 0 else WORK, "payload": {"hold": 0.3}} for n in range(30)
    }
    wanted = dict(list(innocent.items())[:10]) | poison | dict(list(innocent.items())[10:])
    caller.publish(wanted)
    deaths = supervised(fleet, caller, set(wanted))
    assert {task_id: caller.final(task_id)["status"] for task_id in innocent} == dict.fromkeys(
        innocent, "succeeded"
    )
    assert {caller.final(task_id)["attempt"] for task_id in innocent} == {1}
    for way in deadly:
        assert (caller.final(way)["status"], caller.final(way)["reason"]) == ("dead_letter", "poison")
    for way in set(ways) - deadly:
        assert caller.final(way)["reason"] == "attempts_exhausted"
    assert "breaker" not in fleet.router.log()
    fleet.stop()
    found = histories(fleet.store)
    assert_one_end_each(found, wanted)
    charged = {task_id: attempts(found[task_id]) for task_id in innocent}
    assert {kind for told in charged.values() for _, kind in told} <= {"succeeded", "released"}
    for way in ways:
        counted = [kind for _, kind in attempts(found[way]) if kind != "released"]
        assert counted == ["unavailable" if way in deadly else "failed"] * 2, "as many as are configured"
    assert 2 * len(deadly) <= deaths <= 3 * len(deadly)
    begun = runs(fleet.notes)
    assert sum(begun[way] for way in deadly) == deaths


def supervised(fleet: CrewAtWork, caller: Caller, task_ids: set[str]) -> int:
    """Start every agent that dies again, until each of these tasks has its end; how many did."""
    deaths = 0

    def some_died() -> bool:
        return any(agent.process.poll() is not None for agent in fleet.agents.values())

    while not task_ids <= caller.finished():
        caller.until(lambda: task_ids <= caller.finished() or some_died(), LIMIT_S)
        for agent_id, agent in fleet.agents.items():
            if agent.process.poll() is not None:
                fleet.agents[agent_id] = fleet.agent(agent_id)
                deaths += 1
    return deaths
