"""A foreign worker as an agent, on a real broker: it only consumes a queue and replies."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiormq.abc import DeliveredMessage

from reach_worker.adapters import queue_agent
from reach_worker.adapters.agents import AdapterAgent
from reach_worker.adapters.queue import OpenBus
from reach_worker.adapters.replies import REPLIES
from reach_worker.agent.outcomes import AgentOutcome
from reach_worker.bus.rabbit import BusSettings, RabbitBus
from reach_worker.bus.topology import Topology
from reach_worker.clock import SystemClock
from reach_worker.core.outcome import OutcomeClass
from reach_worker.ports import ConsumingBus
from reach_worker.testing.tcp_proxy import TcpProxy
from tests.adapters.attempts import MANIFEST, attempt, ending_of, result_of
from tests.adapters.foreign import ForeignWorker, foreign_worker, saying
from tests.bus.until import until
from tests.bus.wire import Wire, shared_broker

pytestmark = pytest.mark.broker
WAITING = "waiting"


@pytest.fixture
def broker_url() -> str:
    return shared_broker()


@pytest.fixture
async def wire(broker_url: str) -> AsyncIterator[Wire]:
    async with Wire.to(broker_url) as wire:
        yield wire


@pytest.fixture
async def queue(wire: Wire) -> str:
    """A queue of the foreign worker's, as somebody else would have declared it."""
    return await wire.queue(f"legacy-{os.urandom(6).hex()}")


def opening(broker_url: str, made: list[RabbitBus] | None = None) -> OpenBus:
    """Opens buses as ``reach agent`` does."""

    def open_bus(url: str | None) -> AbstractAsyncContextManager[ConsumingBus]:
        bus = RabbitBus(BusSettings((url or broker_url,), "test"), SystemClock(), Topology((), (), ()))
        bus.subscribe_mailbox(REPLIES, prefix="reach-replies")
        (made if made is not None else []).append(bus)
        return bus.running()

    return open_bus


def agent(broker_url: str, queue: str, made: list[RabbitBus] | None = None, **section: Any) -> AdapterAgent:
    environ = {"LEGACY": broker_url, "PASSWORD": "hidden-word"}
    return queue_agent(MANIFEST, opening(broker_url, made), environ=environ, queue=queue, **section)


async def test_the_payload_goes_there_and_the_reply_is_the_result(broker_url: str, queue: str) -> None:
    async with foreign_worker(broker_url, queue, saying({"sum": 3})) as worker:
        assert await result_of(agent(broker_url, queue), {"a": [1, 2]}) == {"sum": 3}
    (message,) = worker.seen
    properties = message.header.properties
    assert message.body == b'{"a":[1,2]}'
    assert properties.correlation_id == "d1"
    assert (properties.reply_to or "").startswith("reach-replies.")
    assert (properties.content_type, properties.delivery_mode) == ("application/json", 2)
    assert 0 < int(properties.expiration or 0) <= 20_000


async def test_its_own_form_of_messages(broker_url: str, wire: Wire, queue: str) -> None:
    exchange = f"x-{queue}"
    await wire.channel.exchange_declare(exchange, exchange_type="direct", auto_delete=True)
    await wire.channel.queue_bind(queue, exchange, routing_key="sums")
    section: dict[str, Any] = {
        "exchange": exchange,
        "routing_key": "sums",
        "broker": "${LEGACY}",
        "body": {"task": "sum", "args": "{a}", "id": "{@task_id}"},
        "headers": {"x-kind": "sum", "x-for": "{@caller}", "x-none": "{none?}"},
        "persistent": False,
        "result": "/result/value",
    }
    async with foreign_worker(broker_url, queue, saying({"result": {"value": 3}})) as worker:
        assert await result_of(agent(broker_url, queue, **section), {"a": [1, 2]}) == 3
    (message,) = worker.seen
    assert message.body == b'{"task":"sum","args":[1,2],"id":"t1"}'
    assert message.header.properties.headers == {"x-kind": "sum", "x-for": "somebody"}
    assert message.header.properties.delivery_mode == 1


async def test_many_at_once_each_gets_its_own_reply(broker_url: str, queue: str) -> None:
    async def backwards(worker: ForeignWorker, _: DeliveredMessage) -> None:
        if len(worker.seen) == 20:
            for message in reversed(worker.seen):
                await worker.reply(message, message.body)

    async with foreign_worker(broker_url, queue, backwards):
        one = agent(broker_url, queue)
        async with one.adapter.opened(), asyncio.TaskGroup() as group:
            runs = [
                group.create_task(one.adapter.run({"n": n}, attempt(dispatch_id=f"d{n}"))) for n in range(20)
            ]
        assert [run.result() for run in runs] == [{"n": n} for n in range(20)]


@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        ({"error": "broken"}, OutcomeClass.FAILED, "it replied: broken"),
        ({"error": {"code": 5, "message": "no such log"}}, OutcomeClass.FAILED, "no such log"),
        ({"error": "busy"}, OutcomeClass.RATE_LIMITED, "busy"),
        ({"error": "no such file"}, OutcomeClass.BAD_REQUEST, "no such file"),
        (b"oops", OutcomeClass.FAILED, "no JSON, it begins 'oops'"),
    ],
)
async def test_what_a_reply_tells_of_an_error(
    reply: Any, kind: OutcomeClass, words: str, broker_url: str, queue: str
) -> None:
    errors = {"busy": "rate_limited", "no such file": "bad_request"}
    async with foreign_worker(broker_url, queue, saying(reply)):
        found, said = await ending_of(agent(broker_url, queue, error="/error", errors=errors))
    assert found is kind
    assert words in said


@pytest.mark.parametrize(
    "reply", [{"error": None, "n": 1}, {"error": "", "n": 1}, {"error": False, "n": 1}, {"n": 1}]
)
async def test_a_reply_without_an_error(reply: Any, broker_url: str, queue: str) -> None:
    async with foreign_worker(broker_url, queue, saying(reply)):
        assert await result_of(agent(broker_url, queue, error="/error", result="/n")) == 1


async def test_an_empty_reply_is_null(broker_url: str, queue: str) -> None:
    async with foreign_worker(broker_url, queue, saying(b"")):
        assert await result_of(agent(broker_url, queue)) is None


# ---- Trouble


async def test_nobody_consumes_the_queue(broker_url: str, wire: Wire, queue: str) -> None:
    kind, words = await ending_of(agent(broker_url, queue))
    assert (kind, "nobody consumes it" in words) == (OutcomeClass.UNAVAILABLE, True)
    assert await wire.get(queue) is None


async def test_there_is_no_such_queue(broker_url: str) -> None:
    kind, words = await ending_of(agent(broker_url, "no-such-queue-here"))
    assert (kind, "no such queue" in words) == (OutcomeClass.UNAVAILABLE, True)


async def test_the_exchange_takes_it_to_no_queue(broker_url: str, queue: str) -> None:
    async with foreign_worker(broker_url, queue, saying({})):
        kind, words = await ending_of(agent(broker_url, queue, exchange="amq.direct", routing_key="nowhere"))
    assert (kind, "to no queue" in words) == (OutcomeClass.UNAVAILABLE, True)


async def silent(_: ForeignWorker, __: DeliveredMessage) -> None:
    """It takes a message and does not reply."""


async def test_no_reply_in_time_and_one_that_is_late(broker_url: str, queue: str) -> None:
    async with foreign_worker(broker_url, queue, silent) as worker:
        one = agent(broker_url, queue)
        async with one.adapter.opened():
            with pytest.raises(AgentOutcome, match=r"no reply within 1 s") as found:
                await one.adapter.run({}, attempt(1.0))
            assert found.value.kind is OutcomeClass.TIMEOUT
            late = asyncio.create_task(one.adapter.run({"n": 2}, attempt(dispatch_id="d2")))  # noqa: TID251 - awaited
            await until(lambda: len(worker.seen) == 2)
            await worker.reply(worker.seen[0], b'"late"')
            await worker.reply(worker.seen[0], b'"whose?"', mark="nobody")
            await worker.reply(worker.seen[1], b'"mine"')
            assert await late == "mine"


async def test_the_connection_breaks_and_comes_back(broker_url: str, queue: str) -> None:
    address = urlsplit(broker_url)
    async with (
        TcpProxy(address.hostname or "", address.port or 5672) as proxy,
        foreign_worker(broker_url, queue, silent) as worker,
    ):
        made: list[RabbitBus] = []
        through = address._replace(
            netloc=f"{(address.netloc.rpartition('@')[0] or 'guest:guest')}@127.0.0.1:{proxy.url_port}"
        )
        one = agent(through.geturl(), queue, made)
        async with one.adapter.opened(), asyncio.TaskGroup() as group:
            asked = group.create_task(ended(one))
            await until(lambda: len(worker.seen) == 1)
            await proxy.cut()
            kind, words = await asked
            assert (kind, "broke before the reply" in words) == (OutcomeClass.UNAVAILABLE, True)
            await until(lambda: made[0].sessions == 2 and made[0].ready)
            again = group.create_task(one.adapter.run({}, attempt(dispatch_id="d2")))
            await until(lambda: len(worker.seen) == 2)
            await worker.reply(worker.seen[1], b'"well"')
            assert await again == "well"


async def ended(one: AdapterAgent) -> tuple[OutcomeClass, str]:
    with pytest.raises(AgentOutcome, match="queue") as found:
        await one.adapter.run({}, attempt())
    return found.value.kind, str(found.value)


async def test_the_broker_is_away(broker_url: str, queue: str) -> None:
    address = urlsplit(broker_url)
    made: list[RabbitBus] = []
    async with TcpProxy(address.hostname or "", address.port or 5672) as proxy:
        through = address._replace(
            netloc=f"{(address.netloc.rpartition('@')[0] or 'guest:guest')}@127.0.0.1:{proxy.url_port}"
        )
        one = agent(through.geturl(), queue, made)
        async with one.adapter.opened():
            proxy.refuse()
            await proxy.cut()
            await until(lambda: not made[0].ready)
            kind, words = await ended(one)
    assert (kind, "cannot be asked" in words) == (OutcomeClass.UNAVAILABLE, True)


async def test_it_cannot_connect_at_the_start() -> None:
    def refusing(_url: str | None) -> AbstractAsyncContextManager[ConsumingBus]:
        raise ConnectionRefusedError("nobody there")

    one = queue_agent(MANIFEST, refusing, environ={}, queue="q")
    with pytest.raises(ConnectionRefusedError):
        await result_of(one)
