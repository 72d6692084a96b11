"""A caller, a router and agents around one broker in memory, and a loop that lets all of them go on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import orjson

from reach_worker.calling.client import ReachClient, line_of
from reach_worker.client import MAILBOX, Client
from reach_worker.clock import SystemClock
from reach_worker.core.message import Delivery
from reach_worker.core.streaming import Speaker
from reach_worker.testing import MemoryBus
from tests.bus.until import until
from tests.services.scripted import ScriptedAgent, Work
from tests.services.stage import Stage

CAPABILITY = "text.echo"


class OverBus(ReachClient):
    """The client over a bus of the test's; everything else is as it is."""

    def __init__(self, client: Client, timeout: float | None = 20.0) -> None:
        super().__init__("amqp://nowhere", timeout=timeout)
        self._client = client

    @asynccontextmanager
    async def running(self) -> AsyncIterator["OverBus"]:
        """In place of a connection to RabbitMQ."""
        async with line_of(self._client) as self._line:
            yield self


@dataclass
class Scene:
    """What a test has at hand. The router's clock is the stage's; the caller's is the machine's."""

    stage: Stage
    agent: ScriptedAgent
    bus: MemoryBus
    reach: OverBus

    async def held(self, count: int = 1) -> list[Work]:
        """Wait until the agent has so many dispatches in its hands."""
        await until(lambda: len(self.agent.held) >= count)
        return list(self.agent.held)

    def say(self, work: Work, body: bytes) -> bool:
        """Something for the caller while the agent works; ``False`` if nobody listens any more."""
        envelope = work.dispatch.envelope
        to, mark = envelope.reply_to or "", envelope.correlation_id
        return self.stage.broker.put(Delivery("", body, None, correlation_id=mark, routing_key=to))

    def runs(self) -> int:
        """How often agents were told to run anything."""
        return sum(agent.ran.total() for agent in self.stage.agents)


def speaker(work: Work, agent_id: str = "ann", attempt: int | None = None) -> Speaker:
    """The agent that has this dispatch, as it speaks to the caller."""
    envelope = work.dispatch.envelope
    number = attempt or envelope.next_attempt
    return Speaker(envelope.task_id, envelope.flow_id, agent_id, number, work.dispatch.dispatch_id)


def chunks(work: Work, *values: Any) -> list[bytes]:
    """A run's messages, from its first."""
    said = speaker(work)
    return [said.started(), *(said.chunk(seq, orjson.dumps(value)) for seq, value in enumerate(values))]


@asynccontextmanager
async def scene(script: Any = None, *, slots: int = 200, user_id: str | None = None) -> AsyncIterator[Scene]:
    """A caller and a router that are at work, and an agent ``ann``; without a script it holds what it is given."""
    stage = Stage()
    await stage.router()
    agent = await stage.agent("ann", slots=slots, script=script or (lambda _: None))
    bus = MemoryBus(stage.broker)
    bus.subscribe_mailbox(MAILBOX, prefix="reach-answers")
    async with bus.running():
        client = Client(bus, stage.names, SystemClock(), user_id=user_id)
        async with asyncio.TaskGroup() as group, OverBus(client).running() as reach:
            turning = group.create_task(_turn(stage))
            try:
                yield Scene(stage, agent, bus, reach)
            finally:
                turning.cancel()


async def _turn(stage: Stage) -> None:
    """Everybody does what there is to do, again and again; their clock runs a few times as fast as ours."""
    clock = SystemClock()
    while True:
        await stage.pass_time(0.01, step=0.01)
        await clock.sleep(0.001)
