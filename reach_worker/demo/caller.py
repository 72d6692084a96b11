"""The one who wants work done: publishes plain messages as any AMQP client would, and hears what comes back."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

from reach_worker import wiring
from reach_worker.bus import topology
from reach_worker.bus.rabbit import RabbitBus
from reach_worker.core.announcement import Unreadable, beat_from
from reach_worker.core.json_object import object_in
from reach_worker.core.message import Delivery, Message
from reach_worker.core.presence import Heartbeat
from reach_worker.demo.stage import Stage
from reach_worker.demo.tasks import DemoTask
from reach_worker.errors import BrokerUnavailable, OutsideWorld
from reach_worker.ports import Clock, Sent

EARS: Final = "caller"


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer. ``name``: of the task, by the correlation id that it was published with."""

    name: str
    status: str
    error: str


@dataclass(frozen=True, slots=True)
class RouterUp:
    """The router said that it lives."""


Heard = Reply | Heartbeat | RouterUp


class Caller:
    """Publishes tasks; answers, and what agents and the router say of themselves, come to one private queue."""

    def __init__(self, bus: RabbitBus, stage: Stage) -> None:
        self._bus = bus
        self._names = stage.names
        self._mailbox = bus.mailbox

    async def publish(self, tasks: Sequence[DemoTask]) -> None:
        """Send tasks to the public exchange, confirmed. Raises ``OutsideWorld`` if the broker does not take one."""
        self._still_connected()
        messages = [
            Message(
                routing_key="demo",
                body=task.body,
                exchange=self._names.tasks,
                message_id=task.name,
                correlation_id=task.name,
                reply_to=self._mailbox,
            )
            for task in tasks
        ]
        for task, sent in zip(tasks, await self._bus.publish(messages), strict=True):
            if sent is not Sent.CONFIRMED:
                raise OutsideWorld(f"the broker did not take {task.name}: {sent.value}")

    async def hear(self) -> list[Heard]:
        """What has come since the last call. Raises ``BrokerUnavailable`` if nothing can come any more."""
        self._still_connected()
        deliveries = self._bus.inbox.take(EARS)
        await self._bus.ack(deliveries)
        heard = (self._read(delivery) for delivery in deliveries)
        return [one for one in heard if one is not None]

    def _still_connected(self) -> None:
        if self._bus.mailbox != self._mailbox:
            raise BrokerUnavailable(
                "the broker went away, and with it the private queue that answers come to"
            )

    def _read(self, delivery: Delivery) -> Heard | None:
        kind = delivery.routing_key.partition(".")[0]
        if kind == "router":
            return RouterUp()
        if kind == "presence":
            beat = beat_from(delivery.body)
            return None if isinstance(beat, Unreadable) else beat
        content = object_in(delivery.body)
        name = delivery.correlation_id or str(content.get("task_id", "?"))
        return Reply(name, str(content.get("status", "unreadable")), str(content.get("error", "")))


@asynccontextmanager
async def connected(stage: Stage, clock: Clock) -> AsyncIterator[Caller]:
    """A caller. It declares the public part of the topology, so it need not wait for the router to publish.

    Raises ``BrokerUnavailable`` or ``WrongCredentials`` at once.
    """
    names = stage.names
    settings = replace(wiring.bus_settings(stage.settings, "demo"), waits=False)
    bus = RabbitBus(settings, clock, topology.base(names))
    bindings = [(names.events, "presence.#"), (names.events, "router.#")]
    bus.subscribe_mailbox(EARS, bindings, prefix="reach-demo-answers")
    async with bus.running():
        yield Caller(bus, stage)
