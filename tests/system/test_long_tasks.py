"""Tasks that run longer than the broker leaves a delivery unacknowledged, here for three seconds: each runs once."""

import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pika
import pytest

from reach_worker.core.names import Names
from reach_worker.store.records import TaskHistory
from tests.bus.private_node import Node
from tests.system.books import (
    assert_one_end_each,
    attempts,
    histories,
    until_empty,
    working_queues,
)
from tests.system.caller import Caller
from tests.system.conftest import fresh_prefix, fresh_processes, open_channel
from tests.system.crew import HOG, LONG, WORK, begun, runs
from tests.system.crew_at_work import CrewAtWork
from tests.system.processes import Processes, Running

pytestmark = [pytest.mark.broker, pytest.mark.system]

CONSUMER_TIMEOUT_S: Final = 3
IMPATIENT: Final = {"REACH_BROKER__CONSUMER_TIMEOUT_S": str(CONSUMER_TIMEOUT_S)}
LIMIT_S: Final = 60.0
PARKED: Final = "a lease is parked"


@pytest.fixture
def impatient(node: Node) -> Iterator[Node]:
    """A node that takes deliveries away so soon, and looks for them every second; for all channels from now on."""
    node.start()
    set_patience(node, CONSUMER_TIMEOUT_S * 1000, 1000)
    yield node
    node.start()
    set_patience(node, 1_800_000, 60_000)


def set_patience(node: Node, timeout_ms: int, look_ms: int) -> None:
    setting = f"application:set_env(rabbit, consumer_timeout, {timeout_ms})"
    node.ctl("eval", f"{setting}, application:set_env(rabbit, channel_tick_interval, {look_ms}).")


@pytest.fixture
def names(impatient: Node) -> Iterator[Names]:
    with fresh_prefix(impatient.url) as prefix:
        yield Names(prefix)


@pytest.fixture
def processes(impatient: Node, names: Names, tmp_path: Path) -> Iterator[Processes]:
    with fresh_processes(impatient.url, names.prefix, tmp_path) as processes:
        yield processes


@pytest.fixture
def caller(impatient: Node, names: Names) -> Iterator[Caller]:
    with Caller(impatient.url, names.tasks) as caller:
        yield caller


def parked(agents: list[Running]) -> int:
    """Leases that these have parked."""
    return sum(agent.log().count(PARKED) for agent in agents)


def test_the_node_is_as_impatient_as_these_tests_say(impatient: Node, names: Names) -> None:
    """Whoever simply holds a delivery loses it, and its channel, after that time."""
    with pika.BlockingConnection(pika.URLParameters(impatient.url)) as connection:
        channel = connection.channel()
        channel.queue_declare(names.unmatched, durable=True, arguments={"x-queue-type": "quorum"})
        channel.confirm_delivery()
        channel.basic_publish("", names.unmatched, b"held")
        channel.basic_consume(names.unmatched, lambda *_: None)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="timed out"):
            channel.start_consuming()


def test_each_runs_once_its_neighbours_too_and_only_who_dies_with_it_leaves_it_to_another(
    processes: Processes, caller: Caller, names: Names, impatient: Node
) -> None:
    fleet = CrewAtWork(processes, ["crew-1", "crew-2"], **IMPATIENT)
    gate = processes.folder / "gate"
    task = {"capability": LONG, "payload": {"until": str(gate)}}
    plain = {f"long-{n}": task for n in range(2)}
    careful = {f"careful-{n}": {**task, "side_effects": True} for n in range(2)}
    short = {f"short-{n}": {"capability": WORK, "payload": {"hold": 0.5}} for n in range(20)}
    caller.publish({**plain, **careful})
    caller.until(lambda: len(begun(fleet.notes)) == 4)
    caller.publish(short)
    caller.until_answered(short)
    caller.until(lambda: parked(list(fleet.agents.values())) == 4)
    dying = {task_id for agent_id, task_id in begun(fleet.notes) if agent_id == "crew-2"}
    again, unknown = dying & plain.keys(), dying & careful.keys()
    assert (len(again), len(unknown)) == (1, 1)
    fleet.restart_agent("crew-2")
    caller.until(lambda: all(runs(fleet.notes)[task_id] == 2 for task_id in again), LIMIT_S)
    caller.until_answered(unknown, LIMIT_S)
    gate.touch()
    caller.until_answered([*plain, *careful], LIMIT_S)
    reasons = {task_id: caller.final(task_id).get("reason") for task_id in (*plain, *careful)}
    assert reasons == dict.fromkeys([*plain, *careful]) | dict.fromkeys(unknown, "outcome_unknown")
    assert "session ended" not in fleet.agents["crew-1"].log() + fleet.router.log()
    fleet.stop()
    found = histories(fleet.store)
    assert_one_end_each(found, [*plain, *careful, *short])
    assert runs(fleet.notes) == {task_id: 1 + (task_id in again) for task_id in found}
    for task_id in (*plain, *careful):
        lost = [("crew-2", "unavailable")] if task_id in dying else []
        assert attempts(found[task_id]) == lost + [("crew-1", "succeeded")] * (task_id not in unknown)
        assert lasted_s(found[task_id]) >= 4 * CONSUMER_TIMEOUT_S
    nothing_is_left_but_leases(impatient, names)


def lasted_s(history: TaskHistory) -> float:
    """Seconds from the first dispatch to the end."""
    return (history.ends[0].at - history.dispatches[0].at) / 1e6


def nothing_is_left_but_leases(node: Node, names: Names) -> None:
    """Those of settled runs, which a router lets go when they come back."""
    may_be = {names.retry(15_000), names.retry(8_000), names.returns}
    queues = [
        queue for queue in working_queues(names, ["crew-1", "crew-2"], [WORK, LONG]) if queue not in may_be
    ]
    with open_channel(node.url) as channel:
        until_empty(channel, queues)


def test_a_broker_that_restarts_a_router_that_is_killed_and_it_runs_once(
    processes: Processes, caller: Caller, impatient: Node
) -> None:
    fleet = CrewAtWork(processes, ["crew-1"], **IMPATIENT)
    gate = processes.folder / "gate"
    tasks = {f"t-{n}": {"capability": LONG, "payload": {"until": str(gate)}} for n in range(3)}
    caller.publish(tasks)
    caller.until(lambda: parked(list(fleet.agents.values())) == 3)
    fleet.restart_router()
    impatient.stop()
    impatient.start()
    fleet.router.wait_for("broker session ended")
    with open_channel(impatient.url):
        caller.publish({"after": {"capability": WORK}})
        caller.until_answered(["after"], LIMIT_S)
    gate.touch()
    caller.until_answered(tasks, LIMIT_S)
    fleet.stop()
    assert_one_end_each(histories(fleet.store), [*tasks, "after"])
    assert runs(fleet.notes) == dict.fromkeys([*tasks, "after"], 1)


def test_one_that_goes_on_for_long_after_its_worker_was_told_to_stop_runs_once(
    processes: Processes, caller: Caller, names: Names, impatient: Node
) -> None:
    """Longer than the broker's patience, than it takes to bury one that is silent, and until its lease is back."""
    fleet = CrewAtWork(
        processes, ["crew-1", "crew-2"], REACH_ROUTER__GRACE_S="60", REACH_PRESENCE__DEAD_S="4", **IMPATIENT
    )
    gate = processes.folder / "gate"
    caller.publish({"t-1": {"capability": LONG, "payload": {"until": str(gate)}}})
    caller.until(lambda: len(begun(fleet.notes)) == 1)
    ((agent_id, _),) = begun(fleet.notes)
    stopping = fleet.agents[agent_id]
    stopping.signal(signal.SIGTERM)
    stopping.wait_for(PARKED)
    router = fleet.router
    router.wait_for(rf"{agent_id} instance \S+ is stopping")
    more = {f"t-{n}": {"capability": WORK, "payload": {"hold": 3}} for n in range(2, 26)}
    caller.publish(more)
    caller.until_answered(more, LIMIT_S)
    gate.touch()
    caller.until_answered(["t-1"])
    assert stopping.wait_end() == 0
    assert caller.final("t-1")["agent"] == agent_id
    fleet.stop()
    assert runs(fleet.notes)["t-1"] == 1
    with open_channel(impatient.url) as channel:
        until_empty(channel, [names.agent(agent_id)])


def test_a_handler_that_blocks_the_loop_is_named_and_runs_once(processes: Processes, caller: Caller) -> None:
    """No heartbeat comes meanwhile: it is suspected, gets nothing new, and is not given up."""
    fleet = CrewAtWork(processes, ["crew-1", "crew-2"])
    caller.publish({"hog": {"capability": HOG, "payload": {"hold": 3}}})
    caller.until_answered(["hog"])
    ((agent_id, _),) = begun(fleet.notes)
    agent = fleet.agents[agent_id]
    found = agent.wait_for(
        rf"the handler of {HOG} \(task hog\) blocks the event loop, for \S+ s now, at (\S+)"
    )
    assert "tests/system/crew.py:" in found[1]
    let_go = agent.wait_for(rf"the handler of {HOG} \(task hog\) let go after (\S+) s")
    assert float(let_go[1]) > 1
    assert re.search(rf"{agent_id} instance \S+ is active", fleet.router.log())
    caller.publish({"after": {"capability": WORK}})
    caller.until_answered(["after"])
    fleet.stop()
    assert runs(fleet.notes) == {"hog": 1, "after": 1}
