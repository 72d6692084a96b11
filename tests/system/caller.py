"""A caller that knows nothing of this package: plain AMQP, one exchange, one queue for answers."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

import aiormq
from aiormq.abc import AbstractChannel, DeliveredMessage
from aiormq.exceptions import AMQPError
from pamqp.commands import Basic
from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from tests.system.processes import LIMIT_S
from tests.tooling.observing import wait_until

T = TypeVar("T")
Answer = Mapping[str, Any]


class Caller:
    """Publishes, confirmed, and collects answers by their correlation id.

    Each call has a connection of its own, and is made again while the broker is away; its queue outlives that.
    """

    def __init__(self, url: str, exchange: str) -> None:
        self._url = url
        self._exchange = exchange
        self.mailbox = f"caller-{os.urandom(6).hex()}"
        self.answers: dict[str, list[Answer]] = {}

    def __enter__(self) -> Self:
        self._do(lambda channel: channel.queue_declare(self.mailbox, durable=True))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._do(lambda channel: channel.queue_delete(self.mailbox))

    def publish(self, tasks: Mapping[str, Mapping[str, Any]], **properties: Any) -> None:
        """Publish these tasks; their keys are task id, and correlation id of the answer."""
        self.send(
            *((json.dumps({"task_id": task_id, **task}).encode(), {"correlation_id": task_id, **properties})
              for task_id, task in tasks.items())
        )  # fmt: skip

    def send(
        self,
        *messages: tuple[bytes, Mapping[str, Any]],
        exchange: str | None = None,
        key: str = "any.key",
        mandatory: bool = True,
    ) -> None:
        """Publish bodies with properties. The answer is to come to our queue unless they say otherwise."""

        async def publish(channel: AbstractChannel) -> None:
            sending = (
                channel.basic_publish(
                    body,
                    exchange=self._exchange if exchange is None else exchange,
                    routing_key=key,
                    properties=Basic.Properties(
                        **{"reply_to": self.mailbox, "delivery_mode": 2, **properties}
                    ),
                    mandatory=mandatory,
                )
                for body, properties in messages
            )
            await asyncio.gather(*sending)

        self._do(publish)

    def collect(self) -> None:
        """Take what has been answered by now."""
        for message in self.take(self.mailbox):
            properties = message.header.properties
            assert not [name for name in properties.headers or {} if name.startswith("x-reach-")]
            self.answers.setdefault(properties.correlation_id or "", []).append(json.loads(message.body))

    def ready(self, queue: str) -> int:
        """How many messages wait in a queue."""
        return self._do(lambda channel: channel.queue_declare(queue, passive=True)).message_count or 0

    def take(self, queue: str) -> Sequence[DeliveredMessage]:
        """Take all that waits in a queue for good."""

        async def get(channel: AbstractChannel) -> Sequence[DeliveredMessage]:
            found = []
            while (message := await channel.basic_get(queue, no_ack=True)).delivery_tag is not None:
                found.append(message)
            return found

        return self._do(get)

    def take_until(self, queue: str, count: int) -> Sequence[DeliveredMessage]:
        """Take what comes into a queue until it is so many."""
        found: list[DeliveredMessage] = []

        def enough() -> bool:
            found.extend(self.take(queue))
            return len(found) >= count

        wait_until(enough, LIMIT_S)
        return found

    def until_empty(self, queue: str) -> None:
        """Wait until nothing waits in a queue."""
        wait_until(lambda: self.ready(queue) == 0, LIMIT_S)

    def until(self, met: Callable[[], bool], limit: float = LIMIT_S) -> None:
        """Collect until that is so."""

        def so_now() -> bool:
            self.collect()
            return met()

        wait_until(so_now, limit)

    def until_answered(self, task_ids: Iterable[str], limit: float = LIMIT_S) -> None:
        """Collect until each of these has a final answer."""
        wanted = set(task_ids)
        with _shown(lambda: f"no final answer for {sorted(wanted - self.finished())}"):
            self.until(lambda: wanted <= self.finished(), limit)

    def finished(self) -> set[str]:
        """Who has a final answer."""
        return {
            task_id for task_id, answers in self.answers.items() if any(each["final"] for each in answers)
        }

    def final(self, task_id: str) -> Answer:
        """The final answer of a task. A router that dies between sending and writing down says the same again.

        Where nobody knew how it had gone, a success that turns up late is told, too; then that is the answer.
        """
        first, *more = [answer for answer in self.answers.get(task_id, []) if answer["final"]]
        same = [answer for answer in more if answer != first]
        if first.get("reason") == "outcome_unknown" and same:
            assert {answer["status"] for answer in same} == {"succeeded"}
            return same[-1]
        assert not same
        return first

    def _do(self, action: Callable[[AbstractChannel], Awaitable[T]]) -> T:
        async def once() -> T:
            async with asyncio.timeout(LIMIT_S), aiormq.connect(self._url) as connection:
                return await action(await connection.channel())

        for attempt in Retrying(
            stop=stop_after_delay(LIMIT_S),
            wait=wait_fixed(0.1),
            retry=retry_if_exception_type((AMQPError, OSError)),
            reraise=True,
        ):
            with attempt:
                return asyncio.run(once())
        raise AssertionError("tenacity gives up only by raising")


@contextmanager
def _shown(what: Callable[[], str]) -> Iterator[None]:
    try:
        yield
    except RetryError as error:
        raise AssertionError(what()) from error
