"""`reach status` beside a real router: what waits and why, a store that is away, and nobody who answers."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reach_worker.core.names import Names
from tests.bus.private_node import Node
from tests.system.caller import Caller
from tests.system.conftest import fresh_prefix, fresh_processes
from tests.system.crew import ONLY, begun
from tests.system.crew_at_work import CrewAtWork
from tests.system.processes import Processes
from tests.system.test_store_faults import locked
from tests.tooling.observing import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.system]

NOBODY = "no router answers"


@pytest.fixture
def caller(broker_url: str, names: Names) -> Iterator[Caller]:
    with Caller(broker_url, names.tasks) as caller:
        yield caller


def asked(processes: Processes) -> tuple[int, Any]:
    """The exit status, and what was said."""
    done = processes.reach("status", "--listen", "0.5s", "--json")
    return done.status, done.json()


def all_is_well(said: Any) -> Any:
    """The one router's report."""
    assert (said["ok"], said["wrong"], said["silent"]) == (True, [], [])
    (router,) = said["routers"]
    assert (router["router"], router["unready"]) == ("router-1", "")
    return router


def rests(said: Any) -> tuple[int, int]:
    """Dead letters, and unmatched tasks."""
    return said["queues"]["dlq"], said["queues"]["unmatched"]


def shown_to_people(processes: Processes) -> None:
    """The same in tables."""
    shown = processes.reach("status", "--listen", "0.5s")
    assert shown.status == 0
    assert shown.out.startswith("all is well\n")
    assert "crew-1: at max concurrency 4/4" in shown.out


def store_is_away(said: Any) -> None:
    """And is said to be."""
    store = said["routers"][0]["store"]
    assert (said["ok"], store["away"]) == (False, True)
    assert store["waiting"] > 0
    assert store["last_error"]
    assert "the store of router router-1 is away" in said["wrong"][0]


def test_what_waits_and_why_and_what_could_not_be_written(processes: Processes, caller: Caller) -> None:
    fleet = CrewAtWork(processes, ["crew-1"])
    gate = processes.folder / "gate"
    tasks = {f"t-{n}": {"capability": ONLY, "payload": {"until": str(gate)}} for n in range(6)}
    caller.publish(tasks)
    wait_until(lambda: len(begun(fleet.notes)) == 4)

    status, said = asked(processes)
    router = all_is_well(said)
    assert status == 0
    (waits,) = router["waits"]
    assert (waits["capability"], waits["count"]) == (ONLY, 2)
    assert waits["reason"] == "crew-1: at max concurrency 4/4"
    assert waits["task"] in tasks
    assert waits["oldest_s"] > 0
    (agent,) = router["agents"]
    assert (agent["agent"], agent["in_flight"], agent["breaker"]) == ("crew-1", 4, "closed")
    assert router["counts"]["dispatched"] == 4
    shown_to_people(processes)

    with locked(fleet.store):
        gate.touch()
        caller.until_answered(tasks)
        fleet.router.wait_for("the store is away, rows are kept")
        status, said = asked(processes)
    assert status == 1
    store_is_away(said)
    fleet.router.wait_for("the store is back")
    wait_until(lambda: asked(processes)[0] == 0)
    router = all_is_well(asked(processes)[1])
    assert (router["store"]["waiting"], router["waits"]) == (0, [])
    fleet.stop()


def test_nobody_one_who_hangs_and_what_rests_in_the_queues(processes: Processes, caller: Caller) -> None:
    never = processes.reach("status")
    assert never.status == 1
    assert "start a router" in never.err

    fleet = CrewAtWork(processes, ["crew-1"])
    caller.publish({"bad": {"capability": ONLY, "surprise": 1}, "odd": {"capability": "crew.unknown"}})
    wait_until(lambda: rests(asked(processes)[1]) == (1, 1))
    all_is_well(asked(processes)[1])

    fleet.router.signal(signal.SIGSTOP)
    done = processes.reach("status", "--listen", "0.2s", "--within", "1s")
    fleet.router.signal(signal.SIGCONT)
    assert done.status == 1
    assert done.out.startswith(f"{NOBODY}, though somebody consumes the intake: it hangs, or is older\n")

    fleet.stop()
    status, said = asked(processes)
    assert (status, said["routers"], said["wrong"]) == (1, [], [NOBODY])


def test_while_an_alarm_lasts_nobody_can_be_asked_and_the_queues_are_shown(
    node: Node, tmp_path: Path
) -> None:
    with fresh_prefix(node.url) as prefix, fresh_processes(node.url, prefix, tmp_path) as processes:
        assert processes.reach("topology", "declare").status == 0
        with node.memory_alarm():
            done = processes.reach("status", "--within", "1s", "--json")
    assert done.status == 1
    (wrong,) = done.json()["wrong"]
    assert wrong.startswith("the broker takes no messages now")
    assert done.json()["queues"]["dlq"] == 0
