"""``reach doctor`` on a real broker: a system that is well, and everything that may be wrong with one."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from reach_worker.bus import topology
from reach_worker.core.names import Names
from tests.bus.private_node import SCRIPT, Node
from tests.system.conftest import fresh_processes, open_channel
from tests.system.letters import declare, letter, put
from tests.system.processes import Done, Processes

pytestmark = [pytest.mark.broker, pytest.mark.system]

SHORT = ("--listen", "500ms", "--json")


def doctor(processes: Processes, *more: str, **environment: str) -> tuple[Done, dict[str, Any]]:
    done = processes.reach("doctor", *SHORT, *(more or ("--ctl", "none")), limit=60, **environment)
    return done, done.json()


def said(found: dict[str, Any], *severities: str) -> dict[str, str]:
    """What is said of each place, in these severities; every one but an ``ok`` comes with what to do."""
    assert all(each["advice"] for each in found["findings"] if each["severity"] != "ok")
    wanted = [each for each in found["findings"] if each["severity"] in severities]
    return {each["where"]: each["what"] for each in wanted}


@pytest.fixture
def store(processes: Processes) -> Path:
    return Path(processes.environment["REACH_STORE__PATH"])


def test_a_system_that_is_well_and_a_router_that_goes(processes: Processes, names: Names) -> None:
    processes.agent("tests.system.small_agents:quick")
    router = processes.router()
    harmless = {"config/tags.yaml", "config/agents"}
    looks: list[tuple[Done, dict[str, Any]]] = []

    def well_and_heard() -> bool:
        looks.append(doctor(processes))
        return said(looks[-1][1], "error", "warning").keys() <= harmless

    router.wait_until(well_and_heard, "all is well, and everybody was heard")
    done, found = looks[-1]
    assert (done.status, found["ok"]) == (0, True)
    well = said(found, "ok")
    assert well["routers"] == "answering: router-1"
    assert well["publishing"] == "no alarm, events were taken at once"
    assert "it can be read and written, and is whole" in well.values()

    assert router.stop() == 0
    done, found = doctor(processes)
    assert (done.status, found["ok"]) == (1, False)
    assert said(found, "error") == {names.intake: "no router takes tasks; 0 messages waiting"}
    assert "reach router" in processes.reach("doctor", "--ctl", "none").out


def test_queues_that_are_missing_or_different_are_named_and_left_as_they_are(
    processes: Processes, names: Names, channel: BlockingChannel, broker_url: str
) -> None:
    declare(channel, names)
    channel.queue_delete(names.unmatched)
    channel.queue_delete(names.dlq)
    channel.queue_declare(names.dlq, durable=True, arguments={"x-queue-type": "classic"})
    other = {**topology.retry(names, 500).arguments, "x-message-ttl": 499}
    channel.queue_delete(names.retry(500))
    channel.queue_declare(names.retry(500), durable=True, arguments=other)
    channel.exchange_delete(names.lost)
    put(channel, letter(names, "dead-1"))

    done, found = doctor(processes)

    assert done.status == 1
    wrong = said(found, "error")
    assert wrong[names.unmatched] == wrong[names.lost] == "it is missing"
    assert "it is there with other arguments: " in wrong[names.dlq]
    assert "x-message-ttl is " in wrong[names.retry(500)]
    assert "499" in wrong[names.retry(500)]
    waiting = [each["what"] for each in found["findings"] if each["where"] == names.dlq]
    assert "1 dead letter for a person to look at" in waiting
    with open_channel(broker_url) as looking, pytest.raises(ChannelClosedByBroker):
        looking.queue_declare(names.unmatched, passive=True)
    channel.queue_declare(names.retry(500), durable=True, arguments=other)


def test_a_fresh_broker_stays_as_it_is(
    processes: Processes, names: Names, broker_url: str, store: Path
) -> None:
    done, found = doctor(processes)

    assert done.status == 1
    missing = said(found, "error")
    assert {names.intake, names.returns, names.dlq, names.unmatched, names.tasks} <= missing.keys()
    assert set(missing.values()) == {"it is missing"}
    assert not store.exists()
    for queue in (names.intake, names.outcomes("router-1")):
        with open_channel(broker_url) as looking, pytest.raises(ChannelClosedByBroker):
            looking.queue_declare(queue, passive=True)


def test_no_broker_and_a_wrong_password_stop_none_of_the_other_checks(
    processes: Processes, broker_url: str, store: Path
) -> None:
    store.write_text("Dear diary, this is no database.\n" * 100)
    done, found = doctor(processes, REACH_AMQP_URL="amqp://127.0.0.1:1/")
    assert done.status == 1
    wrong = said(found, "error")
    assert "no broker at 127.0.0.1:1" in wrong["broker"]
    assert "is not an SQLite database" in wrong[f"store {store}"]
    assert {"clock", "open files"} <= said(found, "ok", "warning").keys()

    port = pika.URLParameters(broker_url).port
    done, found = doctor(processes, REACH_AMQP_URL=f"amqp://guest:s3cret@127.0.0.1:{port}/")
    assert done.status == 1
    assert "refuses user 'guest'" in said(found, "error")["broker"]
    assert "s3cret" not in done.out + done.err


def test_a_damaged_store_and_a_clock_that_is_behind(processes: Processes, store: Path) -> None:
    router = processes.router()
    assert router.stop() == 0
    with closing(sqlite3.connect(store)) as database:
        database.execute(
            "INSERT INTO tasks (task_id, life, flow_id, first_seen) VALUES ('t', 0, 't', ?)",
            (4_000_000_000_000_000,),
        )
        database.commit()
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert "ahead of this machine's clock" in said(doctor(processes)[1], "error")["clock"]

    data = bytearray(store.read_bytes())
    for start in range(8 * 4096, len(data), 4096):
        data[start : start + 100] = b"\xff" * 100
    store.write_bytes(data)
    done, found = doctor(processes)
    assert done.status == 1
    assert f"store {store}" in said(found, "error")


def test_manifests_that_are_wrong_are_findings_too(processes: Processes) -> None:
    agents = processes.folder / "config" / "agents"
    agents.mkdir(parents=True)
    (agents / "broken.yaml").write_text("id: broken\ncapabilites: []\n")

    done, found = doctor(processes, REACH_AMQP_URL="amqp://127.0.0.1:1/")

    assert done.status == 1
    places = [place for place in said(found, "error") if "broken.yaml" in place]
    assert places


def test_what_only_the_brokers_own_tool_can_tell(node: Node, tmp_path: Path) -> None:
    """Its consumer timeout, a policy on our queues, a user who may not configure, a memory alarm."""
    names = Names("told")
    node.ctl("eval", "application:set_env(rabbit, consumer_timeout, 600000).")
    node.ctl("set_policy", "impatient", "^told.intake$", '{"expires": 86400000}', "--apply-to", "queues")
    node.ctl("add_user", "reader", "reader")
    node.ctl("set_permissions", "reader", "^amq.gen|^reach-", ".*", ".*")
    with open_channel(node.url) as channel:
        declare(channel, names)
        channel.queue_unbind(names.intake, names.tasks, "#")
    with fresh_processes(node.url, names.prefix, tmp_path) as processes:
        script = f"env REACH_BROKER_DIR={node.folder} {SCRIPT} ctl"
        done, found = doctor(processes, "--ctl", script)
        assert done.status == 1
        wrong = said(found, "error")
        assert "the broker has 600 s, the settings say 1800 s" in wrong["consumer timeout"]
        assert "not bound to told.intake" in wrong[names.tasks]
        told = [each["what"] for each in found["findings"] if each["where"] == names.intake]
        assert any("policy 'impatient' sets expires to 86400000" in what for what in told)

        reader = node.url.replace("guest:guest", "reader:reader")
        refused = said(doctor(processes, REACH_AMQP_URL=reader)[1], "warning")
        assert "could not be compared" in refused[names.dlq]

        with node.memory_alarm():
            blocked = said(doctor(processes)[1], "error")
            unheard = processes.reach("audit", "--listen", "500ms", "--json").json()
        assert "a memory or disk alarm blocks publishers" in blocked["publishing"]
        assert any("everything stands still" in each for each in unheard["unchecked"])

        elsewhere = doctor(processes, "--ctl", "echo nothing of ours")[1]
        assert "speaks of another broker" in said(elsewhere, "info")["policies and bindings"]
