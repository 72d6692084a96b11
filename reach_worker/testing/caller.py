"""A caller in a world: what he publishes, and what he is told: answers, and what is streamed before them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from reach_worker.core.cancel import CANCEL_TASK, cancel_body
from reach_worker.core.message import Delivery
from reach_worker.testing.broker import MemoryBroker
from reach_worker.testing.bus import MemoryBus

MAILBOX: Final = "caller"


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a task, and all that was said before it.

    ``content``: the answer as it travels. ``said``: the earlier messages, in order. ``chunks`` and ``progress`` are those
    of the run that began last: what an earlier attempt had streamed is only in ``said``.
    """

    content: Mapping[str, Any]
    said: tuple[Mapping[str, Any], ...] = ()

    @property
    def status(self) -> str:
        """``succeeded``, ``dead_letter``, ``cancelled`` or ``unmatched``."""
        return str(self.content["status"])

    @property
    def succeeded(self) -> bool:
        """It was done."""
        return self.status == "succeeded"

    @property
    def task_id(self) -> str:
        """The task's id."""
        return str(self.content["task_id"])

    @property
    def result(self) -> Any:
        """What the handler returned, ``None`` if it did not succeed."""
        return self.content.get("result")

    @property
    def agent(self) -> str | None:
        """Who did it."""
        return self.content.get("agent")

    @property
    def attempt(self) -> int | None:
        """At which attempt."""
        return self.content.get("attempt")

    @property
    def reason(self) -> str | None:
        """Of a dead letter."""
        return self.content.get("reason")

    @property
    def error(self) -> str:
        """What went wrong, in words."""
        return str(self.content.get("error", ""))

    @property
    def attempts(self) -> list[Mapping[str, Any]]:
        """Of a dead letter: every attempt, with its agent and outcome."""
        return list(self.content.get("attempts", ()))

    @property
    def chunks(self) -> list[Any]:
        """What the last run streamed."""
        return [one["chunk"] for one in self._last_run() if one.get("status") == "streaming"]

    @property
    def progress(self) -> list[float | None]:
        """How far the last run said that it is."""
        return [one.get("progress") for one in self._last_run() if one.get("status") == "progress"]

    def _last_run(self) -> list[Mapping[str, Any]]:
        runs = [one.get("run") for one in self.said if "run" in one]
        return [one for one in self.said if runs and one.get("run") == runs[-1]]


@dataclass(slots=True)
class Told:
    """What has come for one task."""

    said: list[Mapping[str, Any]] = field(default_factory=list)
    answers: list[Mapping[str, Any]] = field(default_factory=list)


class Caller:
    """Publishes tasks as any AMQP client would, and has a private queue for what comes back."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._bus = MemoryBus(broker, slow_start=False, name="caller")
        self._bus.subscribe_mailbox(MAILBOX, prefix="reach-answers")
        self._told: dict[str, Told] = {}

    @property
    def address(self) -> str:
        """The queue's name, for ``reply_to``."""
        return self._bus.mailbox

    async def collect(self) -> None:
        """Take what comes, for ever."""
        async with self._bus.running():
            while True:
                await self._bus.inbox.arrived.wait()
                self._bus.inbox.arrived.clear()
                deliveries = self._bus.inbox.take(MAILBOX)
                for delivery in deliveries:
                    self._file(delivery)
                await self._bus.ack(deliveries)

    def publish(
        self, task: Mapping[str, Any], task_id: str, *, user: str | None, headers: Mapping[str, Any]
    ) -> None:
        """Publish a task. What comes back has its id."""
        self._broker.send_task(
            task,
            message_id=task_id,
            correlation_id=task_id,
            reply_to=self.address,
            user_id=user,
            headers=dict(headers),
        )

    def ask_to_cancel(self, task_id: str, mark: str, *, user: str | None) -> None:
        """Ask the routers to cancel a task. What comes back has the mark."""
        asked = Delivery(
            "",
            cancel_body(task_id),
            None,
            correlation_id=mark,
            reply_to=self.address,
            user_id=user,
            routing_key=CANCEL_TASK,
        )
        self._broker.put(asked, self._broker.names.events)

    def of(self, task_id: str) -> Told:
        """What has come for a task."""
        return self._told.setdefault(task_id, Told())

    def answer(self, task_id: str) -> Answer | None:
        """The latest answer to a task."""
        told = self.of(task_id)
        return Answer(told.answers[-1], tuple(told.said)) if told.answers else None

    def _file(self, delivery: Delivery) -> None:
        content = orjson.loads(delivery.body)
        told = self.of(delivery.correlation_id or str(content.get("task_id", "")))
        underway = content.get("status") in ("started", "streaming", "progress")
        (told.said if underway else told.answers).append(content)
