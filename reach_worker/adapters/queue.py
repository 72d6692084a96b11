"""A foreign AMQP worker as an agent: one that consumes a queue and replies, and knows nothing of us.

Each task becomes a message on its queue, with ``reply_to`` (a private queue of this process) and ``correlation_id``. A
reply queue lives as long as its connection: what was asked before a connection broke gets no answer any more, and is
ended as ``unavailable`` at once. Replies that nobody waits for are acknowledged and let go.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Literal

import orjson
from pydantic import Field

from reach_worker.adapters.endings import TimedOut, ending
from reach_worker.adapters.http_status import words_of
from reach_worker.adapters.json_answer import NOTHING, at, read_json, result_at
from reach_worker.adapters.replies import Asked, ReplyLine, connection_broke
from reach_worker.adapters.secrets import secrets_in
from reach_worker.adapters.section import FixedText, Kind, Pointer, Rest, Section, Shape, Text
from reach_worker.adapters.templates import PAYLOAD, Values, as_text, filled_body, template, values_of
from reach_worker.agent.context import Context
from reach_worker.agent.outcomes import Unavailable
from reach_worker.core.message import Message
from reach_worker.core.outcome import OutcomeClass
from reach_worker.errors import OurBug, OutsideWorld
from reach_worker.ports import Clock, ConsumingBus, Sent

OpenBus = Callable[[str | None], AbstractAsyncContextManager[ConsumingBus]]
"""Opens a bus whose mailbox is subscribed as ``REPLIES``, at a broker's URL or at our own broker."""


class QueueSection(Section):
    """``kind: queue``."""

    kind: Literal["queue"] = "queue"
    queue: str = Field(min_length=1, max_length=255, description="the queue that the worker consumes")
    exchange: str = Field(
        "", max_length=255, description="where to publish; without it straight to the queue"
    )
    routing_key: str | None = Field(
        None, max_length=255, description="with which routing key; the queue's name where it is left out"
    )
    broker: FixedText | None = Field(
        None,
        description="another broker than ours: ${LEGACY_AMQP_URL}; an address with a password never in the file",
    )
    body: Shape = Field(
        PAYLOAD,
        description="the message: `payload` for the payload as it is, or any JSON with {fields} in its texts",
    )
    headers: dict[str, Text] = Field(default_factory=dict, description="headers of the message")
    persistent: bool = Field(default=True, description="whether the message survives a restart of the broker")
    result: Pointer = Field(
        "", description="where the result is in the reply, a JSON pointer; all of it by default"
    )
    error: Pointer | None = Field(
        None,
        description="where the reply tells of an error: anything there but null, false and nothing is one",
    )
    errors: dict[str, Kind] = Field(
        default_factory=dict, description="outcome classes by what stands there; any other error is `failed`"
    )
    rest_s: Rest = Field(30.0, description="seconds of rest after an error that means `rate_limited`")


class QueueAdapter:
    """Publishes, and waits for the replies."""

    def __init__(
        self, section: QueueSection, environ: Mapping[str, str], clock: Clock, open_bus: OpenBus
    ) -> None:
        self._section = section
        self._environ = environ
        self._clock = clock
        self._open_bus = open_bus
        self._secrets = secrets_in(section.model_dump(), environ)
        self._broker = None if section.broker is None else template(section.broker).within(environ)
        self._headers = {name: template(text).within(environ) for name, text in section.headers.items()}
        self._kinds = {text: OutcomeClass(name) for text, name in section.errors.items()}
        self._line: ReplyLine | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Connect, and hear replies within the block. It may be left by another task than the one that entered."""
        leaving, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
        keeper = asyncio.ensure_future(self._keep(ready, leaving))  # noqa: TID251 - it is waited for below
        try:
            await asyncio.wait({keeper, ready}, return_when=asyncio.FIRST_COMPLETED)
            if keeper.done():
                keeper.result()
            yield
        finally:
            leaving.set()
            if not ready.done():
                keeper.cancel()
            await asyncio.wait({keeper})
            self._line = None
        keeper.result()

    async def _keep(self, ready: "asyncio.Future[None]", leaving: asyncio.Event) -> None:
        """Connected until it is to leave."""
        url = None if self._broker is None else self._broker.filled(Values({}, {}))
        async with self._open_bus(url) as bus, asyncio.TaskGroup() as group:
            self._line = line = ReplyLine(bus)
            group.create_task(line.collect(), name="replies")
            ready.set_result(None)
            await leaving.wait()
            line.close()

    def warnings(self) -> list[str]:
        """What is probably not meant."""
        return []

    async def run(self, payload: Mapping[str, Any], context: Context) -> Any:
        """One task: one message and its reply."""
        if self._line is None:
            raise OurBug("an adapter ran before it was opened")
        with self._secrets.kept(f"queue {self._section.queue}"):
            reply = await self._reply(self._line, values_of(payload, context), context)
            return self._result(reply)

    async def _reply(self, line: ReplyLine, values: Values, context: Context) -> bytes:
        body = orjson.dumps(filled_body(self._section.body, values, self._environ))
        limit = asyncio.timeout(context.seconds_left())
        name = context.dispatch_id or self._clock.new_id()
        try:
            async with limit:
                await self._somebody_there(line.bus)
                asked = Asked(line.bus.mailbox, asyncio.get_running_loop().create_future())
                line.asked[name] = asked
                await self._send(line.bus, self._message(name, asked, body, values, context))
                if line.bus.mailbox != asked.mailbox:
                    raise connection_broke()
                return await asked.reply
        except TimeoutError:
            if not limit.expired():
                raise
            raise TimedOut(f"no reply within {context.timeout_s:g} s") from None
        finally:
            line.asked.pop(name, None)

    async def _somebody_there(self, bus: ConsumingBus) -> None:
        try:
            found = await bus.depth(self._section.queue)
        except OutsideWorld as error:
            raise Unavailable(f"the broker cannot be asked: {error}") from None
        if found is None:
            raise Unavailable("there is no such queue on the broker; is its worker running?")
        if found[1] == 0:
            raise Unavailable("nobody consumes it; is its worker running?")

    def _message(self, name: str, asked: Asked, body: bytes, values: Values, context: Context) -> Message:
        headers = {key: text.filled(values) for key, text in self._headers.items()}
        key = self._section.routing_key
        return Message(
            self._section.queue if key is None else key,
            body,
            {key: text for key, text in headers.items() if text is not None},
            self._section.exchange,
            correlation_id=name,
            reply_to=asked.mailbox,
            expiration_ms=max(1, int(context.seconds_left() * 1000)),
            persistent=self._section.persistent,
        )

    async def _send(self, bus: ConsumingBus, message: Message) -> None:
        sent: Sequence[Sent] = await bus.publish([message]) if message.reply_to else [Sent.REFUSED]
        match sent[0]:
            case Sent.CONFIRMED:
                return
            case Sent.UNROUTABLE:
                where = f"exchange {message.exchange!r} with the key {message.routing_key!r}"
                raise Unavailable(f"the broker took it to no queue: {where}")
            case Sent.REFUSED | Sent.UNCERTAIN:
                raise Unavailable(f"the broker did not take the message: {sent[0].value}")

    def _result(self, reply: bytes) -> Any:
        document = read_json(reply, "the reply") if reply.strip() else None
        wrong = NOTHING if self._section.error is None else at(document, self._section.error)
        if wrong is not NOTHING and wrong not in (None, False, "", [], {}):
            kind = self._kinds.get(as_text(wrong), OutcomeClass.FAILED)
            raise ending(
                kind, f"it replied: {words_of(as_text(wrong).encode())}", rest_s=self._section.rest_s
            )
        return result_at(document, self._section.result, "the reply")
