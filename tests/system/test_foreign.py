"""Workers without any of our code, on a real broker: the README's own, and one that a test holds in its hands."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from reach_worker.bus import topology
from reach_worker.core.names import Names
from tests.system.books import histories
from tests.system.conftest import open_channel
from tests.system.processes import LIMIT_S, Processes
from tests.system.test_adapters import example
from tests.system.test_readme import blocks
from tests.tooling.observing import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.system]

QUICK = {"REACH_TIMEOUTS__PICKUP_S": "4", "REACH_TIMEOUTS__BACKSTOP_S": "0.5"}
"""An attempt that nobody replies to is given up soon."""


@pytest.fixture(autouse=True)
def tidy(channel: BlockingChannel, names: Names) -> Iterator[None]:
    """What the agent has on the broker is deleted in the end."""
    yield
    made = topology.complete(names, router_ids=[], agent_ids=["counter"], capabilities=["text.count"])
    for queue in made.queues:
        channel.queue_delete(queue.name)


@pytest.fixture(autouse=True)
def folder(processes: Processes) -> Path:
    """A folder with the manifest, which every command reads."""
    agents = processes.folder / "agents"
    agents.mkdir()
    (agents / "counter.yaml").write_text(example("counter").replace("10000", "1000"))
    processes.environment = {**processes.environment, **QUICK, "REACH_PATHS__AGENTS": str(agents)}
    return processes.folder


@pytest.fixture
def mailbox(channel: BlockingChannel) -> str:
    """Where answers come to."""
    return str(channel.queue_declare("", exclusive=True).method.queue)


def publish(channel: BlockingChannel, names: Names, mailbox: str, task_id: str) -> None:
    task = {"capability": "text.count", "payload": {"text": "one two"}}
    properties = pika.BasicProperties(reply_to=mailbox, message_id=task_id, correlation_id=task_id)
    channel.basic_publish(names.tasks, "any", json.dumps(task).encode(), properties)


def answer(channel: BlockingChannel, mailbox: str) -> Mapping[str, Any]:
    """The next answer."""
    _, properties, body = next(channel.consume(mailbox, auto_ack=True, inactivity_timeout=LIMIT_S))
    channel.cancel()
    assert properties is not None, "no answer"
    return dict(json.loads(body))


def recorded(processes: Processes, task_id: str) -> None:
    """Wait until the router has written down that it has sent a task: what was published cannot come again then."""
    store = Path(processes.environment["REACH_STORE__PATH"])
    wait_until(lambda: bool((known := histories(store).get(task_id)) and known.dispatches))


class Worker:
    """A worker of another library; each has a connection of its own."""

    def __init__(self, channel: BlockingChannel, queue: str) -> None:
        self._channel = channel
        channel.basic_qos(prefetch_count=1)
        self._tasks = channel.consume(queue, inactivity_timeout=LIMIT_S)

    def take(self) -> tuple[Any, Any, Any]:
        """The next task: method, properties, body."""
        method, properties, body = next(self._tasks)
        assert method is not None, "no task came"
        return method, properties, body

    def reply(self, method: Any, properties: Any, body: bytes, **headers: str) -> None:
        """With the correlation id, and then acknowledge."""
        given = {name.replace("_", "-"): word for name, word in headers.items()} or None
        reply = pika.BasicProperties(correlation_id=properties.correlation_id, headers=given)
        self._channel.basic_publish("", properties.reply_to, body, reply)
        self.forget(method)

    def forget(self, method: Any) -> None:
        """Acknowledge, and say nothing."""
        self._channel.basic_ack(method.delivery_tag)


def test_the_readmes_worker_is_an_agent(processes: Processes, folder: Path, names: Names) -> None:
    processes.router()
    assert processes.reach("ready", "--agent", "counter").status == 1
    assert "silent" in processes.reach("agents", "--listen", "0.5s").out
    (code,) = [block for block in blocks("python") if block.startswith("# old_counter.py")]
    (folder / "old_counter.py").write_text(code.replace("reach.v1", names.prefix))
    worker = subprocess.Popen([sys.executable, "old_counter.py"], cwd=folder, env=dict(processes.environment))
    try:
        wait_until(lambda: processes.reach("ready", "--agent", "counter").status == 0)
        done = processes.reach("publish", "text.count", '{"text": "one two three"}', "--wait")
        assert (done.status, done.json()) == (0, {"words": 3})
        refused = processes.reach("publish", "text.count", "{}", "--wait", "--json").json()
        assert (refused["reason"], refused["error"]) == ("bad_request", '"there is no text"')
        (shown,) = processes.reach("agents", "--listen", "0.5s", "--json").json()["agents"]
        assert (shown["agent"], shown["state"], shown["capacity"]) == ("counter", "active", 2)
        assert processes.reach("status", "--listen", "0.5s").out.startswith("all is well\n")
        assert processes.reach("check").status == 0
        assert processes.reach("audit", "--listen", "0.5s").status == 0
    finally:
        worker.kill()
        worker.wait()


def test_one_that_is_killed_leaves_its_task_to_the_next(
    processes: Processes, names: Names, channel: BlockingChannel, broker_url: str, mailbox: str
) -> None:
    processes.router()
    with open_channel(broker_url) as its_own:
        worker = Worker(its_own, names.agent("counter"))
        publish(channel, names, mailbox, "t1")
        worker.take()
    with open_channel(broker_url) as its_own:
        worker = Worker(its_own, names.agent("counter"))
        method, properties, body = worker.take()
        assert (method.redelivered, json.loads(body)["payload"]) == (True, {"text": "one two"})
        worker.reply(method, properties, b"2")
        assert answer(channel, mailbox)["result"] == 2


def test_failure_and_silence_are_attempts(
    processes: Processes, names: Names, channel: BlockingChannel, broker_url: str, mailbox: str
) -> None:
    processes.router()
    with open_channel(broker_url) as its_own:
        worker = Worker(its_own, names.agent("counter"))
        publish(channel, names, mailbox, "t1")
        method, properties, _ = worker.take()
        worker.reply(method, properties, b"out of paper", x_reach_outcome="failed")
        method, _, _ = worker.take()
        worker.forget(method)
        method, properties, body = worker.take()
        assert json.loads(body)["payload"] == {"text": "one two"}
        worker.reply(method, properties, b"2")
        told = answer(channel, mailbox)
        assert (told["result"], told["attempt"]) == (2, 3)
    store = Path(processes.environment["REACH_STORE__PATH"])
    wait_until(lambda: bool(histories(store)["t1"].ends))
    assert [outcome.outcome for outcome in histories(store)["t1"].outcomes] == [
        "failed",
        "timeout",
        "succeeded",
    ]


@pytest.fixture
def held(
    processes: Processes, names: Names, channel: BlockingChannel, broker_url: str, mailbox: str
) -> Iterator[tuple[Worker, Any, Any]]:
    """A worker with the method and the properties of task ``t1``, whose router was killed meanwhile."""
    router = processes.router()
    with open_channel(broker_url) as its_own:
        worker = Worker(its_own, names.agent("counter"))
        publish(channel, names, mailbox, "t1")
        method, properties, _ = worker.take()
        recorded(processes, "t1")
        router.kill()
        yield worker, method, properties


@pytest.mark.parametrize("fails", [False, True])
def test_a_reply_counts_though_the_router_was_killed(
    processes: Processes,
    held: tuple[Worker, Any, Any],
    channel: BlockingChannel,
    mailbox: str,
    *,
    fails: bool,
) -> None:
    worker, method, properties = held
    worker.reply(method, properties, b"2", **({"x_reach_outcome": "failed"} if fails else {}))
    processes.router()
    if fails:
        method, properties, body = worker.take()
        assert json.loads(body)["payload"] == {"text": "one two"}
        worker.reply(method, properties, b"2")
    told = answer(channel, mailbox)
    assert (told["result"], told["attempt"]) == (2, 2 if fails else 1)


def test_no_reply_and_a_router_that_was_killed_is_a_time_out(
    processes: Processes, held: tuple[Worker, Any, Any], channel: BlockingChannel, mailbox: str
) -> None:
    worker, method, _ = held
    worker.forget(method)
    processes.router()
    method, properties, _ = worker.take()
    worker.reply(method, properties, b"2")
    assert answer(channel, mailbox)["attempt"] == 2
