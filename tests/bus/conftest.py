"""A broker, names of one's own on it, and buses to try there."""

import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import pytest
import uvloop

from reach_worker.bus import topology
from reach_worker.bus.rabbit import BusSettings, RabbitBus
from reach_worker.bus.topology import Topology
from reach_worker.clock import SystemClock
from reach_worker.core.names import Names
from tests.bus.private_node import Node, private_node
from tests.bus.wire import Wire, shared_broker

HERE: Final = Path(__file__).parent
NOTHING: Final = Topology((), (), ())


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], Any]]:
    """The loop that the package runs on: its transports end in other ways than asyncio's."""
    return {"uvloop": uvloop.new_event_loop}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """On that loop a signal cannot end a test that hangs."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.timeout(60, method="thread"))


class Impatient(SystemClock):
    """The machine's clock, which waits a twentieth of a second where a minute was asked for."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(min(seconds, 0.05))


class MakeBus(Protocol):
    """Makes a bus that is not running yet. ``url`` defaults to the shared broker; ``settings`` as in ``BusSettings``."""

    def __call__(self, *urls: str, wanted: Topology = ..., **settings: Any) -> RabbitBus: ...


@pytest.fixture
def broker_url() -> str:
    return shared_broker()


@pytest.fixture
def prefix() -> str:
    return f"test-{os.urandom(6).hex()}"


@pytest.fixture
async def wire(broker_url: str) -> AsyncIterator[Wire]:
    async with Wire.to(broker_url) as wire:
        yield wire


@pytest.fixture
async def names(wire: Wire, prefix: str) -> AsyncIterator[Names]:
    """Names that nobody else uses. What router ``r``, agent ``a`` and capability ``c`` have under them is deleted."""
    names = Names(prefix)
    yield names
    await wire.delete_all(topology.complete(names, router_ids=["r"], agent_ids=["a"], capabilities=["c"]))


@pytest.fixture
def make_bus(prefix: str) -> MakeBus:
    def make(*urls: str, wanted: Topology = NOTHING, **settings: Any) -> RabbitBus:
        made = BusSettings(urls=urls or (shared_broker(),), name="test", prefix=prefix, **settings)
        return RabbitBus(made, Impatient(), wanted)

    return make


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node for everything that the shared broker must not suffer."""
    with private_node(tmp_path_factory.mktemp("node")) as node:
        yield node
