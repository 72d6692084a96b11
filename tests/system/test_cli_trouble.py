"""What is wrong outside becomes a message and an exit status. ``Processes.reach`` refuses every traceback."""

import re
import signal
import socket
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from reach_worker.bus import topology
from reach_worker.clock import SystemClock
from reach_worker.core.names import Names
from reach_worker.store import SqliteStore
from tests.system.letters import declare, letter, put, ready
from tests.system.processes import Processes, command

pytestmark = [pytest.mark.broker, pytest.mark.system]

ONLINE = {
    "publish": ["publish", "text.echo", '{"text": "x"}'],
    "agents": ["agents"],
    "declare": ["topology", "declare"],
    "dlq list": ["dlq", "list"],
    "dlq show": ["dlq", "show", "t"],
    "dlq replay": ["dlq", "replay"],
    "dlq drop": ["dlq", "drop", "--yes"],
    "dlq export": ["dlq", "export"],
    "unmatched list": ["unmatched", "list"],
    "unmatched assign": ["unmatched", "assign", "t", "--to", "quick"],
}
OF_THE_STORE = {
    "explain": ["explain", "t"],
    "tasks": ["tasks"],
    "counts": ["tasks", "--counts"],
    "router": ["router"],
}


@pytest.fixture
def nobody_there() -> Iterator[int]:
    """A port where nobody listens, held so that nobody begins to."""
    with closing(socket.socket()) as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@pytest.mark.parametrize("arguments", ONLINE.values(), ids=ONLINE)
def test_without_a_broker_every_command_names_the_address(
    processes: Processes, nobody_there: int, arguments: list[str]
) -> None:
    done = processes.reach(*arguments, REACH_AMQP_URL=f"amqp://127.0.0.1:{nobody_there}/")

    assert (done.status, done.out) == (1, "")
    assert done.err.startswith(f"Error: no broker at 127.0.0.1:{nobody_there}: ")
    assert "REACH_AMQP_URL" in done.err


def test_topology_show_needs_no_broker(processes: Processes, nobody_there: int, names: Names) -> None:
    done = processes.reach("topology", "show", REACH_AMQP_URL=f"amqp://127.0.0.1:{nobody_there}/")

    assert done.status == 1
    assert re.search(rf"^{re.escape(names.intake)} +unknown$", done.out, re.MULTILINE)
    assert f"no broker at 127.0.0.1:{nobody_there}" in done.err


@pytest.mark.parametrize(
    "arguments", [*ONLINE.values(), ["router"], ["agent", "tests.system.small_agents:quick"]]
)
def test_a_wrong_password_is_said_without_the_password(
    processes: Processes, broker_url: str, arguments: list[str]
) -> None:
    wrong = re.sub(r"://[^@]*@", "://guest:s3cret-but-wrong@", broker_url)

    done = processes.reach(*arguments, REACH_AMQP_URL=wrong)

    assert done.status == 1
    assert "refuses user 'guest': check the name and password in the URL" in done.err
    assert "s3cret" not in done.out + done.err


def declare_otherwise(channel: BlockingChannel, queue: topology.Queue, argument: str, value: object) -> None:
    """What somebody else declared under our name, with one argument that is not ours."""
    arguments = {**queue.arguments, argument: value}
    if value == "classic":
        arguments = {argument: value}
    channel.queue_declare(queue.name, durable=True, arguments=arguments)


@pytest.mark.parametrize("arguments", [["router"], ["agent", "tests.system.small_agents:quick"]])
def test_a_foreign_queue_of_our_name_is_named_with_its_argument(
    processes: Processes, names: Names, channel: BlockingChannel, arguments: list[str]
) -> None:
    declare_otherwise(channel, topology.intake(names), "x-delivery-limit", 7)

    done = processes.reach(*arguments)

    assert done.status == 1
    assert f"Error: {names.intake!r} exists on the broker with another 'x-delivery-limit'" in done.err
    assert re.search(r"expected .*20.*, found .*7", done.err)


def test_declare_names_every_mismatch_and_declares_the_rest(
    processes: Processes, names: Names, channel: BlockingChannel
) -> None:
    declare_otherwise(channel, topology.resting(names.dlq), "x-queue-type", "classic")
    declare_otherwise(channel, topology.retry(names, 500), "x-message-ttl", 499)
    channel.exchange_declare(names.events, "fanout", durable=True)

    done = processes.reach("topology", "declare")
    as_json = processes.reach("topology", "declare", "--json").json()

    assert done.status == 1
    assert f"{names.dlq!r} exists on the broker with another 'x-" in done.err
    assert f"{names.retry(500)!r} exists on the broker with another 'x-message-ttl'" in done.err
    assert f"{names.events!r} exists on the broker with another 'type'" in done.err
    assert {each["name"] for each in as_json["mismatches"]} == {names.dlq, names.retry(500), names.events}
    channel.queue_declare(names.unmatched, passive=True)
    shown = processes.reach("topology", "show", "--json").json()
    assert all(each["state"] == "present" for each in shown["queues"])


def test_declaring_twice_changes_nothing_and_show_counts(
    processes: Processes, names: Names, channel: BlockingChannel
) -> None:
    before = processes.reach("topology", "show")
    first = processes.reach("topology", "declare")
    second = processes.reach("topology", "declare")
    channel.confirm_delivery()
    channel.basic_publish(names.tasks, "any", b"{}", mandatory=True)
    after = processes.reach("topology", "show")

    assert (before.status, first.status, second.status, after.status) == (1, 0, 0, 0)
    assert re.search(rf"^{re.escape(names.intake)} +missing$", before.out, re.MULTILINE)
    assert re.search(rf"^{re.escape(names.intake)} +present +1 +0$", after.out, re.MULTILINE)


@pytest.mark.parametrize("arguments", [["explain", "t"], ["tasks"], ["tasks", "--counts"]])
def test_a_missing_store_is_said(processes: Processes, arguments: list[str]) -> None:
    done = processes.reach(*arguments)

    assert (done.status, done.out) == (1, "")
    assert "there is no store yet; a router makes it when it starts" in done.err
    assert "REACH_STORE__PATH" in done.err


@pytest.fixture
def store_path(processes: Processes) -> Path:
    return Path(processes.environment["REACH_STORE__PATH"])


@pytest.mark.parametrize("arguments", OF_THE_STORE.values(), ids=OF_THE_STORE)
def test_a_store_that_is_not_ours_is_said_and_left_alone(
    processes: Processes, store_path: Path, arguments: list[str]
) -> None:
    with closing(sqlite3.connect(store_path)) as database:
        database.execute("CREATE TABLE recipes (name TEXT)")
    before = store_path.read_bytes()

    done = processes.reach(*arguments)

    assert done.status == 1
    assert "is another program's SQLite database" in done.err
    assert "recipes" in done.err
    assert store_path.read_bytes() == before


@pytest.mark.parametrize("arguments", OF_THE_STORE.values(), ids=OF_THE_STORE)
def test_a_file_that_is_no_database_is_said_and_left_alone(
    processes: Processes, store_path: Path, arguments: list[str]
) -> None:
    store_path.write_text("Dear diary, today I went shopping for a database.\n" * 100)

    done = processes.reach(*arguments)

    assert done.status == 1
    assert "is not an SQLite database" in done.err
    assert store_path.read_text().startswith("Dear diary")


@pytest.mark.parametrize("arguments", OF_THE_STORE.values(), ids=OF_THE_STORE)
async def test_a_store_of_a_newer_version_is_said(
    processes: Processes, store_path: Path, arguments: list[str]
) -> None:
    await make_store(store_path)
    with closing(sqlite3.connect(store_path)) as database:
        database.execute("PRAGMA user_version = 999")

    done = processes.reach(*arguments)

    assert done.status == 1
    assert "has schema 999" in done.err
    assert "a newer version wrote it" in done.err


async def test_a_locked_store_is_said(processes: Processes, store_path: Path) -> None:
    await make_store(store_path)
    with closing(sqlite3.connect(store_path, isolation_level=None)) as database:
        database.execute("PRAGMA locking_mode = EXCLUSIVE")
        database.execute("BEGIN EXCLUSIVE")

        done = processes.reach("tasks")

    assert done.status == 1
    assert "locked" in done.err


async def make_store(path: Path) -> None:
    """A store as a router leaves it."""
    async with SqliteStore.open(path, clock=SystemClock()):
        pass


def test_agents_are_shown_without_a_store(processes: Processes, store_path: Path) -> None:
    processes.agent("tests.system.small_agents:quick")
    processes.router()
    with closing(sqlite3.connect(store_path.with_name("other.db"))) as database:
        database.execute("CREATE TABLE recipes (name TEXT)")

    done = processes.reach(
        "agents", "--listen", "1s", REACH_STORE__PATH=str(store_path.with_name("other.db"))
    )

    assert done.status == 0
    assert re.search(r"^quick +active", done.out, re.MULTILINE)
    assert "no success rates: " in done.err
    assert "is another program's SQLite database" in done.err


def test_ctrl_c_ends_a_command_that_waits(processes: Processes) -> None:
    processes.agent("tests.system.small_agents:slow")
    processes.router()
    waiting = processes.start("publish", "text.hold", '{"seconds": 5}', "--task-id", "held", "--wait")
    waiting.wait_until(lambda: processes.reach("explain", "held").status == 0, "its task is with an agent")

    waiting.signal(signal.SIGINT)

    assert waiting.wait_end() == 130
    assert "Traceback" not in waiting.log()


def test_ctrl_c_ends_a_command_that_listens(
    processes: Processes, names: Names, channel: BlockingChannel
) -> None:
    declare(channel, names)
    questions = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind(questions, names.events, "who")
    listening = processes.start("agents", "--listen", "1h")
    listening.wait_until(lambda: ready(channel, questions) > 0, "its question who is there")

    listening.signal(signal.SIGINT)

    assert listening.wait_end() == 130
    assert "Traceback" not in listening.log()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_router_and_an_agent_drain_on_a_signal(processes: Processes, number: signal.Signals) -> None:
    agent = processes.agent("tests.system.small_agents:quick")
    router = processes.router()

    for each in (router, agent):
        each.signal(number)

    assert (router.wait_end(), agent.wait_end()) == (0, 0)
    assert "stopping: no new work" in router.log()
    assert "stopping: no new work" in agent.log()


@pytest.mark.parametrize("arguments", [["topology", "export"], ["dlq", "export"], ["dlq", "list", "--json"]])
def test_nobody_reads_any_more(
    processes: Processes, names: Names, channel: BlockingChannel, arguments: list[str]
) -> None:
    declare(channel, names)
    put(channel, *(letter(names, f"t-{number}", payload={"text": "x" * 50_000}) for number in range(5)))
    with subprocess.Popen(
        command(arguments),
        cwd=processes.folder,
        env=dict(processes.environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        errors = process.stderr.read()

    assert (process.returncode, errors) == (141, b"")
