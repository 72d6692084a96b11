"""Publishing many tasks at once, and collecting their answers in whatever order they come.

Whoever calls one agent after another wants :class:`reach_worker.calling.client.ReachClient`.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from reach_worker.core.json_object import object_in
from reach_worker.core.message import Message
from reach_worker.core.names import Names
from reach_worker.core.task import Refusal, task_from
from reach_worker.errors import BadInput, OutsideWorld
from reach_worker.ports import Clock, ConsumingBus, Sent

MAILBOX = "client"
"""The subscription that answers come by: a private queue outside the routers' own prefix."""

LONGEST_ID: Final = 255
"""Bytes of a task id that a client can be answered with: AMQP's limit of a correlation id."""

BINDING_PAUSES_S: Final = (0.1, 0.2, 0.4, 0.8, 1.5)
WHO_DECLARES: Final = "start a router, or run `reach topology declare`"
UNBOUND: Final = f"no queue is bound to the exchange for tasks: {WHO_DECLARES}"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back for one task. ``status``: ``succeeded``, ``dead_letter``, ``cancelled`` or ``unmatched``.

    ``final`` is false for ``unmatched``: a person may still assign it, and then a final answer follows.
    """

    task_id: str
    status: str
    final: bool
    content: Mapping[str, Any]

    @property
    def succeeded(self) -> bool:
        """It was done."""
        return self.status == "succeeded"


@dataclass(slots=True)
class Client:
    """Publishes tasks to the public exchange, confirmed, and collects answers."""

    bus: ConsumingBus
    names: Names
    clock: Clock
    max_body_bytes: int = 8 * 1024 * 1024
    user_id: str | None = None
    _answers: dict[str, Answer] = field(default_factory=dict)
    _asked_from: str = ""

    def prepare(self, task: Mapping[str, Any]) -> tuple[str, bytes]:
        """Check a task before it is sent; its id (made where it has none) and its body. Raises :class:`BadInput`."""
        data = {"task_id": self.clock.new_id(), **task}
        checked = task_from(data)
        if isinstance(checked, Refusal):
            raise BadInput(checked.error)
        try:
            body = orjson.dumps(data)
        except TypeError as error:
            raise BadInput(f"the task cannot be written as JSON: {error}") from error
        size = len(str(data["task_id"]).encode())
        if size > LONGEST_ID:
            raise BadInput(f"the task_id has {size} bytes, its answer can carry {LONGEST_ID}")
        if len(body) > self.max_body_bytes:
            raise BadInput(
                f"the task has {len(body)} bytes, the limit is {self.max_body_bytes} (intake.max_body_bytes)"
            )
        return str(data["task_id"]), body

    async def publish(self, tasks: Sequence[Mapping[str, Any]], *, answer: bool = False) -> list[str]:
        """Publish tasks, all confirmed by the broker; their ids.

        Raises :class:`BadInput` before anything is sent if one is wrong, :class:`OutsideWorld` if the broker
        does not take one.
        """
        prepared = [self.prepare(task) for task in tasks]
        if await self.bus.depth(self.names.intake) is None:
            raise OutsideWorld(f"the broker has no queue {self.names.intake!r}: {WHO_DECLARES}")
        reply_to = self.bus.mailbox if answer else None
        self._asked_from = reply_to or self._asked_from
        messages = [
            Message(
                task_id,
                body,
                {},
                self.names.tasks,
                correlation_id=task_id,
                reply_to=reply_to,
                user_id=self.user_id,
            )
            for task_id, body in prepared
        ]
        await self._send(messages)
        return [task_id for task_id, _ in prepared]

    async def _send(self, messages: Sequence[Message]) -> None:
        """Send all; again for a moment what no queue was bound for: a router that starts has declared only a part."""
        for pause_s in (*BINDING_PAUSES_S, None):
            results = await self.bus.publish(messages)
            for message, result in zip(messages, results, strict=True):
                if result is not Sent.CONFIRMED and (result is not Sent.UNROUTABLE or pause_s is None):
                    why = UNBOUND if result is Sent.UNROUTABLE else result.value
                    raise OutsideWorld(f"the broker did not take task {message.routing_key}: {why}")
            pairs = zip(messages, results, strict=True)
            messages = [message for message, result in pairs if result is Sent.UNROUTABLE]
            if not messages or pause_s is None:
                return
            await self.clock.sleep(pause_s)

    async def next_answer(self, timeout_s: float) -> Answer:
        """Whichever answer comes first, of the tasks published with ``answer=True``.

        Raises :class:`TimeoutError`, or :class:`OutsideWorld` if the connection was lost and the answers with it.
        """
        async with asyncio.timeout(timeout_s):
            while not self._answers:
                await self._collect()
                if not self._answers:
                    await self._arrival()
        return self._answers.pop(next(iter(self._answers)))

    async def _arrival(self) -> None:
        """Wait for a message. A mailbox lives as long as its session, and what was sent to it since is gone."""
        if self.bus.mailbox != self._asked_from:
            raise OutsideWorld(
                "the connection was lost while the answers were on their way; the tasks go on, "
                "`reach fetch TASK` gets their answers"
            )
        await self.bus.inbox.arrived.wait()
        self.bus.inbox.arrived.clear()

    async def _collect(self) -> None:
        deliveries = self.bus.inbox.take(MAILBOX)
        for delivery in deliveries:
            content = object_in(delivery.body)
            task_id = delivery.correlation_id or str(content.get("task_id", ""))
            self._answers[task_id] = Answer(
                task_id, str(content.get("status", "unreadable")), bool(content.get("final", True)), content
            )
        await self.bus.ack(deliveries)
