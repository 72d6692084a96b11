"""Adapters in a worker: what a router and a caller see of them."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager

import orjson
import pytest

from reach_worker.adapters import chat_agent, command_agent
from reach_worker.adapters.agents import AdapterAgent
from reach_worker.agent.outcomes import Cancelled
from reach_worker.core.announcement import cancel_key
from reach_worker.core.outcome import OutcomeClass
from tests.adapters.attempts import MANIFEST, attempt
from tests.adapters.test_chat import DONE, counted, drip, event, said, stream
from tests.adapters.web import web
from tests.agent.bench import Bench

CAPABILITY = "some.work"
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(300)"


@asynccontextmanager
async def working(agent: AdapterAgent) -> AsyncIterator[Bench]:
    bench = Bench(agent)
    async with bench.running():
        yield bench


async def test_tokens_and_cost_travel_with_the_outcome() -> None:
    events = [*said("Hello"), event(finish="stop"), counted(1000, 100), DONE]
    async with web(stream(events)) as site:
        prices = {"input_per_1k": 1, "output_per_1k": 10}
        agent = chat_agent(MANIFEST, environ={}, base_url=site.url, model="m", prices=prices)
        async with working(agent) as bench:
            bench.dispatch("t1", CAPABILITY, {"prompt": "Hi"})
            outcome, delivery = await bench.told()
    assert outcome.outcome is OutcomeClass.SUCCEEDED
    assert (outcome.cost, outcome.tokens_in, outcome.tokens_out) == (2.0, 1000, 100)
    assert orjson.loads(delivery.body)["text"] == "Hello"


async def test_a_task_that_is_taken_back_hangs_up_and_has_its_cost_booked() -> None:
    async with web(drip) as site:
        agent = chat_agent(MANIFEST, environ={}, base_url=site.url, model="m")
        async with working(agent) as bench:
            dispatch = bench.dispatch("t1", CAPABILITY, {"prompt": "Hi"})
            await bench.until(lambda: bool(site.requests))
            await bench.say(cancel_key(agent.manifest.id), dispatch.dispatch_id.encode())
            outcome = await bench.outcome()
            await asyncio.wait_for(site.gone.wait(), 10)
    assert outcome.outcome is OutcomeClass.CANCELLED
    assert outcome.tokens_in > 0


async def test_a_program_that_will_not_end_keeps_its_slot_until_it_is_killed() -> None:
    argv = [sys.executable, "-c", DEAF]
    agent = command_agent(MANIFEST, environ=dict(os.environ), argv=argv, grace_s=3)
    async with working(agent) as bench:
        bench.dispatch("t1", CAPABILITY, timeout_ms=1500)
        outcome = await bench.outcome()
        assert outcome.outcome is OutcomeClass.TIMEOUT
        assert bench.worker.left_behind == 1
        await bench.until(lambda: bench.worker.left_behind == 0)


async def test_it_ends_by_itself_as_soon_as_it_is_told_to_stop() -> None:
    context = attempt()

    async def heard() -> None:
        context.cancel()

    context.on_chunk = heard
    async with web(drip) as site:
        agent = chat_agent(MANIFEST, environ={}, base_url=site.url, model="m")
        async with agent.adapter.opened():
            with pytest.raises(Cancelled, match="told to stop"):
                await agent.handlers[CAPABILITY].call({"prompt": "Hi"}, context)
        await asyncio.wait_for(site.gone.wait(), 10)
    assert context.spent.tokens_in > 0


class Turn:
    """One turn of the loop."""

    def __await__(self) -> Generator[None]:
        yield


@pytest.mark.parametrize("turns", range(6))
async def test_it_hangs_up_too_where_it_is_told_to_stop_while_it_ends_by_itself(turns: int) -> None:
    context = attempt()

    async def refused() -> None:
        context.cancel()
        for _ in range(turns):
            await Turn()
        raise Cancelled("nobody waits for what it says")

    context.on_chunk = refused
    async with web(drip) as site:
        agent = chat_agent(MANIFEST, environ={}, base_url=site.url, model="m")
        async with agent.adapter.opened():
            with pytest.raises(Cancelled):
                await agent.handlers[CAPABILITY].call({"prompt": "Hi"}, context)
            await asyncio.wait_for(site.gone.wait(), 10)
