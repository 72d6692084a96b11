"""Whatever dies in the middle, every task has exactly one end, and everybody is answered."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from reach_worker.core.names import Names
from tests.bus.private_node import Node
from tests.system.books import assert_one_end_each, histories, outcomes, until_empty, working_queues
from tests.system.caller import Caller
from tests.system.conftest import fresh_processes, open_channel
from tests.system.crew import CREW, ONCE, ONLY, WORK, runs
from tests.system.crew_at_work import CrewAtWork
from tests.system.processes import Processes

pytestmark = [pytest.mark.broker, pytest.mark.system]

TASKS: Final = 200
FAILING: Final = 10
LONG_S: Final = 60.0


def work(count: int) -> dict[str, dict[str, Any]]:
    """Tasks of some milliseconds, some of which fail at first."""
    return {
        f"t-{number:03}": {
            "capability": WORK,
            "payload": {"hold": 0.01 + number % 7 / 100, "fail": int(number < FAILING), "echo": number},
        }
        for number in range(count)
    }


def assert_nothing_is_left(url: str, names: Names) -> None:
    with open_channel(url) as channel:
        until_empty(channel, working_queues(names, CREW, [WORK, ONCE, ONLY]))


def test_router_and_agent_are_killed_in_the_middle(
    broker_url: str, names: Names, processes: Processes
) -> None:
    tasks = work(TASKS)
    fleet = CrewAtWork(processes)
    with Caller(broker_url, names.tasks) as caller:
        caller.publish(tasks)
        caller.until(lambda: len(caller.answers) >= TASKS // 6)
        fleet.restart_router()
        caller.until(lambda: len(caller.answers) >= TASKS // 2)
        fleet.restart_agent("crew-1")
        caller.until_answered(tasks)
        assert {caller.final(task_id)["status"] for task_id in tasks} == {"succeeded"}
    assert fleet.stop() == [0] * 5
    assert_one_end_each(histories(fleet.store), tasks)
    assert runs(fleet.notes).keys() == tasks.keys()
    assert_nothing_is_left(broker_url, names)


def test_the_broker_is_killed_in_the_middle(node: Node, tmp_path: Path) -> None:
    tasks = work(TASKS)
    names = Names("killed")
    with fresh_processes(node.url, names.prefix, tmp_path) as processes:
        fleet = CrewAtWork(processes)
        with Caller(node.url, names.tasks) as caller:
            caller.publish(tasks)
            caller.until(lambda: len(caller.answers) >= TASKS // 6)
            node.kill()
            node.start()
            caller.until_answered(tasks, LONG_S)
            assert {caller.final(task_id)["status"] for task_id in tasks} == {"succeeded"}
        assert fleet.stop() == [0] * 5
    found = histories(fleet.store)
    assert_one_end_each(found, tasks)
    assert runs(fleet.notes).keys() == tasks.keys()
    assert outcomes(found).keys() <= {"succeeded", "failed", "released"}, "no agent is to blame"
    assert outcomes(found)["failed"] == FAILING
    assert_nothing_is_left(node.url, names)


def test_what_has_side_effects_never_runs_twice(broker_url: str, names: Names, processes: Processes) -> None:
    """Where nobody can tell whether it ran, a person is asked."""
    tasks = {
        f"once-{number}": {"capability": ONCE, "payload": {"hold": 0.05}, "side_effects": True}
        for number in range(60)
    }
    fleet = CrewAtWork(processes)
    with Caller(broker_url, names.tasks) as caller:
        caller.publish(tasks)
        caller.until(lambda: len(caller.answers) >= 10)
        fleet.restart_agent("crew-1")
        caller.until(lambda: len(caller.answers) >= 25)
        fleet.restart_router()
        caller.until_answered(tasks)
        answers = [caller.final(task_id) for task_id in tasks]
    assert fleet.stop() == [0] * 5
    assert max(runs(fleet.notes).values()) == 1
    found = histories(fleet.store)
    assert_one_end_each(found, tasks)
    unknown = [answer for answer in answers if answer["status"] != "succeeded"]
    assert {answer["reason"] for answer in unknown} <= {"outcome_unknown"}
    assert len(unknown) <= 20
    assert_nothing_is_left(broker_url, names)


def test_the_same_ids_at_two_routers_at_once_run_once(
    broker_url: str, names: Names, processes: Processes
) -> None:
    """Two routers on one store count as one: everybody who published an id is answered, and it ran once."""
    fleet = CrewAtWork(processes)
    second = processes.router(REACH_ROUTER__ID="router-2")
    second.wait_for(r"crew-4 instance \S+ is active")
    bodies = {
        f"twin-{number}": json.dumps(
            {"task_id": f"twin-{number}", "capability": WORK, "payload": {"hold": 0.02}}
        ).encode()
        for number in range(120)
    }
    with Caller(broker_url, names.tasks) as caller:
        caller.send(
            *(
                (body, {"correlation_id": f"{task_id}/{who}"})
                for task_id, body in bodies.items()
                for who in "abc"
            )
        )
        wanted = {f"{task_id}/{who}" for task_id in bodies for who in "abc"}
        caller.until_answered(wanted)
        assert {caller.final(each)["status"] for each in wanted} == {"succeeded"}
    assert set(runs(fleet.notes).values()) == {1}
    assert second.stop() == 0
    assert fleet.stop() == [0] * 5
    assert_one_end_each(histories(fleet.store), bodies)
    assert_nothing_is_left(broker_url, names)
