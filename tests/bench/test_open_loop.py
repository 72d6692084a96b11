"""Load that does not wait for answers."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise

import pytest
import uvloop

from reach_worker.bench.chance import Chance
from reach_worker.bench.live.open_loop import Load, arrivals
from reach_worker.bus.rabbit import BusSettings, RabbitBus
from reach_worker.bus.removal import remove
from reach_worker.bus.topology import Queue, Topology
from reach_worker.clock import SystemClock
from reach_worker.core.message import Delivery, Message
from reach_worker.errors import OutsideWorld
from reach_worker.ports import Sent
from tests.bus.wire import shared_broker

HELD_S = 0.3


def test_arrivals_are_those_of_a_poisson_process_and_the_same_each_time() -> None:
    times = arrivals(100.0, 20_000, Chance("a").draw)
    assert times == sorted(times)
    assert times[-1] == pytest.approx(200.0, rel=0.05)
    gaps = [after - before for before, after in pairwise(times)]
    assert sum(gap > 0.01 for gap in gaps) / len(gaps) == pytest.approx(
        0.3679, abs=0.02
    )  # 1/e wait longer than 1/rate
    assert times == arrivals(100.0, 20_000, Chance("a").draw)


class HeldUp(RabbitBus):
    """A bus that is held up once, as a publisher is by a busy broker."""

    held = False

    async def publish(self, messages: Sequence[Message]) -> list[Sent]:
        if not self.held:
            self.held = True
            await SystemClock().sleep(HELD_S)
        return await super().publish(messages)


@asynccontextmanager
async def echo(kind: type[RabbitBus]) -> AsyncIterator[Load]:
    """What is sent comes straight back."""
    name = f"bench-echo-{SystemClock().new_id()[-8:]}"
    settings = replace(BusSettings((shared_broker(),), "test"), waits=False)
    topology = Topology((), (Queue(name, {"x-queue-type": "classic"}),), ())
    bus = kind(settings, SystemClock(), topology)
    bus.subscribe("back", name, 200, at_once=True)
    try:
        async with bus.running():
            yield Load(bus, ["back"], lambda task_id: Message(name, b"", message_id=task_id), message_id)
    finally:
        await remove(settings, topology)


def message_id(delivery: Delivery) -> str | None:
    return delivery.message_id


@pytest.mark.broker
def test_latency_counts_from_the_time_when_it_was_to_be_sent() -> None:
    async def measured() -> list[float]:
        async with echo(HeldUp) as load:
            return await load.latencies([0.0, 0.01, 0.5], 30.0)

    took = uvloop.run(measured())
    assert len(took) == 3
    assert took[-1] >= HELD_S
    assert took == sorted(took)


@pytest.mark.broker
def test_a_rate_counts_every_answer() -> None:
    async def measured() -> float:
        async with echo(RabbitBus) as load:
            return await load.rate(300, 30.0)

    assert uvloop.run(measured()) > 10


@pytest.mark.broker
def test_what_is_not_answered_is_told() -> None:
    async def measured() -> None:
        async with echo(RabbitBus) as load:
            await replace(load, inboxes=["elsewhere"]).latencies([0.0, 0.0], 0.5)

    with pytest.raises(OutsideWorld, match="2 of 2 tasks were not answered"):
        asyncio.run(measured())
