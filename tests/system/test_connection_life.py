"""Whatever happens to the connections of a running router and a running agent: half a minute later they work again.

After each fault both consume again and say so (``reach ready``), no task is lost, no process is stuck in a loop, and
nothing piles up in memory.
"""

import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from socket import gethostname
from typing import Final

import pytest
from pika.exceptions import ChannelClosedByBroker
from yarl import URL

from reach_worker.core.names import Names
from reach_worker.testing.tcp_proxy import proxy_beside
from tests.bus.private_node import Node
from tests.system.caller import Caller
from tests.system.conftest import fresh_processes, open_channel
from tests.system.crew import CREW, ONLY
from tests.system.processes import Processes, Running

pytestmark = [pytest.mark.broker, pytest.mark.system, pytest.mark.timeout(240)]

AGAIN_S: Final = 30.0
SESSIONS_A_FAULT: Final = 4
"""A fault may end a session or two more while it lasts; a loop would end dozens."""
MB: Final = 1024
SETTINGS: Final = {
    "REACH_BROKER__HEARTBEAT_S": "1",
    "REACH_BROKER__CALL_TIMEOUT_S": "3",
    "REACH_BROKER__CONNECT_TIMEOUT_S": "1",
}
_NUMBERS: Final = count()


@dataclass
class Life:
    """A router and an agent, on a node that a test may do anything to."""

    node: Node
    names: Names
    processes: Processes
    caller: Caller
    router: Running
    agent: Running
    resident_kb: list[int] = field(default_factory=list)

    @property
    def both(self) -> tuple[Running, Running]:
        return self.router, self.agent

    def publish(self, tasks: int = 10) -> list[str]:
        """Tasks of some ten milliseconds, four at a time."""
        ids = [f"t-{next(_NUMBERS)}" for _ in range(tasks)]
        self.caller.publish({task_id: {"capability": ONLY, "payload": {"hold": 0.05}} for task_id in ids})
        return ids

    def assert_works(self, published: list[str]) -> None:
        """What was published before and what is published now is done, and both are ready."""
        wanted = [*published, *self.publish()]
        self.caller.until_answered(wanted, AGAIN_S)
        assert {self.caller.final(task_id)["status"] for task_id in wanted} == {"succeeded"}
        self.router.wait_until(lambda: self.ready()[0] == 0, "it is ready")

    def ready(self, *whom: str) -> tuple[int, str]:
        """What ``reach ready`` says."""
        done = self.processes.reach("ready", "--within", "2s", *whom, REACH_AMQP_URL=self.node.url)
        return done.status, done.out + done.err

    def consumers(self, queue: str) -> int:
        """How many consume a queue, by the broker."""
        with open_channel(self.node.url) as channel:
            try:
                found: int = channel.queue_declare(queue, passive=True).method.consumer_count
            except ChannelClosedByBroker:  # there is no such queue now
                return 0
            return found

    def until_consumed(self, queue: str) -> None:
        """Wait until somebody consumes it."""
        self.router.wait_until(lambda: self.consumers(queue) > 0, f"{queue} is consumed again")

    def sessions_ended(self) -> int:
        return max(len(re.findall("broker session ended", each.log())) for each in self.both)


@contextmanager
def begun(node: Node, folder: Path, prefix: str, url: str) -> Iterator[Life]:
    """Processes that know the broker by this URL; everybody else uses the node's own."""
    names = Names(prefix)
    with fresh_processes(url, prefix, folder) as processes:
        router = processes.router(**SETTINGS)
        agent = processes.agent(CREW["crew-1"], **SETTINGS)
        router.wait_for("crew-1 instance .* is active")
        with Caller(node.url, names.tasks) as caller:
            yield Life(node, names, processes, caller, router, agent)
        for each in (agent, router):
            assert "Traceback" not in each.log()


@pytest.fixture(scope="module")
def life(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    with begun(node, tmp_path_factory.mktemp("life"), "life", node.url) as life:
        life.assert_works(life.publish(100))
        life.resident_kb = [resident_kb(each) for each in life.both]
        yield life


# ---- One pair of processes lives through all of this, in order


def closed_by_the_broker(life: Life) -> None:
    life.node.close_connections()


def restarted_in_order(life: Life) -> None:
    life.node.ctl("eval", "rabbit:stop(), rabbit:start().")


def killed(life: Life) -> None:
    life.node.kill()
    try:
        status, said = life.ready()
        assert (status, "no broker at" in said) == (1, True)
    finally:
        life.node.start()


def out_of_memory(life: Life) -> None:
    with life.node.memory_alarm():
        status, said = life.ready()
        assert (status, "the broker takes no messages now" in said) == (1, True)


def stopped_processes(life: Life) -> None:
    """An event loop that stands still, as seen by the broker: it closes, and the process does not know."""
    for each in life.both:
        each.signal(signal.SIGSTOP)
    try:
        life.router.wait_until(
            lambda: life.consumers(life.names.outcomes("router-1")) == 0, "the broker gave it up"
        )
        assert life.ready() == (1, "router router-1 is not ready: no answer within 2 s\n")
        assert life.ready("--agent", "crew-1")[0] == 1
    finally:
        for each in life.both:
            each.signal(signal.SIGCONT)


@pytest.mark.parametrize(
    "fault", [closed_by_the_broker, restarted_in_order, killed, out_of_memory, stopped_processes]
)
def test_in_the_middle_of_work(life: Life, fault: Callable[[Life], None]) -> None:
    before = life.sessions_ended()
    published = life.publish(40)
    life.caller.until(lambda: any(task_id in life.caller.answers for task_id in published))
    fault(life)
    life.assert_works(published)
    assert life.sessions_ended() - before <= SESSIONS_A_FAULT


def test_queues_are_deleted_under_their_consumers(life: Life) -> None:
    """The broker cancels the consumers. Nothing was in the queues, so nothing may be missing."""
    names, before = life.names, life.sessions_ended()
    for queue in (names.agent("crew-1"), names.returns, names.outcomes("router-1"), names.intake):
        life.until_consumed(queue)
        with open_channel(life.node.url) as channel:
            channel.queue_delete(queue)
        whose = life.agent if queue == names.agent("crew-1") else life.router
        whose.wait_for(f"the broker cancelled the consumer of {queue}")
        life.until_consumed(queue)
    life.assert_works([])
    assert life.ready("--agent", "crew-1", "--here") == (0, f"agent crew-1 on {gethostname()} is ready\n")
    assert life.sessions_ended() - before <= 4 * SESSIONS_A_FAULT


def test_who_is_not_there_is_not_ready(life: Life) -> None:
    assert life.ready("--router", "router-2") == (1, "router router-2 is not ready: no answer within 2 s\n")
    assert life.ready("--agent", "crew-2")[0] == 1


def test_memory_is_what_it_was(life: Life) -> None:
    """After a dozen sessions with work in each."""
    assert life.sessions_ended() >= 7
    grown = [resident_kb(each) - kb for each, kb in zip(life.both, life.resident_kb, strict=True)]
    assert max(grown) < 10 * MB, grown


def resident_kb(running: Running) -> int:
    status = Path(f"/proc/{running.process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1])  # type: ignore[index]  # every process has one


# ---- Processes of their own


def test_a_black_hole_at_the_first_host_leads_to_the_next(node: Node, tmp_path: Path) -> None:
    """Nothing is reset: only the heartbeat tells."""
    url = URL(node.url)
    with proxy_beside(url.host or "", url.port or 5672) as (proxy, call):
        first = url.with_port(proxy.url_port)
        with begun(node, tmp_path, "hosts", f"{first} {url}") as life:
            life.assert_works([])
            assert proxy.accepted >= 4, "both came by the first"
            call(proxy.blackhole)
            status, said = life.ready()
            assert (status, said) == (1, "router router-1 is not ready: no answer within 2 s\n")
            published = life.publish(20)
            life.assert_works(published)
            assert life.sessions_ended() <= SESSIONS_A_FAULT


def test_a_password_that_is_changed_and_put_right(node: Node, tmp_path: Path) -> None:
    node.ctl("add_user", "life", "first")
    node.ctl("set_permissions", "life", ".*", ".*", ".*")
    url = str(URL(node.url).with_user("life").with_password("first"))
    with begun(node, tmp_path, "password", url) as life:
        life.assert_works([])
        node.ctl("change_password", "life", "second")
        node.close_connections()
        published = life.publish(20)
        for each in life.both:
            each.wait_for(r"refuses user 'life'.*\(attempt 4, trying again\)")
            assert len(each.log().splitlines()) < 40, each.log()
            assert "first" not in each.log()
        assert life.ready()[0] == 1
        node.ctl("change_password", "life", "first")
        life.assert_works(published)
