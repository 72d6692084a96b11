"""An agent that dies, or fails again and again: its work goes to another, soon, and once."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from reach_worker.core.names import Names
from tests.system.books import assert_one_end_each, attempts, histories, outcomes
from tests.system.caller import Caller
from tests.system.crew import BREAKS, BROKEN, ONCE, ONLY, WORK, begun, runs
from tests.system.crew_at_work import CrewAtWork
from tests.system.processes import Processes, Running
from tests.tooling.observing import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.system]

SOON_S: Final = 12.0
"""Suspected after 1.5 s, proven dead at once, a retry of at most a second; the rest is a slow machine."""


@pytest.fixture
def caller(broker_url: str, names: Names) -> Iterator[Caller]:
    with Caller(broker_url, names.tasks) as caller:
        yield caller


def test_what_a_killed_agent_had_in_hand_runs_elsewhere(processes: Processes, caller: Caller) -> None:
    fleet = CrewAtWork(processes, ["crew-1", "crew-2"])
    gate = processes.folder / "gate"
    tasks = {f"t-{n}": {"capability": WORK, "payload": {"until": str(gate)}} for n in range(12)}
    caller.publish(tasks)
    wait_until(lambda: len(begun(fleet.notes)) == 8)
    in_hand = {task_id for agent_id, task_id in begun(fleet.notes) if agent_id == "crew-1"}
    assert len(in_hand) == 4
    fleet.agents["crew-1"].kill()
    gate.touch()
    caller.until_answered(tasks, SOON_S)
    assert {caller.final(task_id)["agent"] for task_id in in_hand} == {"crew-2"}
    fleet.stop()
    found = histories(fleet.store)
    assert_one_end_each(found, tasks)
    for task_id in tasks:
        lost = [("crew-1", "released")] if task_id in in_hand else []
        assert attempts(found[task_id]) == [*lost, ("crew-2", "succeeded")]
    assert runs(fleet.notes) == {task_id: 1 + (task_id in in_hand) for task_id in tasks}


def test_with_side_effects_a_person_is_asked_and_it_does_not_run_again(
    processes: Processes, caller: Caller
) -> None:
    fleet = CrewAtWork(processes, ["crew-1", "crew-2"])
    gate = processes.folder / "gate"
    tasks = {
        f"t-{n}": {"capability": ONCE, "side_effects": True, "payload": {"until": str(gate)}}
        for n in range(6)
    }
    caller.publish(tasks)
    wait_until(lambda: len(begun(fleet.notes)) == 6)
    in_hand = {task_id for agent_id, task_id in begun(fleet.notes) if agent_id == "crew-1"}
    fleet.agents["crew-1"].kill()
    gate.touch()
    caller.until_answered(tasks, SOON_S)
    for task_id in tasks:
        answer = caller.final(task_id)
        assert (answer["status"], answer.get("reason")) == (
            ("dead_letter", "outcome_unknown") if task_id in in_hand else ("succeeded", None)
        )
    fleet.stop()
    assert set(runs(fleet.notes).values()) == {1}


def test_a_killed_instance_is_not_a_killed_agent(processes: Processes, caller: Caller) -> None:
    """The other instance of the same agent takes up what it had, and each runs alone: it may have been what killed."""
    fleet = CrewAtWork(processes, ["crew-1"])
    second = fleet.agent("crew-1")
    gate = processes.folder / "gate"
    tasks = {f"t-{n}": {"capability": ONLY, "payload": {"until": str(gate)}} for n in range(8)}
    caller.publish(tasks)
    wait_until(lambda: len(begun(fleet.notes)) == 8)
    fleet.agents["crew-1"].kill()
    gate.touch()
    caller.until_answered(tasks, SOON_S)
    assert {caller.final(task_id)["status"] for task_id in tasks} == {"succeeded"}
    assert second.stop() == 0
    fleet.stop()
    assert_one_end_each(histories(fleet.store), tasks)


def test_a_task_that_kills_its_agents_is_given_up_and_takes_nobody_along(
    processes: Processes, caller: Caller
) -> None:
    fleet = CrewAtWork(processes, ["crew-1", "crew-2"], REACH_RETRY__MAX_RETRIES="1")
    caller.publish({"poison": {"capability": WORK, "payload": {"die": 99}}})
    innocent = {f"t-{n}": {"capability": WORK, "payload": {"hold": 0.1}} for n in range(12)}
    caller.publish(innocent)
    deaths = 0
    while "poison" not in caller.finished():
        for agent_id, agent in fleet.agents.items():
            if agent.process.poll() is not None:
                fleet.agents[agent_id] = fleet.agent(agent_id)
                deaths += 1
        caller.until(lambda: "poison" in caller.finished() or _some_died(fleet))
    caller.until_answered(innocent, SOON_S)
    answer = caller.final("poison")
    assert (answer["status"], answer["reason"]) == ("dead_letter", "poison")
    assert 2 <= deaths <= 4
    assert {caller.final(task_id)["status"] for task_id in innocent} == {"succeeded"}
    fleet.stop()
    assert_one_end_each(histories(fleet.store), ["poison", *innocent])


def _some_died(fleet: CrewAtWork) -> bool:
    return any(agent.process.poll() is not None for agent in fleet.agents.values())


BREAKER: Final = {
    "REACH_BREAKER__STREAK": "3",
    "REACH_BREAKER__OPEN_S": "2",
    "REACH_BREAKER__GROWTH": "1",
}


def test_a_broken_agent_loses_its_work_to_another(processes: Processes, caller: Caller) -> None:
    """Its breaker opens; what waits for it is taken back, and a probe now and then is all that it gets."""
    fleet = CrewAtWork(processes, ["crew-2"], **{**BREAKER, "REACH_BREAKER__OPEN_S": "60"})
    fleet.agents["crew-1"] = fleet.agent("crew-1", **{BROKEN: "yes"})
    tasks = {f"t-{n}": {"capability": WORK, "payload": {"hold": 0.02}} for n in range(40)}
    caller.publish(tasks)
    caller.until_answered(tasks)
    assert {caller.final(task_id)["agent"] for task_id in tasks} == {"crew-2"}
    assert re.search("breaker of crew-1: open", fleet.router.log())
    fleet.stop()
    found = histories(fleet.store)
    assert_one_end_each(found, tasks)
    assert 3 <= outcomes(found)["failed"] <= 3 + 4, "what was under way when it opened, and no more"


def test_when_all_that_could_are_broken_tasks_wait_and_spend_nothing(
    processes: Processes, caller: Caller
) -> None:
    fleet = CrewAtWork(processes, [], **BREAKER, REACH_RETRY__MAX_RETRIES="9")
    fleet.agents["crew-1"] = fleet.agent("crew-1", **{BROKEN: "yes"})
    caller.publish({"first": {"capability": ONLY}})
    fleet.router.wait_for("breaker of crew-1: open")
    waiting = {f"t-{n}": {"capability": ONLY} for n in range(20)}
    caller.publish(waiting)
    fleet.agents["crew-1"].stop()
    fleet.agents["crew-1"] = fleet.agent("crew-1")
    caller.until_answered(["first", *waiting])
    assert {caller.final(task_id)["status"] for task_id in ["first", *waiting]} == {"succeeded"}
    fleet.stop()
    found = histories(fleet.store)
    assert outcomes(found).keys() <= {"succeeded", "failed", "released"}
    assert [task_id for task_id in waiting if ("crew-1", "failed") in attempts(found[task_id])] == []


# ---- With a full queue, 500 more that wait, and two routers

BREAKER_PERIOD_S: Final = 30.0
WAITING: Final = 500


def two_routers(processes: Processes, breaks: Path) -> tuple[CrewAtWork, Running]:
    """Two agents that both routers have heard of. Once the file is there the first one fails at everything."""
    settings = {"REACH_BREAKER__STREAK": "3", "REACH_PRESENCE__DEAD_S": "3"}
    fleet = CrewAtWork(processes, [], **settings)
    other = processes.router(REACH_ROUTER__ID="router-2", **settings)
    for agent_id, more in (("crew-1", {BREAKS: str(breaks)}), ("crew-2", {})):
        fleet.agents[agent_id] = fleet.agent(agent_id, **more)
        other.wait_for(rf"{agent_id} instance \S+ is active")
    return fleet, other


@pytest.mark.parametrize("way", ["it dies", "its breaker opens"])
def test_a_crowd_is_routed_on_within_a_breaker_period(processes: Processes, caller: Caller, way: str) -> None:
    """By their owners, each once, and only what had begun at the agent spends an attempt."""
    gate, breaks = processes.folder / "gate", processes.folder / "breaks"
    fleet, other = two_routers(processes, breaks)
    warm = {f"warm-{n}": {"capability": WORK} for n in range(60)}
    caller.publish(warm)
    caller.until_answered(warm)
    tasks = {f"t-{n}": {"capability": WORK, "payload": {"until": str(gate)}} for n in range(WAITING)}
    caller.publish(tasks)
    wait_until(lambda: len(begun(fleet.notes)) == len(warm) + 8)
    if way == "it dies":
        fleet.agents["crew-1"].kill()
    breaks.touch()
    gate.touch()
    caller.until_answered(tasks, BREAKER_PERIOD_S)
    assert {caller.final(task_id)["status"] for task_id in tasks} == {"succeeded"}
    other.stop()
    fleet.stop()
    at_first = {task_id for agent_id, task_id in begun(fleet.notes) if agent_id == "crew-1"} & tasks.keys()
    assert 4 <= len(at_first) <= 40, "what it ran, and what it had taken from its queue before"
    found = histories(fleet.store)
    assert_one_end_each(found, [*tasks, *warm])
    for task_id in tasks:
        counted = [(agent, outcome) for agent, outcome in attempts(found[task_id]) if outcome != "released"]
        spent = [("crew-1", "unavailable" if way == "it dies" else "failed")] if task_id in at_first else []
        unheard_of = way == "it dies" and counted == [("crew-2", "succeeded")]
        assert unheard_of or counted == [*spent, ("crew-2", "succeeded")], "it had just begun, or it counts"
        one_after_the_other = len(attempts(found[task_id])) == len(found[task_id].dispatches)
        assert one_after_the_other, "each dispatch came back before the next one went out"
    assert runs(fleet.notes) == {task_id: 1 + (task_id in at_first) for task_id in [*tasks, *warm]}
