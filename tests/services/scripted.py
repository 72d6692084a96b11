"""An agent that does what a test tells it: it takes dispatches, holds them, and answers by script."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from reach_worker.core.announcement import (
    PAUSE,
    RESUME,
    WHO,
    beat_body,
    cancel_key,
    go_key,
    instance_keys,
    manifest_key,
    presence_key,
)
from reach_worker.core.dispatch import (
    OUTCOME,
    SPOKE_NOTE,
    STARTED_NOTE,
    Dispatch,
    dispatch_from,
    outcome_headers,
)
from reach_worker.core.document import Document
from reach_worker.core.handoff import Handoff, outcome_body, said
from reach_worker.core.manifest import Manifest, manifest_from
from reach_worker.core.message import Delivery, Message
from reach_worker.core.outcome import Outcome, OutcomeClass
from reach_worker.core.presence import Heartbeat
from reach_worker.core.tags import TagTable
from reach_worker.testing import MemoryBroker, MemoryBus

BEAT_S = 3.0


def manifest(agent_id: str, *capabilities: str, slots: int = 1, **fields: Any) -> Manifest:
    """A manifest; ``fields`` beginning with ``capability_`` go to every capability."""
    own = {name: value for name, value in fields.items() if not name.startswith("capability_")}
    each = {name.removeprefix("capability_"): value for name, value in fields.items() if name not in own}
    data = {
        "id": agent_id,
        "mutually_exclusive_tags": [],
        "max_concurrency": slots,
        "capabilities": [{"id": name, **each} for name in capabilities or ("text.echo",)],
        **own,
    }
    return manifest_from(Document(data), tags=TagTable({}))


@dataclass(frozen=True, slots=True)
class Work:
    """A dispatch that the agent has."""

    dispatch: Dispatch
    delivery: Delivery

    @property
    def task_id(self) -> str:
        return self.dispatch.envelope.task_id


@dataclass(frozen=True, slots=True)
class Reply:
    """How the agent is to end a dispatch."""

    kind: OutcomeClass = OutcomeClass.SUCCEEDED
    message: str = ""
    result: bytes = b'{"said": "done"}'
    retry_after_ms: int | None = None
    started: bool = True
    crashed: bool = False
    duration_ms: float | None = 5.0
    cost: float = 0.0
    chunks: int = 0
    handoff: Handoff | None = None


Script = Callable[[Work], Reply | None]


@dataclass(repr=False)
class ScriptedAgent:
    """One instance of an agent. ``script`` decides on each dispatch; ``None`` leaves it in ``held``.

    It stops consuming when it is told to. ``counts``: it tells how much it has completed. ``ran``: how often it
    was told to run each task, a redelivery included. ``obeys``: it stops what it is told to. ``may_go``, ``stopped``: the
    dispatches that won their race, and those it was told to stop, as often as it was told.
    """

    broker: MemoryBroker
    manifest: Manifest
    script: Script = lambda _: None
    instance_id: str = "1"
    alive: bool = True
    held: list[Work] = field(default_factory=list)
    ran: Counter[str] = field(default_factory=Counter)
    completed: int = 0
    counts: bool = True
    told: list[str] = field(default_factory=list)
    may_go: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    obeys: bool = False

    def __post_init__(self) -> None:
        names = self.broker.names
        self.bus = MemoryBus(self.broker, slow_start=False)
        self.bus.subscribe("work", names.agent(self.id), self.manifest.max_concurrency)
        self.bus.subscribe_mailbox("instance", [(names.events, key) for key in instance_keys(self.id)])
        self._beaten = float("-inf")

    @property
    def id(self) -> str:
        return self.manifest.id

    async def start(self) -> None:
        self.bus.connect()
        self.alive = True
        await self.introduce()

    def die(self) -> None:
        """Killed: its connection goes with it."""
        self.alive = False
        self.held.clear()
        self.bus.disconnect()

    async def stop(self) -> None:
        """Say goodbye and go."""
        await self.beat(stopping=True)
        self.die()

    async def introduce(self) -> None:
        await self.beat()
        await self._say(manifest_key(self.id), self.manifest.declaration.encode())

    async def beat(self, *, stopping: bool = False) -> None:
        self._beaten = self.broker.clock.monotonic()
        running = tuple(work.dispatch.dispatch_id for work in self.held)
        beat = Heartbeat(
            agent_id=self.id,
            instance_id=self.instance_id,
            mailbox=self.bus.mailbox,
            capacity=self.manifest.max_concurrency,
            running=running,
            manifest_hash=self.manifest.hash,
            version=self.manifest.version,
            stopping=stopping,
            completed=self.completed if self.counts else None,
        )
        await self._say(presence_key(self.id), beat_body(beat))

    async def step(self) -> None:
        """Answer what came by mail, beat if it is time, take work, end what the script ends."""
        if not self.alive:
            return
        mail = self.bus.inbox.take("instance")
        await self.bus.ack(mail)
        for delivery in mail:
            if delivery.routing_key == go_key(self.id):
                self.may_go.append(delivery.body.decode())
            if delivery.routing_key == cancel_key(self.id):
                await self._stop(delivery.body.decode())
            if delivery.body in (PAUSE, RESUME):
                self.told.append(delivery.body.decode())
                await self.bus.want("work", wanted=delivery.body == RESUME)
        if any(delivery.routing_key == WHO for delivery in mail):
            await self.introduce()
        elif mail or self.broker.clock.monotonic() - self._beaten >= BEAT_S:
            await self.beat()
        for delivery in self.bus.inbox.take("work"):
            await self._take(delivery)

    async def take_at_once(self, prefetch: int) -> None:
        """Have another number of dispatches at once. None stops taking."""
        await self.bus.want("work", wanted=False)
        await self.bus.set_prefetch("work", prefetch)
        await self.bus.want("work", wanted=prefetch > 0)

    async def _take(self, delivery: Delivery) -> None:
        dispatch = dispatch_from(delivery.headers)
        assert isinstance(dispatch, Dispatch), dispatch
        work = Work(dispatch, delivery)
        self.ran[work.task_id] += 1
        self.held.append(work)
        reply = self.script(work)
        if reply is not None:
            await self.end(work, reply)

    async def end(
        self, work: Work, reply: Reply | None = None, *, headers: Mapping[str, Any] | None = None
    ) -> None:
        """Send an outcome, then acknowledge the dispatch. ``headers``: what it says that the dispatch was."""
        told = work if headers is None else replace(work, delivery=replace(work.delivery, headers=headers))
        await self.send_outcome(told, reply or Reply())
        self.held.remove(work)
        self.completed += 1
        await self.bus.ack([work.delivery])

    async def send_outcome(self, work: Work, reply: Reply, *, queue: str | None = None) -> None:
        """Send an outcome, and keep the dispatch."""
        outcome = Outcome(
            dispatch_id=work.dispatch.dispatch_id,
            task_id=work.task_id,
            agent_id=self.id,
            instance_id=self.instance_id,
            outcome=reply.kind,
            message=reply.message,
            retry_after_ms=reply.retry_after_ms,
            duration_ms=reply.duration_ms if reply.started else None,
            started=reply.started,
            crashed=reply.crashed,
            cost=reply.cost,
            chunks=reply.chunks,
        )
        body = reply.result if reply.kind is OutcomeClass.SUCCEEDED else work.delivery.body
        headers = outcome_headers(work.delivery.headers, outcome)
        if reply.handoff is not None:
            body = outcome_body(headers, said(reply.handoff), body)
        await self.bus.publish([Message(queue or self._owners_queue(work), body, headers)])

    async def speak(self, work: Work, *, to: str | None = None) -> None:
        """Say that the handler has its first chunk, to the router that leads the race."""
        headers = {**work.dispatch.headers(), OUTCOME: SPOKE_NOTE}
        leader = self.broker.names.outcomes(work.dispatch.envelope.group_owner)
        await self.bus.publish([Message(to or leader, b"", headers)])

    async def _stop(self, dispatch_id: str) -> None:
        """It is told to stop a dispatch; it does so at once if it ``obeys``."""
        self.stopped.append(dispatch_id)
        for work in [each for each in self.held if each.dispatch.dispatch_id == dispatch_id and self.obeys]:
            await self.end(work, Reply(OutcomeClass.CANCELLED, "taken back while it ran"))

    async def say_started(self, work: Work) -> None:
        """Say that the handler is about to begin."""
        headers = {**work.dispatch.headers(), OUTCOME: STARTED_NOTE}
        await self.bus.publish([Message(self._owners_queue(work), b"", headers)])

    def _owners_queue(self, work: Work) -> str:
        return self.broker.names.outcomes(work.dispatch.owner)

    async def _say(self, key: str, body: bytes) -> None:
        message = Message(key, body, {}, self.broker.names.events, persistent=False, mandatory=False)
        await self.bus.publish([message])


def always(kind: OutcomeClass, message: str = "", **fields: Any) -> Script:
    """A script that ends every dispatch in the same way."""
    return lambda _: Reply(kind, message, **fields)


def hand_on(**handoff: Any) -> Reply:
    """The agent has done its part."""
    return Reply(OutcomeClass.HANDOFF, handoff=Handoff(**handoff))


def succeed(_: Work) -> Reply:
    """A script that does everything."""
    return Reply()


def hold(_: Work) -> None:
    """Keep it until the test says how it ends."""
    return


def leg(agent: "ScriptedAgent") -> Work:
    """The one piece of work that the agent holds."""
    (work,) = agent.held
    return work
