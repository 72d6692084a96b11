"""Removing what was declared."""

import pytest

from reach_worker.bus import topology
from reach_worker.bus.rabbit import BusSettings
from reach_worker.bus.removal import remove
from reach_worker.core.names import Names
from reach_worker.errors import BrokerUnavailable
from tests.bus.conftest import MakeBus
from tests.bus.wire import Wire

pytestmark = pytest.mark.broker


async def test_nothing_is_left_and_what_was_not_there_is_fine(
    make_bus: MakeBus, wire: Wire, names: Names, broker_url: str
) -> None:
    wanted = topology.complete(names, router_ids=["r"], agent_ids=["a"], capabilities=["c"])
    settings = BusSettings(urls=("amqp://127.0.0.1:1/", broker_url), name="test", prefix=names.prefix)
    async with make_bus(wanted=wanted).running():
        await wire.publish(names.dlq, b"goes with its queue")
        assert None not in [await wire.look(queue.name) for queue in wanted.queues]
    for _ in range(2):
        await remove(settings, wanted)
        assert [name for name in wanted.queues if await wire.look(name.name)] == []


async def test_an_absent_broker_is_an_error(names: Names) -> None:
    with pytest.raises(BrokerUnavailable, match=r"no broker at 127\.0\.0\.1:1"):
        await remove(BusSettings(urls=("amqp://127.0.0.1:1/",), name="test"), topology.base(names))
