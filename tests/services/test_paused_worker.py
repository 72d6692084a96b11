"""A real worker that is told to take no more: it hands back what waits, and goes on when something is done."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson

from reach_worker.agent.agent import Agent
from reach_worker.agent.worker import Worker
from reach_worker.agent.worker_policy import WorkerPolicy
from reach_worker.core.announcement import PAUSE, RESUME, WHO, beat_from
from reach_worker.core.dispatch import Dispatch
from reach_worker.core.envelope import Envelope
from reach_worker.core.message import Message
from reach_worker.core.presence import Heartbeat
from reach_worker.testing import MemoryBroker, MemoryBus, SteppedClock
from tests.bus.until import until

LISTENER = "listener"


@dataclass(repr=False)
class Place:
    """A worker with two slots, whose handler runs until it is let go."""

    clock: SteppedClock = field(default_factory=SteppedClock)
    let_go: asyncio.Event = field(default_factory=asyncio.Event)
    began: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.broker = MemoryBroker(self.clock)
        self.names = self.broker.names
        self.broker.declare_private(LISTENER)
        self.broker.bind(self.names.events, "presence.#", LISTENER)
        self.broker.declare(self.names.outcomes("r1"))
        self.bus = MemoryBus(self.broker, slow_start=False)
        self.bus.subscribe("work", self.names.agent("a"), 4, wanted=False)
        self.bus.subscribe_mailbox("instance", [(self.names.events, WHO)])
        agent = Agent("a", max_concurrency=2)
        agent.capability("text.echo")(self.handle)
        self.worker = Worker(agent, "a-1", self.names, WorkerPolicy(), self.bus, self.clock)

    async def handle(self, payload: dict[str, Any]) -> dict[str, Any]:
        self.began.append(payload["id"])
        await self.let_go.wait()
        return {}

    @asynccontextmanager
    async def working(self) -> AsyncIterator["Place"]:
        async with self.bus.running(), asyncio.TaskGroup() as group:
            group.create_task(self.worker.run())
            await until(lambda: self.beats() != [])
            yield self
            self.let_go.set()
            self.worker.stop_asked.set()

    def dispatch(self, task_id: str) -> None:
        now = self.clock.utc_us()
        sent = Dispatch(
            Envelope(task_id, task_id, "text.echo", "", now), f"d-{task_id}", "x", "a", "r1", now, 0, 60_000
        )
        body = orjson.dumps({"capability": "text.echo", "payload": {"id": task_id}})
        self.broker.publish(Message(self.names.agent("a"), body, sent.headers()))

    def tell(self, body: bytes) -> None:
        self.broker.publish(Message(self.bus.mailbox, body, {}))

    def beats(self) -> list[Heartbeat]:
        read = [beat_from(delivery.body) for delivery in self.broker.messages(LISTENER)]
        return [beat for beat in read if isinstance(beat, Heartbeat)]

    def outcomes(self) -> list[str]:
        return [str(d.headers["x-reach-outcome"]) for d in self.broker.messages(self.names.outcomes("r1"))]

    def consumes(self) -> bool:
        return bool(self.broker.queues[self.names.agent("a")].consumers)


async def paused(place: Place) -> None:
    """Two tasks run, two wait in its hands; then it is told to take no more."""
    for number in range(4):
        place.dispatch(f"t{number}")
    await until(lambda: len(place.began) == 2)
    place.tell(PAUSE)
    await until(lambda: not place.consumes())


async def test_it_takes_no_more_and_hands_back_what_waits() -> None:
    async with Place().working() as place:
        await paused(place)
        await until(lambda: len(place.outcomes()) == 2)
        assert place.outcomes() == ["released"] * 2
        place.dispatch("late")
        place.tell(b"")
        heard = len(place.beats())
        await until(lambda: len(place.beats()) > heard)
        assert sorted(place.began) == ["t0", "t1"]
        assert len(place.broker.messages(place.names.agent("a"))) == 1


async def test_it_goes_on_when_it_is_told() -> None:
    async with Place().working() as place:
        await paused(place)
        place.tell(RESUME)
        await until(place.consumes)


async def test_it_goes_on_by_itself_when_something_is_done() -> None:
    """The router that told it to stop may be gone."""
    async with Place().working() as place:
        await paused(place)
        place.let_go.set()
        await until(place.consumes)
        place.dispatch("next")
        await until(lambda: "next" in place.began)


async def test_its_heartbeats_count_what_has_ended() -> None:
    async with Place().working() as place:
        assert place.beats()[-1].completed == 0
        place.dispatch("t0")
        await until(lambda: place.began == ["t0"])
        place.let_go.set()
        await until(lambda: place.outcomes() == ["succeeded"])
        place.tell(b"")
        await until(lambda: place.beats()[-1].completed == 1)


async def test_told_while_it_has_nothing_to_do_it_does_not_stop_for_long() -> None:
    async with Place().working() as place:
        place.tell(PAUSE)
        await until(lambda: ("stop", "work") in place.bus.journal)
        await until(place.consumes)
