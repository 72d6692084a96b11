"""The demo as people run it: on a real broker, every process for real."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import IO, Any

import pika
import pytest

from reach_worker.bus import topology
from reach_worker.core.names import Names
from reach_worker.core.tags import TagTable
from reach_worker.settings import load_manifests
from tests.bus.wire import shared_broker
from tests.tooling.observing import ROOT, needs_proc, processes_mentioning, wait_until

pytestmark = [pytest.mark.system, pytest.mark.broker, needs_proc]


@pytest.fixture
def url() -> str:
    return shared_broker()


@contextmanager
def demo(folder: Path, *options: str, **environ: str) -> Iterator[subprocess.Popen[str]]:
    """A run with its temporary files in ``folder``. Killed if the test ends before it does."""
    folder.mkdir(exist_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-m", "reach_worker", "demo", *options],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(folder)} | environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def output(process: subprocess.Popen[str]) -> IO[str]:
    assert process.stdout is not None
    return process.stdout


def read_until(process: subprocess.Popen[str], text: str) -> str:
    read: list[str] = []
    for line in output(process):
        read.append(line)
        if text in line:
            return "".join(read)
    pytest.fail(f"it never said {text!r}:\n{''.join(read)}")


def prefix_of(text: str) -> str:
    found = re.search(r"on queues (\S+)\.\*", text)
    assert found, text
    return found[1]


def everything(prefix: str) -> topology.Topology:
    manifests = load_manifests(Path(str(files("reach_worker.demo") / "config" / "agents")), TagTable({}))
    return topology.complete(
        Names(prefix),
        router_ids=["router-1"],
        agent_ids=[manifest.id for manifest in manifests],
        capabilities=sorted({each.id for manifest in manifests for each in manifest.capabilities}),
    )


def left_on(url: str, prefix: str) -> list[str]:
    """The run's queues that exist."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        return [queue.name for queue in everything(prefix).queues if exists(connection, queue.name)]


def exists(connection: Any, queue: str) -> bool:
    channel = connection.channel()
    try:
        channel.queue_declare(queue, passive=True)
    except pika.exceptions.ChannelClosedByBroker:
        return False
    channel.close()
    return True


def delete_all(url: str, prefix: str) -> None:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        for queue in everything(prefix).queues:
            channel.queue_delete(queue.name)
        for exchange in everything(prefix).exchanges:
            channel.exchange_delete(exchange.name)


def nothing_left_in(folder: Path) -> bool:
    return not processes_mentioning(folder) and not list(folder.iterdir())


def figures_in(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text.splitlines()[-1])
    return found


def check(figures: dict[str, Any]) -> None:
    seconds, breakers = figures.pop("seconds"), figures.pop("breaker_opened")
    retried, rerouted = figures.pop("retried"), figures.pop("rerouted")
    assert figures == {"tasks": 64, "succeeded": 61, "dead_lettered": 2, "unmatched": 1, "replayed": 1}
    assert 0 < seconds < 60
    assert breakers >= 1
    assert rerouted >= retried >= 1


def reach(folder: Path, *arguments: str) -> str:
    """What the program says in the folder of a run that was kept."""
    found = subprocess.run(
        [sys.executable, "-m", "reach_worker", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    return found.stdout


def test_two_at_once_and_one_is_kept(url: str, tmp_path: Path) -> None:
    misleading = {"REACH_RETRY__MAX_RETRIES": "0", "REACH_BROKER__PREFIX": "none-of-it"}
    with (
        demo(tmp_path / "one", "--json", REACH_AMQP_URL=url, **misleading) as one,
        demo(tmp_path / "two", "--json", "--keep", REACH_AMQP_URL=url) as two,
    ):
        said = [output(process).read() for process in (one, two)]
        assert [process.wait() for process in (one, two)] == [0, 0], "\n".join(said)
    for text in said:
        check(figures_in(text))
        assert "Every task ended as it should." in text
        assert re.search(r"attempt \d → log-archive", text), "a re-routed task is explained"

    assert left_on(url, prefix_of(said[0])) == []
    assert nothing_left_in(tmp_path / "one")

    prefix = prefix_of(said[1])
    try:
        assert left_on(url, prefix) == [queue.name for queue in everything(prefix).queues]
        (kept,) = (tmp_path / "two").iterdir()
        assert str(kept) in said[1]
        assert not processes_mentioning(kept)
        assert "succeeded" in reach(kept, "explain", "demo-012")
        assert "demo-033-not-json" in reach(kept, "dlq", "list")
        assert "demo-054-image-paint" in reach(kept, "unmatched", "list")
    finally:
        delete_all(url, prefix)


@pytest.mark.parametrize(
    ("number", "moment"),
    [(signal.SIGINT, "processes started"), (signal.SIGTERM, "log-analyzer is killed")],
)
def test_stopped_at_any_moment_it_cleans_up(
    url: str, tmp_path: Path, number: signal.Signals, moment: str
) -> None:
    with demo(tmp_path / "run", REACH_AMQP_URL=url) as process:
        said = read_until(process, moment)
        process.send_signal(number)
        process.send_signal(number)
        said += output(process).read()
        assert process.wait() == 130, said
    assert said.splitlines()[-1] == "stopped"
    assert left_on(url, prefix_of(said)) == []
    assert nothing_left_in(tmp_path / "run")


def test_its_processes_do_not_outlive_it(url: str, tmp_path: Path) -> None:
    with demo(tmp_path / "run", REACH_AMQP_URL=url) as process:
        said = read_until(process, "publishing")
        process.kill()
    try:
        wait_until(lambda: not processes_mentioning(tmp_path / "run"))
    finally:
        delete_all(url, prefix_of(said))


@pytest.mark.parametrize("victim", ["router", "report-maker"])
def test_a_process_that_dies_is_told_with_its_log(url: str, tmp_path: Path, victim: str) -> None:
    with demo(tmp_path / "run", REACH_AMQP_URL=url) as process:
        said = read_until(process, "publishing")
        os.kill(child_of(process.pid, victim), signal.SIGKILL)
        said += output(process).read()
        assert process.wait() == 1, said
    assert f"{victim} ended unexpectedly (signal 9)" in said
    assert re.search(r"INFO .* is up, broker", said), "the end of the log"
    (kept,) = (tmp_path / "run").iterdir()
    assert str(kept) in said
    assert (kept / "logs" / f"{victim}.log").stat().st_size > 0
    assert left_on(url, prefix_of(said)) == []
    assert not processes_mentioning(tmp_path / "run")


def child_of(parent: int, word: str) -> int:
    """The process with this parent that has the word among its arguments."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (process / "cmdline").read_bytes().split(b"\0")
            fields = (process / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # gone meanwhile
            continue
        if int(fields[1]) == parent and word.encode() in arguments:
            return int(process.name)
    pytest.fail(f"{word} does not run")


@pytest.mark.parametrize(
    ("broker", "status", "hints"),
    [
        ("", 2, ["REACH_AMQP_URL is not set", "scripts/run", "scripts/broker start"]),
        ("amqp://127.0.0.1:1/", 1, ["no broker at 127.0.0.1:1"]),
        ("http://127.0.0.1/", 2, ["REACH_AMQP_URL", "must look like amqp://"]),
    ],
)
def test_without_a_broker_it_says_what_to_do(
    tmp_path: Path, broker: str, status: int, hints: Sequence[str]
) -> None:
    with demo(tmp_path / "run", "--json", REACH_AMQP_URL=broker) as process:
        said = output(process).read()
        assert process.wait() == status
    assert all(hint in said for hint in hints), said
    assert "Traceback" not in said
    assert nothing_left_in(tmp_path / "run")
