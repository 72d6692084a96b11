"""Stopping in order: nothing is lost, nothing runs twice, no attempt is spent, and it is over in time."""

import signal
import socket
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from reach_worker.core.names import Names
from tests.system.books import assert_one_end_each, histories, outcomes
from tests.system.caller import Caller
from tests.system.crew import CREW, ONCE, ONLY, WORK, begun, runs
from tests.system.crew_at_work import CrewAtWork
from tests.system.processes import Processes, Running
from tests.tooling.observing import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.system]

LEFT_AT_ONCE: Final = 130
AT_ONCE_S: Final = 5.0
"""Far below the grace period of 20 s, on a busy machine too."""


@pytest.fixture
def caller(broker_url: str, names: Names) -> Iterator[Caller]:
    with Caller(broker_url, names.tasks) as caller:
        yield caller


def load(count: int, capability: str = WORK) -> dict[str, Mapping[str, Any]]:
    """Tasks of some ten milliseconds; those with side effects are half of them, where there may be some."""
    return {
        f"t-{n:03}": {
            "capability": ONCE if capability == WORK and n % 2 else capability,
            "payload": {"hold": 0.02 + n % 5 / 50},
        }
        for n in range(count)
    }


def assert_nothing_was_spent(fleet: CrewAtWork, tasks: Mapping[str, Any]) -> None:
    """Every task was done once, at its first attempt."""
    found = histories(fleet.store)
    assert_one_end_each(found, tasks)
    assert outcomes(found).keys() <= {"succeeded", "released"}
    assert outcomes(found)["succeeded"] == len(tasks)
    assert runs(fleet.notes) == dict.fromkeys(tasks, 1)


def test_an_agent_stops_under_load(processes: Processes, caller: Caller) -> None:
    fleet = CrewAtWork(processes, ["crew-1", "crew-2"])
    tasks = load(120)
    caller.publish(tasks)
    caller.until(lambda: len(caller.answers) >= 20)
    assert fleet.agents["crew-1"].stop() == 0
    caller.until_answered(tasks)
    fleet.stop()
    assert_nothing_was_spent(fleet, tasks)


def test_one_of_two_instances_stops_under_load(processes: Processes, caller: Caller) -> None:
    """What was on its way to it is delivered to the other as if nobody had had it."""
    fleet = CrewAtWork(processes, ["crew-1"])
    second = fleet.agent("crew-1")
    tasks = load(120)
    caller.publish(tasks)
    caller.until(lambda: len(caller.answers) >= 20)
    assert fleet.agents["crew-1"].stop() == 0
    caller.until_answered(tasks)
    assert second.stop() == 0
    fleet.stop()
    assert_nothing_was_spent(fleet, tasks)


def test_a_router_stops_under_load_and_another_goes_on(processes: Processes, caller: Caller) -> None:
    fleet = CrewAtWork(processes, ["crew-1", "crew-2"])
    tasks = load(120)
    caller.publish(tasks)
    caller.until(lambda: len(caller.answers) >= 20)
    assert fleet.router.stop() == 0
    assert len(caller.answers) < len(tasks)
    fleet.router = processes.router()
    caller.until_answered(tasks)
    fleet.stop()
    assert_nothing_was_spent(fleet, tasks)


def test_all_stop_at_once_and_come_again(processes: Processes, caller: Caller) -> None:
    fleet = CrewAtWork(processes, ["crew-1", "crew-2"])
    tasks = load(120)
    caller.publish(tasks)
    caller.until(lambda: len(caller.answers) >= 20)
    everybody = [fleet.router, *fleet.agents.values()]
    for each in everybody:
        each.signal(signal.SIGTERM)
    assert [each.wait_end() for each in everybody] == [0] * 3
    assert all("stopped" in each.log().splitlines()[-1] or each is fleet.router for each in everybody)
    fleet.router = processes.router()
    fleet.agents = {agent_id: fleet.agent(agent_id) for agent_id in fleet.agents}
    caller.until_answered(tasks)
    fleet.stop()
    assert_nothing_was_spent(fleet, tasks)


def test_what_runs_longer_than_the_grace_period_is_handed_back(processes: Processes, caller: Caller) -> None:
    """A plain function that does not listen cannot be ended; the process leaves without it."""
    fleet = CrewAtWork(processes, ["crew-1", "crew-2"], REACH_ROUTER__GRACE_S="0.5")
    gate = processes.folder / "gate"
    deaf = {
        f"deaf-{n}": {"capability": WORK, "payload": {"until": str(gate), "deaf": True}} for n in range(8)
    }
    caller.publish(deaf)
    wait_until(lambda: len(begun(fleet.notes)) == 8)
    assert fleet.agents["crew-1"].stop(10) == 0
    fleet.agents["crew-1"] = fleet.agent("crew-1")
    gate.touch()
    caller.until_answered(deaf)
    fleet.stop()
    found = histories(fleet.store)
    assert_one_end_each(found, deaf)
    assert outcomes(found) == {"released": 4, "succeeded": 8}


@pytest.mark.parametrize("who", ["router", "crew-1"])
def test_a_second_signal_leaves_at_once_and_loses_nothing(
    processes: Processes, caller: Caller, who: str
) -> None:
    fleet = CrewAtWork(processes, ["crew-1"])
    gate = processes.folder / "gate"
    held = {f"held-{n}": {"capability": ONLY, "payload": {"until": str(gate)}} for n in range(6)}
    caller.publish(held)
    wait_until(lambda: len(begun(fleet.notes)) == 4)
    leaving = fleet.router if who == "router" else fleet.agents[who]
    leaving.signal(signal.SIGTERM)
    leaving.wait_for("stopping: no new work")
    leaving.signal(signal.SIGINT)
    assert leaving.wait_end(AT_ONCE_S) == LEFT_AT_ONCE
    if who == "router":
        fleet.router = processes.router()
    else:
        fleet.agents[who] = fleet.agent(who)
    gate.touch()
    caller.until_answered(held)
    assert {caller.final(task_id)["status"] for task_id in held} == {"succeeded"}
    fleet.stop()
    assert_one_end_each(histories(fleet.store), held)


@pytest.fixture
def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


@pytest.mark.parametrize("command", [("router",), ("agent", CREW["crew-1"])], ids=["router", "agent"])
def test_who_waits_for_a_broker_can_be_stopped(
    processes: Processes, closed_port: int, command: tuple[str, ...]
) -> None:
    waiting: Running = processes.start(*command, REACH_AMQP_URL=f"amqp://127.0.0.1:{closed_port}/")
    waiting.wait_for("no broker at 127.0.0.1")
    assert waiting.stop(AT_ONCE_S) == 0
    assert "Traceback" not in waiting.log()


def test_idle_ones_leave_at_once(processes: Processes, caller: Caller) -> None:
    fleet = CrewAtWork(processes, ["crew-1"])
    caller.publish({"one": {"capability": ONLY}})
    caller.until_answered(["one"])
    assert fleet.agents["crew-1"].stop(AT_ONCE_S) == 0
    assert fleet.router.stop(AT_ONCE_S) == 0
