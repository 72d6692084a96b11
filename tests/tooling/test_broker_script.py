"""scripts/broker as its users see it: called from outside, with real nodes."""

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pika
import pytest

from tests.tooling.observing import ROOT, need_rabbitmq, needs_proc, processes_mentioning, wait_until

SCRIPT = ROOT / "scripts" / "broker"
START = ("start", "--owner-pid", str(os.getpid()))  # so that no node outlives a test run that is killed
LOOPBACK = {"0100007F", "00000000000000000000000001000000"}  # 127.0.0.1 and ::1 as /proc/net writes them

pytestmark = [pytest.mark.broker, pytest.mark.system]


@dataclass
class Broker:
    folder: Path
    conf: Path | None = None
    environment: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.environment = os.environ | {"REACH_BROKER_DIR": str(self.folder), "REACH_BROKER_CONF": ""}
        if self.conf is not None:
            self.environment["REACH_BROKER_CONF"] = str(self.conf)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [SCRIPT, *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    def succeed(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [SCRIPT, *arguments],
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def processes(self) -> list[str]:
        return processes_mentioning(self.folder)


@pytest.fixture(scope="module", autouse=True)
def rabbitmq() -> None:
    need_rabbitmq()


@pytest.fixture
def make_broker(tmp_path: Path) -> Iterator[Callable[[str], Broker]]:
    made: list[Broker] = []

    def make(name: str, conf: str = "") -> Broker:
        (tmp_path / f"{name}.conf").write_text(conf)
        made.append(Broker(tmp_path / name, tmp_path / f"{name}.conf" if conf else None))
        return made[-1]

    yield make
    for broker in made:
        broker.run("stop")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("a node with spaces")
    conf = folder / "more.conf"
    conf.write_text("consumer_timeout = 12345000\n")
    broker = Broker(folder / "broker", conf)
    yield broker
    broker.run("stop")


@pytest.fixture
def url(node: Broker) -> str:
    return node.succeed(*START)


def connected(url: str) -> closing[pika.BlockingConnection]:
    return closing(pika.BlockingConnection(pika.URLParameters(url)))


def port_of(url: str) -> int:
    return int(url.rstrip("/").rpartition(":")[2])


def listeners(ports: set[int]) -> set[str]:
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for row in Path(table).read_text().splitlines()[1:]:
            _, local, _, state, *_ = row.split()
            address, port = local.split(":")
            if state == "0A" and int(port, 16) in ports:
                found.add(address)
    return found


@needs_proc
def test_two_nodes_started_at_once_are_strangers(make_broker: Callable[[str], Broker]) -> None:
    one, two = make_broker("one"), make_broker("two")
    with one.begin(*START) as first, two.begin(*START) as second:
        urls = [started.communicate(timeout=100)[0].strip() for started in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0]
    assert urls[0] != urls[1]
    for url in urls:
        with connected(url) as connection:
            assert connection.is_open
    one.succeed("stop")
    assert one.processes() == []
    with connected(urls[1]) as connection:
        assert connection.is_open
    two.succeed("stop")
    assert two.processes() == []


def test_start_twice_is_one_node(node: Broker, url: str) -> None:
    assert node.succeed(*START) == url
    assert node.succeed("url") == url


def test_status_names_what_runs(node: Broker, url: str) -> None:
    status = node.succeed("status")
    assert url in status
    assert "RabbitMQ " in status


def test_ctl_and_more_configuration_reach_the_node(node: Broker, url: str) -> None:
    assert url
    assert node.succeed("ctl", "eval", "application:get_env(rabbit, consumer_timeout).") == "{ok,12345000}"


@needs_proc
def test_everything_listens_on_loopback_only(node: Broker, url: str) -> None:
    ports = {int(word) for word in (node.folder / "address").read_text().split()[1:]}
    assert port_of(url) in ports
    found = listeners(ports)
    assert found
    assert found <= LOOPBACK


def test_a_killed_node_comes_back_with_its_port_and_its_messages(node: Broker, url: str) -> None:
    with connected(url) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("kept", durable=True)
        durable = pika.BasicProperties(delivery_mode=2)
        channel.basic_publish("", "kept", b"still here", durable, mandatory=True)
    node.succeed("kill")
    assert node.run("status").returncode == 1
    assert node.succeed(*START) == url
    with connected(url) as connection:
        _, _, body = connection.channel().basic_get("kept", auto_ack=True)
    assert body == b"still here"


def test_a_port_that_was_taken_meanwhile_is_left_to_its_owner(node: Broker, url: str) -> None:
    node.succeed("stop")
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", port_of(url)))
        taken.listen()
        elsewhere = node.succeed(*START)
    assert elsewhere != url
    with connected(elsewhere) as connection:
        assert connection.is_open


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        ("status", 1, "not running"),
        ("url", 1, "scripts/broker start"),
        ("ctl", 1, "scripts/broker start"),
        ("kill", 1, "not running"),
        ("stop", 0, ""),
        ("nonsense", 1, "Usage"),
    ],
)
def test_without_a_node(make_broker: Callable[[str], Broker], command: str, code: int, says: str) -> None:
    done = make_broker("none").run(command)
    assert done.returncode == code
    assert says in done.stdout + done.stderr


@needs_proc
def test_a_node_does_not_outlive_its_owner(make_broker: Callable[[str], Broker]) -> None:
    broker = make_broker("owned")
    with subprocess.Popen(["sleep", "600"]) as owner:
        url = broker.succeed("start", "--scratch", "--owner-pid", str(owner.pid))
        broker.succeed("kill")
        assert broker.succeed("start") == url
        owner.kill()
        wait_until(lambda: not broker.processes())  # the owner is a zombie all this time
        wait_until(lambda: not broker.folder.exists())


@needs_proc
def test_an_owner_from_before_a_reboot_is_forgotten(make_broker: Callable[[str], Broker]) -> None:
    broker = make_broker("rebooted")
    broker.folder.mkdir()
    (broker.folder / "owner").write_text(f"{os.getpid()} 1\n")  # our number, when another process had it
    broker.succeed("start")
    assert not any("watch" in command for command in broker.processes())
    broker.succeed("status")


@needs_proc
def test_an_interrupted_start_leaves_nothing_running(make_broker: Callable[[str], Broker]) -> None:
    broker = make_broker("interrupted")
    with broker.begin(*START) as starting:
        wait_until((broker.folder / "pid").exists)
        os.killpg(starting.pid, signal.SIGINT)
    assert starting.returncode == 128 + signal.SIGINT
    assert broker.processes() == []


@needs_proc
def test_a_mistake_in_the_configuration_is_named(make_broker: Callable[[str, str], Broker]) -> None:
    broker = make_broker("mistaken", "no_such_setting = 1\n")
    done = broker.run(*START)
    assert done.returncode == 1
    assert "no_such_setting" in done.stderr
    assert broker.processes() == []


def test_scratch_never_removes_a_folder_of_somebody_else(make_broker: Callable[[str], Broker]) -> None:
    broker = make_broker("home")
    broker.folder.mkdir()
    (broker.folder / "thesis.txt").write_text("years of work")
    assert broker.run("start", "--scratch").returncode == 1
    broker.succeed("stop")
    assert (broker.folder / "thesis.txt").exists()
