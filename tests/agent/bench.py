"""A worker at work on a broker in memory, and what its routers would see of it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson

from reach_worker import Agent
from reach_worker.agent.reception import worker_on
from reach_worker.agent.worker_policy import WorkerPolicy
from reach_worker.core.announcement import beat_from
from reach_worker.core.dispatch import NOTES, OUTCOME, STARTED_NOTE, Dispatch, dispatch_from, outcome_from
from reach_worker.core.envelope import Envelope
from reach_worker.core.message import Delivery, Message
from reach_worker.core.outcome import Outcome, OutcomeClass
from reach_worker.core.presence import Heartbeat
from reach_worker.services.router.messages import dispatch_message
from reach_worker.testing import MemoryBroker, MemoryBus, SteppedClock

LIMIT_S = 10.0
OWNER = "r1"
CAPABILITY = "text.echo"


@dataclass(repr=False)
class Bench:
    """One worker of an agent. The test is the router that it works for."""

    agent: Agent
    policy: WorkerPolicy = field(default_factory=lambda: WorkerPolicy(grace_s=5.0))
    clock: SteppedClock = field(default_factory=SteppedClock)

    def __post_init__(self) -> None:
        self.broker = MemoryBroker(self.clock)
        self.names = self.broker.names
        self.queue = self.names.agent(self.agent.manifest.id)
        self.broker.declare(self.queue)
        self.bus = MemoryBus(self.broker)
        self.worker = worker_on(self.bus, self.agent, "i1", self.names, self.policy, self.clock)
        self.router = MemoryBus(self.broker)
        self.router.subscribe("outcomes", self.names.outcomes(OWNER), 1000, at_once=True)
        self.router.subscribe_mailbox("events", [(self.names.events, "presence.#")])

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Bench"]:
        """The worker runs within the block, and is drained after it."""
        async with (
            asyncio.timeout(3 * LIMIT_S),
            self.router.running(),
            self.bus.running(),
            asyncio.TaskGroup() as group,
        ):
            work = group.create_task(self.worker.run())
            try:
                yield self
            finally:
                await self.drained(work)

    async def drained(self, work: "asyncio.Task[None]") -> None:
        """Ask the worker to stop, let its grace period pass, and wait until it is out."""
        self.worker.stop_asked.set()
        while not work.done():
            self.bus.inbox.arrived.set()
            await asyncio.wait([work], timeout=0.01)
            self.clock.advance(1.0)

    # -- what a router does

    def dispatch(
        self, task_id: str, capability: str = CAPABILITY, payload: Any = None, **fields: Any
    ) -> Dispatch:
        """Send a task to the agent; the dispatch id is the task id with a ``d-`` before it. ``leader``: of its race."""
        side_effects = fields.pop("side_effects", False)
        envelope = Envelope(
            task_id,
            "flow-1",
            capability,
            "caller-1",
            self.clock.utc_us(),
            side_effects=side_effects,
            crashes=fields.pop("crashes", 0),
            reply_to=fields.pop("reply_to", None),
            correlation_id="mark",
            race=fields.pop("race", False),
            group_owner=fields.pop("leader", ""),
        )
        task = {"capability": capability, "payload": payload or {}, "metadata": {"k": "v"}} | fields.pop(
            "task", {}
        )
        given: dict[str, Any] = {
            "envelope": envelope,
            "dispatch_id": f"d-{task_id}",
            "decision_id": "decision",
            "agent_id": self.agent.manifest.id,
            "owner": OWNER,
            "dispatched_at": self.clock.utc_us(),
            "start_by": self.clock.utc_us() + 60_000_000,
            "timeout_ms": 5_000,
        } | fields
        dispatch = Dispatch(**given)
        body = orjson.dumps(task)
        self.broker.publish(dispatch_message(self.names, dispatch, body, pickup_s=60.0))
        return dispatch

    async def say(self, routing_key: str, body: bytes = b"") -> None:
        """Publish to the events exchange."""
        await self.router.publish([Message(routing_key, body, {}, self.names.events, mandatory=False)])

    async def outcome(self) -> Outcome:
        """The next outcome, starts left out."""
        return (await self.told())[0]

    async def told(self) -> tuple[Outcome, Delivery]:
        """The next outcome and the message that brought it."""
        while True:
            delivery = await self._next("outcomes")
            if delivery.headers[OUTCOME] not in NOTES:
                return self.read(delivery), delivery

    async def note(self) -> str:
        """The dispatch id of the next message, which has to say that a handler is about to begin."""
        delivery = await self._next("outcomes")
        assert delivery.headers[OUTCOME] == STARTED_NOTE
        return str(delivery.headers["x-reach-dispatch"])

    def read(self, delivery: Delivery) -> Outcome:
        """The outcome in a message."""
        dispatch = dispatch_from(delivery.headers)
        assert isinstance(dispatch, Dispatch)
        outcome = outcome_from(delivery.headers, dispatch)
        assert isinstance(outcome, Outcome)
        return outcome

    async def beat(self) -> Heartbeat:
        """The next heartbeat."""
        beat = beat_from((await self._next("events")).body)
        assert isinstance(beat, Heartbeat)
        return beat

    async def beats(self) -> list[Heartbeat]:
        """The heartbeats that have come and were not looked at yet."""
        found = []
        while taken := self.router.inbox.take("events"):
            await self.router.ack(taken)
            found += [beat_from(delivery.body) for delivery in taken]
        return [beat for beat in found if isinstance(beat, Heartbeat)]

    async def _next(self, name: str) -> Delivery:
        async with asyncio.timeout(LIMIT_S):
            while not (taken := self.router.inbox.take(name, 1)):
                self.router.inbox.arrived.clear()
                await self.router.inbox.arrived.wait()
        await self.router.ack(taken)
        return taken[0]

    # -- what can be seen

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something has come true. Everything a worker does ends at the bus, or wakes somebody."""
        async with asyncio.timeout(LIMIT_S):
            while not holds():
                await asyncio.wait([asyncio.ensure_future(self._moment())])  # noqa: TID251 - ends here

    async def turned(self) -> None:
        """Wake the worker, and wait until it has done what there was to do."""
        arrived = self.bus.inbox.arrived
        for _ in range(2):
            arrived.set()
            await self.until(lambda: not arrived.is_set())
            await self._moment()

    async def _moment(self) -> None:
        """Let everybody else have a turn."""
        loop = asyncio.get_running_loop()
        turned = asyncio.Event()
        loop.call_later(0.002, turned.set)
        await turned.wait()

    @property
    def waiting(self) -> int:
        """Dispatches that wait in the agent's queue."""
        return len(self.broker.queues[self.queue].ready)


def echo(slots: int = 1, **declaration: Any) -> Agent:
    """An agent ``echo`` without handlers yet."""
    return Agent("echo", max_concurrency=slots, **declaration)


def kinds(*outcomes: Outcome) -> list[OutcomeClass]:
    """Their classes."""
    return [outcome.outcome for outcome in outcomes]
