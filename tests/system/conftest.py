"""The whole system, from its command line, on a real broker."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from reach_worker.bus import topology
from reach_worker.core.names import Names
from tests.bus.private_node import Node, private_node
from tests.bus.wire import shared_broker
from tests.system.crew import MEMBERS
from tests.system.handing_agents import HANDING
from tests.system.processes import Processes, environment
from tests.system.small_agents import AGENTS
from tests.system.talkers import TALKERS

ROUTERS = ("router-1", "router-2", "router-3")


@pytest.fixture(scope="session")
def broker_url() -> str:
    """The broker of REACH_AMQP_URL. None is a failure in CI, and skips the test elsewhere."""
    return shared_broker()


@contextmanager
def open_channel(broker_url: str) -> Iterator[BlockingChannel]:
    """The broker as a client sees it that is not ours."""
    with pika.BlockingConnection(pika.URLParameters(broker_url)) as connection:
        yield connection.channel()


@pytest.fixture
def channel(broker_url: str) -> Iterator[BlockingChannel]:
    """A channel of the test's own."""
    with open_channel(broker_url) as channel:
        yield channel


@contextmanager
def fresh_prefix(broker_url: str) -> Iterator[str]:
    """Begins the names of everything that a test has on the broker; all of it is deleted in the end."""
    prefix = f"t{os.urandom(4).hex()}"
    yield prefix
    delete_all(broker_url, prefix)


def delete_all(broker_url: str, prefix: str) -> None:
    """Delete what these tests may have made under a prefix. What does not exist is fine."""
    manifests = [agent.manifest for agent in (*AGENTS, *MEMBERS, *TALKERS, *HANDING)]
    made = topology.complete(
        Names(prefix),
        router_ids=ROUTERS,
        agent_ids=[manifest.id for manifest in manifests],
        capabilities=[each.id for manifest in manifests for each in manifest.capabilities],
    )
    with pika.BlockingConnection(pika.URLParameters(broker_url)) as connection:
        channel = connection.channel()
        for queue in made.queues:
            channel.queue_delete(queue.name)
        for exchange in made.exchanges:
            channel.exchange_delete(exchange.name)


@contextmanager
def fresh_processes(broker_url: str, prefix: str, folder: Path) -> Iterator[Processes]:
    """Starts ``reach`` in a folder, with a store of its own.

    It is quick to retry and to notice who is there, opens no breaker, and chooses by a policy without chance.
    """
    settings = {
        "REACH_AMQP_URL": broker_url,
        "REACH_BROKER__PREFIX": prefix,
        "REACH_STORE__PATH": str(folder / "reach.db"),
        "REACH_PRESENCE__HEARTBEAT_S": "0.3",
        "REACH_PRESENCE__SUSPECT_S": "1.5",
        "REACH_PRESENCE__NEWCOMERS_S": "0.3",
        "REACH_RETRY__BASE_S": "0.05",
        "REACH_ROUTING__PRESET": "declared",
        "REACH_BREAKER__STREAK": "100",
        "REACH_BREAKER__MIN_SAMPLES": "1000",
    }
    processes = Processes(folder, environment(**settings))
    try:
        yield processes
    finally:
        processes.close()


@pytest.fixture
def prefix(broker_url: str) -> Iterator[str]:
    """A prefix of the test's own."""
    with fresh_prefix(broker_url) as prefix:
        yield prefix


@pytest.fixture
def names(prefix: str) -> Names:
    """The names under the prefix."""
    return Names(prefix)


@pytest.fixture
def processes(broker_url: str, prefix: str, tmp_path: Path) -> Iterator[Processes]:
    """Starts ``reach`` in a folder of the test's own, under its own prefix."""
    with fresh_processes(broker_url, prefix, tmp_path) as processes:
        yield processes


@pytest.fixture(scope="module")
def fleet(broker_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """A router, and two agents that can do ``text.echo``, for all tests of a module: they use task ids of their own."""
    folder = tmp_path_factory.mktemp("fleet")
    with fresh_prefix(broker_url) as prefix, fresh_processes(broker_url, prefix, folder) as processes:
        processes.agent("tests.system.small_agents:quick")
        processes.agent("tests.system.small_agents:slow")
        processes.router()
        yield processes


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node for everything that the shared broker must not suffer."""
    with private_node(tmp_path_factory.mktemp("node")) as node:
        yield node
