"""A worker that knows nothing of us: it consumes an agent's queue and replies, as any AMQP client can."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reach_worker.core.manifest import Manifest
from reach_worker.core.message import Delivery, Message
from reach_worker.testing import MemoryBroker, MemoryBus
from tests.services.scripted import manifest


def declared(agent_id: str = "old", *capabilities: str, **fields: Any) -> Manifest:
    """The manifest that somebody wrote for it."""
    return manifest(agent_id, *capabilities, presence="consumers", **fields)


@dataclass(repr=False)
class ForeignWorker:
    """One process. ``replies``: it answers at once, with what its header then says; else it keeps what it gets."""

    broker: MemoryBroker
    agent_id: str = "old"
    prefetch: int = 1
    held: list[Delivery] = field(default_factory=list)
    got: int = 0

    def __post_init__(self) -> None:
        self.bus = MemoryBus(self.broker, slow_start=False)
        self.bus.subscribe("work", self.broker.names.agent(self.agent_id), self.prefetch)

    def start(self) -> None:
        self.bus.connect()

    def die(self) -> None:
        """Killed: what it did not acknowledge goes back to its queue."""
        self.held.clear()
        self.bus.disconnect()

    def take(self) -> list[Delivery]:
        """Take what has come."""
        came = self.bus.inbox.take("work")
        self.got += len(came)
        self.held += came
        return came

    async def reply(self, task: Delivery, body: bytes, headers: Mapping[str, Any] | None = None) -> None:
        """Publish to ``reply_to`` with the ``correlation_id``, then acknowledge."""
        await self.send(task, body, headers)
        await self.forget(task)

    async def send(self, task: Delivery, body: bytes, headers: Mapping[str, Any] | None = None) -> None:
        """Publish to ``reply_to`` with the ``correlation_id``."""
        assert task.reply_to is not None
        reply = Message(
            task.reply_to, body, headers or {}, correlation_id=task.correlation_id, mandatory=False
        )
        await self.bus.publish([reply])

    async def forget(self, task: Delivery) -> None:
        """Acknowledge, and say nothing."""
        self.held.remove(task)
        await self.bus.ack([task])
