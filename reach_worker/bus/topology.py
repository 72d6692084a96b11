"""The queues and exchanges, as data, and the one walker that declares them.

Constant arguments never hold a number that somebody may want to tune, so that a changed setting can never
meet ``PRECONDITION_FAILED``. The version in the prefix is raised when a constant argument changes.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from aiormq import exceptions as amqp
from aiormq.abc import AbstractChannel, AbstractConnection

from reach_worker.core.backoff import RUNGS_MS
from reach_worker.core.names import Names
from reach_worker.errors import BadInput, OutsideWorld, TopologyMismatch

NAME_LIMIT: Final = 255
"""Bytes that AMQP allows for a name."""
UNLIMITED: Final = 1_000_000_000
"""A delivery limit that looking at a queue never reaches. (4.x has a default of 20; −1 means "at once" on 3.10.)"""


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue and every argument of it."""

    name: str
    arguments: Mapping[str, Any]
    durable: bool = True
    exclusive: bool = False


@dataclass(frozen=True, slots=True)
class Exchange:
    """An exchange and every argument of it."""

    name: str
    kind: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Binding:
    """What of an exchange reaches a queue."""

    exchange: str
    queue: str
    routing_key: str


@dataclass(frozen=True, slots=True)
class Topology:
    """Exchanges, queues and bindings, in the order in which they can be declared."""

    exchanges: tuple[Exchange, ...]
    queues: tuple[Queue, ...]
    bindings: tuple[Binding, ...]


def quorum(limit: int, dead_letters_to: str | None) -> Mapping[str, Any]:
    """Arguments of a durable quorum queue that refuses publishers when it is full, and loses nothing it gives up."""
    arguments: dict[str, Any] = {
        "x-queue-type": "quorum",
        "x-delivery-limit": limit,
        "x-overflow": "reject-publish",
    }
    if dead_letters_to is not None:
        arguments |= {
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": dead_letters_to,
            "x-dead-letter-strategy": "at-least-once",
        }
    return MappingProxyType(arguments)


def intake(names: Names) -> Queue:
    """The limit contains what kills its consumer; the same on 3.10 and 4.x."""
    return Queue(names.intake, quorum(20, names.dlq))


def returns(names: Names) -> Queue:
    """As intake, but internal: ``x-reach-*`` headers are believed here."""
    return Queue(names.returns, quorum(20, names.dlq))


def lane(names: Names, capability: str) -> Queue:
    """Waiting for a slot. A task whose deadline passes here goes back to the routers, who bury and answer it."""
    return Queue(names.lane(capability), quorum(UNLIMITED, names.returns))


def agent_queue(names: Names, agent_id: str) -> Queue:
    """What is not picked up in time, or kills its consumer again and again, comes back to the routers."""
    return Queue(names.agent(agent_id), quorum(20, names.returns))


def retry(names: Names, rung_ms: int) -> Queue:
    """One fixed delay per queue: nothing ever waits behind a longer delay."""
    return Queue(
        names.retry(rung_ms), MappingProxyType({**quorum(UNLIMITED, names.returns), "x-message-ttl": rung_ms})
    )


def outcomes(names: Names, router_id: str) -> Queue:
    """One active consumer: its router, or whoever stands by when it is gone."""
    arguments = {**quorum(1000, names.dlq), "x-single-active-consumer": True}
    return Queue(names.outcomes(router_id), MappingProxyType(arguments))


def resting(name: str) -> Queue:
    """A queue for people: no limit that looking could reach, no way out but theirs."""
    return Queue(name, quorum(UNLIMITED, None))


def private(name: str) -> Queue:
    """A mailbox that lives as long as its connection."""
    arguments = {"x-queue-type": "classic", "x-max-length": 10_000, "x-overflow": "drop-head"}
    return Queue(name, MappingProxyType(arguments), durable=False, exclusive=True)


def by_name(names: Names, name: str) -> Queue:
    """The queue of ours that has this name. Raises ``ValueError`` for a name that is none of ours."""
    kind, _, rest = name.removeprefix(f"{names.prefix}.").partition(".")
    match kind:
        case "lane" if rest:
            return replace(lane(names, rest), name=name)
        case "agent" if rest:
            return replace(agent_queue(names, rest), name=name)
        case "outcomes" if rest:
            return replace(outcomes(names, rest), name=name)
        case _:
            raise ValueError(f"{name!r} is no queue that is declared on demand")


def base(names: Names) -> Topology:
    """Everything that does not depend on agents or routers."""
    return Topology(
        exchanges=(
            Exchange(names.lost, "fanout"),
            Exchange(names.tasks, "topic", MappingProxyType({"alternate-exchange": names.lost})),
            Exchange(names.events, "topic"),
        ),
        queues=(
            resting(names.dlq),
            resting(names.unmatched),
            returns(names),
            intake(names),
            *(retry(names, rung) for rung in RUNGS_MS),
        ),
        bindings=(Binding(names.lost, names.dlq, ""), Binding(names.tasks, names.intake, "#")),
    )


def complete(
    names: Names, *, router_ids: Iterable[str], agent_ids: Iterable[str], capabilities: Iterable[str]
) -> Topology:
    """The base, and the queues of these routers, agents and capabilities."""
    foundation = base(names)
    queues = (
        *foundation.queues,
        *(outcomes(names, router_id) for router_id in router_ids),
        *(agent_queue(names, agent_id) for agent_id in agent_ids),
        *(lane(names, capability) for capability in capabilities),
    )
    for queue in queues:
        if len(queue.name.encode()) > NAME_LIMIT:
            raise BadInput(f"queue name {queue.name[:60]!r}… is longer than the 255 bytes that AMQP allows")
    return Topology(foundation.exchanges, queues, foundation.bindings)


def definitions(topology: Topology, vhost: str = "/") -> dict[str, Any]:
    """The topology in the broker's own format, as ``rabbitmqctl import_definitions`` reads it."""
    return {
        "exchanges": [
            {
                "name": e.name, "vhost": vhost, "type": e.kind, "durable": True, "auto_delete": False,
                "internal": False, "arguments": dict(e.arguments),
            }
            for e in topology.exchanges
        ],
        "queues": [
            {"name": q.name, "vhost": vhost, "durable": q.durable, "auto_delete": False, "arguments":
            dict(q.arguments)} for q in topology.queues
        ],
        "bindings": [
            {
                "source": b.exchange, "vhost": vhost, "destination": b.queue, "destination_type": "queue",
                "routing_key": b.routing_key, "arguments": {},
            }
            for b in topology.bindings
        ],
    }  # fmt: skip


async def declare(connection: AbstractConnection, topology: Topology, call_timeout_s: float) -> None:
    """Declare everything on a channel of its own. Raises :class:`TopologyMismatch` where the broker has it otherwise."""
    channel = await connection.channel(publisher_confirms=False, timeout=call_timeout_s)
    try:
        for exchange in topology.exchanges:
            with _told(exchange.name):
                await channel.exchange_declare(
                    exchange.name,
                    exchange_type=exchange.kind,
                    durable=True,
                    arguments=dict(exchange.arguments),
                    timeout=call_timeout_s,
                )
        for queue in topology.queues:
            await declare_queue(channel, queue, call_timeout_s)
        for binding in topology.bindings:
            with _told(binding.queue):
                await channel.queue_bind(
                    binding.queue, binding.exchange, routing_key=binding.routing_key, timeout=call_timeout_s
                )
    finally:
        if not channel.is_closed:
            await channel.close()


async def declare_queue(channel: AbstractChannel, queue: Queue, call_timeout_s: float) -> None:
    """Declare one queue. An error closes the channel, as the broker does it."""
    with _told(queue.name):
        await channel.queue_declare(
            queue.name,
            durable=queue.durable,
            exclusive=queue.exclusive,
            arguments=dict(queue.arguments),
            timeout=call_timeout_s,
        )


@contextmanager
def _told(name: str) -> Iterator[None]:
    """Turn the broker's refusal of a declaration into an error that names queue and argument."""
    try:
        yield
    except (amqp.ChannelPreconditionFailed, amqp.ChannelLockedResource) as error:
        raise mismatch(name, str(error)) from error
    except amqp.ChannelAccessRefused as error:
        raise OutsideWorld(f"the broker user may not declare {name!r}: {error}") from error


_INEQUIVALENT = re.compile(
    r"inequivalent arg '(?P<argument>[^']+)'.*?received (?P<expected>.+?) but current is (?P<found>.+)$",
    re.DOTALL,
)


def mismatch(name: str, detail: str) -> TopologyMismatch:
    """What the broker's refusal says, as an error that names queue, argument and both values."""
    found = _INEQUIVALENT.search(detail)
    if found is None:
        return TopologyMismatch(name, "declaration", detail=detail)
    return TopologyMismatch(
        name, found["argument"], expected=found["expected"].strip(), found=found["found"].strip(), detail=""
    )
