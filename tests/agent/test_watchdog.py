"""A handler that blocks the event loop is noticed while it does, and named."""

import asyncio
import logging
import re
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from reach_worker.agent.watchdog import Watchdog
from reach_worker.core.outcome import OutcomeClass
from reach_worker.testing import SteppedClock
from tests.agent.bench import CAPABILITY, LIMIT_S, Bench, echo

Payload = Mapping[str, Any]
NAME = "reach_worker.agent.watchdog"


class Said(logging.Handler):
    """What the watchdog said, and whether it has said anything yet."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.first = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        self.first.set()


@pytest.fixture
def said() -> Iterator[Said]:
    handler, logger = Said(), logging.getLogger(NAME)
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


async def test_the_handler_the_task_the_time_and_the_place_are_named(said: Said) -> None:
    agent, clock = echo(), SteppedClock()

    @agent.capability(CAPABILITY)
    async def hog(_: Payload) -> bool:
        return block(clock, said)

    bench = Bench(agent, clock=clock)
    async with bench.running():
        bench.dispatch("t1", timeout_ms=60_000)
        outcome = await bench.outcome()
        await bench.until(lambda: len(said.lines) > 1)
    assert outcome.outcome is OutcomeClass.SUCCEEDED
    blocks, let_go = said.lines
    assert blocks.startswith("the handler of text.echo (task t1) blocks the event loop, for ")
    assert re.search(r" at \S+/test_watchdog\.py:\d+ in hog \(\S+ in wait\): no heartbeat", blocks)
    assert "should be a plain function" in blocks
    assert let_go.startswith("the handler of text.echo (task t1) let go after ")


def block(clock: SteppedClock, said: Said) -> bool:
    """As a computation does that awaits nothing; until it was noticed."""
    clock.now += 5.0
    return said.first.wait(LIMIT_S)


async def test_it_knows_for_how_long(said: Said) -> None:
    clock = SteppedClock()
    dog = Watchdog(clock, look_s=0.01, blocked_s=0.01)
    asked = threading.Event()

    async def hog() -> None:
        asyncio.get_running_loop().call_soon(asked.set)
        while not said.first.wait(0.02):
            clock.now += 7.0

    with dog.watching():
        async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
            group.create_task(hog(), name="hog")
        async with asyncio.timeout(LIMIT_S):
            while len(said.lines) < 2:
                await asyncio.wait([asyncio.ensure_future(asyncio.to_thread(said.first.wait, 0.01))])  # noqa: TID251 - ends here
    assert said.lines[0].startswith("hog blocks the event loop, for ")
    assert said.lines[-1].startswith("hog let go after ")


async def test_one_that_awaits_what_takes_long_is_left_alone(said: Said) -> None:
    woken = asyncio.Event()
    with Watchdog(SteppedClock(), look_s=0.005, blocked_s=0.2).watching():
        asyncio.get_running_loop().call_later(0.1, woken.set)
        await woken.wait()
    assert not said.lines
