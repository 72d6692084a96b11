"""``reach ready``: may work be sent to a router, or to an agent? For whoever starts and stops processes."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import click

from reach_worker import wiring
from reach_worker.bus.rabbit import RabbitBus
from reach_worker.cli.command import ReachCommand, json_option
from reach_worker.cli.failures import OK, TROUBLE
from reach_worker.cli.invocation import Invocation, pass_invocation
from reach_worker.cli.output import print_json
from reach_worker.cli.parameters import duration
from reach_worker.cli.roll_call import known_manifests
from reach_worker.client import MAILBOX
from reach_worker.core.announcement import (
    WHO,
    RouterBeat,
    beat_from,
    presence_key,
    router_from,
    router_key,
)
from reach_worker.core.foreign import is_foreign
from reach_worker.core.message import Message
from reach_worker.core.names import Names
from reach_worker.core.presence import Heartbeat
from reach_worker.errors import BadInput
from reach_worker.settings import Settings

AGAIN_S: Final = 1.0
BLOCKED: Final = "the broker takes no messages now: a memory or disk alarm"


@dataclass(frozen=True, slots=True)
class Asked:
    """Who is asked: the routing key of its answers, and the queue that it must consume.

    ``several``: another one may answer too, and better. ``agent_id``: it is an agent, on any host.
    """

    who: str
    key: str
    queue: str
    read: Callable[[bytes], str | None]
    several: bool
    agent_id: str | None = None


@click.command(
    cls=ReachCommand,
    examples=[
        "reach ready",
        "reach ready --router router-2",
        "reach ready --agent log-analyzer --here",
        "reach ready --within 2s --json",
    ],
)
@click.option(
    "--router", "router_id", metavar="ID", help="Ask this router; without it the settings' router.id."
)
@click.option("--agent", "agent_id", metavar="ID", help="Ask an agent: one instance that consumes is enough.")
@click.option("--here", is_flag=True, help="With --agent: only instances on this host count.")
@click.option(
    "--within", "seconds", type=duration, default="5s", show_default=True, help="Longest wait for an answer."
)
@json_option
@pass_invocation
def ready(
    invocation: Invocation,
    router_id: str | None,
    agent_id: str | None,
    seconds: float,
    *,
    here: bool,
    as_json: bool,
) -> int:
    """Tell whether a router or an agent takes work now.

    It is asked over the broker and must answer itself that it consumes, and the broker must know its consumer: a
    process that lives while its consumers are gone is not ready. One that cannot reach the broker, that hangs, that
    stops, or a router that does not know yet who is there, is not ready either. An agent with `presence: consumers`
    says nothing: it is ready while its queue has a consumer.

    Made for readiness probes. Exit status 0: ready, 1: not, with the reason.
    """
    if (router_id and agent_id) or (here and not agent_id):
        raise BadInput("--router or --agent, not both; --here goes with --agent")
    settings = invocation.settings
    names = Names(settings.broker.prefix)
    if agent_id:
        host = socket.gethostname() if here else ""
        who = f"agent {agent_id}" + (f" on {host}" if host else "")
        queue = names.agent(agent_id)
        asked = Asked(
            who,
            presence_key(agent_id),
            queue,
            lambda body: _of_instance(body, host),
            several=True,
            agent_id=None if here else agent_id,
        )
    else:
        router_id = router_id or settings.router.id
        queue = names.outcomes(router_id)
        asked = Asked(f"router {router_id}", router_key(router_id), queue, _of_router, several=False)
    return wiring.run(lambda: _ready(settings, names, asked, seconds, as_json=as_json))


async def _ready(settings: Settings, names: Names, asked: Asked, seconds: float, *, as_json: bool) -> int:
    why = await _unready(settings, names, asked, seconds)
    if as_json:
        print_json({"who": asked.who, "ready": not why, "why": why})
    else:
        click.echo(f"{asked.who} is {f'not ready: {why}' if why else 'ready'}")
    return TROUBLE if why else OK


async def _unready(settings: Settings, names: Names, asked: Asked, seconds: float) -> str:
    """Why it is not ready; empty if it is."""
    async with wiring.listening_bus(settings, [asked.key]) as bus:
        if not await _ask(bus, names, seconds):
            return BLOCKED
        why = "" if await _says_nothing(settings, asked) else await _answer(bus, asked, seconds)
        if why is None:  # a broker that blocks publishers says so after their first message
            asked_again = await _ask(bus, names, AGAIN_S)
            return f"no answer within {seconds:g} s" if asked_again else BLOCKED
        depth = await bus.depth(asked.queue)
        if not why and (depth is None or depth[1] == 0):
            return f"the broker knows no consumer of {asked.queue}"
        return why


async def _says_nothing(settings: Settings, asked: Asked) -> bool:
    """It is an agent of foreign workers: that somebody consumes its queue is all that can be known."""
    if asked.agent_id is None:
        return False
    manifest = (await known_manifests(settings)).get(asked.agent_id)
    return manifest is not None and is_foreign(manifest)


async def _ask(bus: RabbitBus, names: Names, seconds: float) -> bool:
    """Ask who is there; ``False``: the broker blocks publishers, so nobody could answer either."""
    question = Message(WHO, b"", {}, names.events, persistent=False, mandatory=False)
    try:
        async with asyncio.timeout(seconds):
            await bus.publish([question])
    except TimeoutError:
        return False
    return True


async def _answer(bus: RabbitBus, asked: Asked, seconds: float) -> str | None:
    """What it says. Of several the first that is ready, else the last that is not; ``None``: nobody answered."""
    last: str | None = None
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while True:
                await bus.inbox.arrived.wait()
                bus.inbox.arrived.clear()
                deliveries = bus.inbox.take(MAILBOX)
                await bus.ack(deliveries)
                for delivery in deliveries:
                    why = asked.read(delivery.body)
                    if why == "" or (why and not asked.several):
                        return why
                    last = why or last
    return last


def _of_router(body: bytes) -> str | None:
    beat = router_from(body)
    if not isinstance(beat, RouterBeat):
        return None
    return "it stops" if beat.stopping else beat.unready


def _of_instance(body: bytes, host: str) -> str | None:
    beat = beat_from(body)
    if not isinstance(beat, Heartbeat) or (host and not beat.instance_id.startswith(f"{host}-")):
        return None
    if beat.stopping:
        return f"instance {beat.instance_id} stops"
    return "" if beat.consuming else f"instance {beat.instance_id} does not consume"
