"""Who is there: what agents and routers answer when they are asked, and what is known of those who do not."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import orjson

from reach_worker import wiring
from reach_worker.bus.rabbit import RabbitBus
from reach_worker.client import MAILBOX
from reach_worker.core.announcement import WHO, RouterBeat, beat_from, router_from
from reach_worker.core.document import Document
from reach_worker.core.manifest import Manifest, manifest_from
from reach_worker.core.message import Delivery, Message
from reach_worker.core.names import Names
from reach_worker.core.presence import Heartbeat
from reach_worker.core.tags import TagTable
from reach_worker.core.yaml_text import parse
from reach_worker.errors import BadInput, OutsideWorld
from reach_worker.ports import BreakerMoved
from reach_worker.settings import Settings, load_fleet
from reach_worker.store import StoreReader
from reach_worker.store.records import AgentSuccess

KEYS: Final = ("presence.#", "manifest.#", "router.#")


@dataclass(slots=True)
class Heard:
    """What was heard while we listened. ``consumed``: agents whose queue has a consumer, whoever that is."""

    beats: dict[tuple[str, str], Heartbeat] = field(default_factory=dict)
    manifests: dict[str, Manifest] = field(default_factory=dict)
    routers: dict[str, RouterBeat] = field(default_factory=dict)
    depths: dict[str, int | None] = field(default_factory=dict)
    consumed: set[str] = field(default_factory=set)
    intake_consumers: int = 0

    @property
    def somebody_routes(self) -> bool:
        """A router is there: it was heard, or it consumes."""
        return self.intake_consumers > 0 or any(not router.stopping for router in self.routers.values())

    def take(self, delivery: Delivery) -> None:
        """One announcement; what cannot be read says nothing here, the routers log it."""
        match delivery.routing_key.partition(".")[0]:
            case "presence":
                beat = beat_from(delivery.body)
                if isinstance(beat, Heartbeat):
                    self.beats[beat.agent_id, beat.instance_id] = beat
            case "manifest":
                manifest = _manifest(delivery.body)
                if manifest is not None:
                    self.manifests[manifest.id] = manifest
            case "router":
                router = router_from(delivery.body)
                if isinstance(router, RouterBeat):
                    self.routers[router.router_id] = router

    def instances(self, agent_id: str) -> list[Heartbeat]:
        """The last heartbeat of each instance of an agent."""
        return [beat for (agent, _), beat in sorted(self.beats.items()) if agent == agent_id]


def _manifest(body: bytes) -> Manifest | None:
    try:
        return manifest_from(Document(orjson.loads(body)), tags=TagTable({}))
    except (BadInput, ValueError):
        return None


async def listen(settings: Settings, known: set[str], seconds: float) -> Heard:
    """Ask who is there and listen so long; then look into the queue of everybody who is known or was heard."""
    heard = Heard()
    names = Names(settings.broker.prefix)
    async with wiring.listening_bus(settings, KEYS) as bus:
        await bus.publish([Message(WHO, b"", {}, names.events, persistent=False, mandatory=False)])
        await _hear(bus, heard, seconds)
        for agent_id in sorted(known | {agent for agent, _ in heard.beats} | set(heard.manifests)):
            depth = await bus.depth(names.agent(agent_id))
            heard.depths[agent_id] = None if depth is None else depth[0]
            if depth is not None and depth[1]:
                heard.consumed.add(agent_id)
        intake = await bus.depth(names.intake)
        heard.intake_consumers = 0 if intake is None else intake[1]
    return heard


async def _hear(bus: RabbitBus, heard: Heard, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            while True:
                await bus.inbox.arrived.wait()
                bus.inbox.arrived.clear()
                deliveries = bus.inbox.take(MAILBOX)
                for delivery in deliveries:
                    heard.take(delivery)
                await bus.ack(deliveries)
    except TimeoutError:
        return


@dataclass(frozen=True, slots=True)
class Written:
    """What files and store know of agents. ``trouble``: why the store says nothing."""

    manifests: dict[str, Manifest]
    success: list[AgentSuccess]
    breakers: dict[str, BreakerMoved]
    trouble: str | None = None


async def read_known(settings: Settings, now_us: int, since_us: int) -> Written:
    """The manifests in files and store, the success rates, and each breaker's last move since then."""
    manifests = await known_manifests(settings)
    try:
        async with StoreReader.open(settings.store.path) as store:
            success = await store.agents(now_us)
            breakers = {move.agent_id: move for move in await store.breaker_moves(since_us)}
    except OutsideWorld as error:
        return Written(manifests, [], {}, str(error))
    return Written(manifests, success, breakers)


async def known_manifests(settings: Settings) -> dict[str, Manifest]:
    """The manifests in the files, and over them those that agents brought to a router, as far as there is a store."""
    manifests = {manifest.id: manifest for manifest in load_fleet(settings).manifests}
    with suppress(OutsideWorld):
        async with StoreReader.open(settings.store.path) as store:
            for seen in await store.manifests():
                manifest = _stored(seen.body)
                if manifest is not None:
                    manifests[manifest.id] = manifest
    return manifests


def _stored(body: str) -> Manifest | None:
    try:
        return manifest_from(parse(body), tags=TagTable({}))
    except BadInput:
        return None
