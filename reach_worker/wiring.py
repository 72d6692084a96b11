"""Builds every part from the settings. The only module that knows them all."""

import logging
import os
import socket
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import uvloop

from reach_worker.adapters.replies import REPLIES
from reach_worker.agent.agent import Agent
from reach_worker.agent.reception import worker_on
from reach_worker.agent.worker_policy import WorkerPolicy
from reach_worker.bus import examination, topology
from reach_worker.bus.rabbit import BusSettings, RabbitBus
from reach_worker.bus.topology import Topology
from reach_worker.client import MAILBOX, Client
from reach_worker.clock import SystemClock
from reach_worker.core.announcement import feedback_body, feedback_key
from reach_worker.core.breaker import BreakerPolicy
from reach_worker.core.diagnosis import Seen
from reach_worker.core.fleet import Fleet
from reach_worker.core.fresh_files import Known
from reach_worker.core.manifest import Manifest, manifest_from
from reach_worker.core.message import Message
from reach_worker.core.names import Names
from reach_worker.core.policy import PRESETS
from reach_worker.core.status import ASKER
from reach_worker.core.tags import TagTable
from reach_worker.core.yaml_text import parse
from reach_worker.errors import BadInput, OutsideWorld, StoreUnavailable, TopologyMismatch
from reach_worker.ports import ConsumingBus, Feedback, Sent
from reach_worker.services.dead_letters import DeadLetters
from reach_worker.services.lifecycle import beside, few_collections, stop_on_signals, unless_stopped
from reach_worker.services.reload import Files, Reload
from reach_worker.services.replay_order import KnownTasks, nothing_known
from reach_worker.services.router.desk import HOLD_S, Desk, RouterPolicies
from reach_worker.services.router.reception import router_on
from reach_worker.services.router.router import Router
from reach_worker.settings import FleetFiles, Settings, Sources
from reach_worker.store.pruner import Retention
from reach_worker.store.reader import reading_known_tasks
from reach_worker.store.sqlite_store import SqliteStore

log = logging.getLogger(__name__)

GHOST_BEATS: Final = 2.5
"""A broker gives a silent connection up after two missed heartbeats, and looks now and then."""
ASKING: Final = "reach-asks"
"""Begins the names of the queues by which foreign workers reply; not ours, so that nobody takes them for a router's."""


def run(main: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Run a coroutine function on the fast event loop; its result is the exit status."""
    return uvloop.run(main())


def bus_settings(settings: Settings, name: str) -> BusSettings:
    """The bus's share of the settings. ``name`` shows in the broker's list of connections."""
    broker = settings.broker
    return BusSettings(
        urls=broker.url,
        name=f"reach {name}",
        prefix=broker.prefix,
        heartbeat_s=broker.heartbeat_s,
        call_timeout_s=broker.call_timeout_s,
        connect_timeout_s=broker.connect_timeout_s,
    )


def router_policies(settings: Settings) -> RouterPolicies:
    """The router's share of the settings."""
    return RouterPolicies(
        intake=settings.intake,
        retry=settings.retry,
        timeouts=settings.timeouts,
        idempotency=settings.idempotency,
        routing=settings.routing,
        handoff=settings.handoff,
        hold_s=min(HOLD_S, settings.broker.consumer_timeout_s / 2),
        grace_s=settings.router.grace_s,
        ghost_s=GHOST_BEATS * settings.broker.heartbeat_s,
    )


def worker_policy(settings: Settings) -> WorkerPolicy:
    """The worker's share of the settings."""
    return WorkerPolicy(
        heartbeat_s=settings.presence.heartbeat_s,
        grace_s=settings.router.grace_s,
        max_body_bytes=settings.intake.max_body_bytes,
        slots=settings.slots,
        consumer_timeout_s=settings.broker.consumer_timeout_s,
        streaming=settings.streaming,
        calls=settings.calls,
    )


def breaker_policy(settings: Settings) -> BreakerPolicy:
    """The breaker's settings; what is not given is the routing preset's."""
    given = settings.breaker.model_dump(exclude_unset=True)
    return PRESETS[settings.routing.preset].breaker.model_copy(update=given)


async def run_router(settings: Settings, sources: Sources | None = None) -> int:
    """A router process, from start to the end of its drain.

    ``sources``: the files that it goes on reading; without them only those of the fleet.
    """
    sources = sources or Sources(settings, None, {})
    files = sources.start()
    for warning in files.warnings:
        log.warning("%s", warning.render())
    clock = SystemClock()
    names = Names(settings.broker.prefix)
    router_id = settings.router.id
    fleet = Fleet(breaker_policy(settings), settings.slots)
    desk = Desk(router_id, names, clock, router_policies(settings), fleet, files.tags)
    wanted = topology.complete(names, router_ids=[router_id], agent_ids=[], capabilities=[])
    bus = RabbitBus(bus_settings(settings, f"router {router_id}"), clock, wanted)
    async with open_store(settings) as store:
        router = router_on(bus, desk, settings.presence, store, lambda: asdict(store.stats()))
        manifests = [*await _remembered(store, files.tags), *files.manifests]
        with stop_on_signals(router.stop_asked):
            async with unless_stopped(bus.running(), router.stop_asked) as up:
                if up is None:
                    return 0
                await router.begin(manifests)
                few_collections()
                log.info("router %s is up, broker %s", router_id, bus.server_version)
                retention = Retention(settings.store.path, settings.store.retention_days, clock)
                async with beside(_reload(sources, files, router, clock).run()), beside(retention.run()):
                    await router.run()
    return 0


def _reload(sources: Sources, files: FleetFiles, router: Router, clock: SystemClock) -> Reload:
    known = Known(files.by_file, files.tags, sources.settings.routing)
    watched = Files(sources.look, sources.read)
    return Reload(watched, known, router.take_files, clock, files.warnings)


@asynccontextmanager
async def visiting_bus(settings: Settings, name: str, *, mailbox: bool = False) -> AsyncIterator[RabbitBus]:
    """A connection for a command: it declares nothing, and an absent broker is an error at once.

    ``mailbox``: with a private queue for answers.
    """
    wanted = replace(bus_settings(settings, name), waits=False)
    bus = RabbitBus(wanted, SystemClock(), Topology((), (), ()))
    if mailbox:
        bus.subscribe_mailbox(MAILBOX, prefix="reach-answers")
    async with bus.running():
        yield bus


@asynccontextmanager
async def asking_bus(settings: Settings, url: str | None = None) -> AsyncIterator[ConsumingBus]:
    """A lasting connection for an agent that asks foreign workers; replies are ``REPLIES``. ``url``: another broker."""
    wanted = bus_settings(settings, "asking")
    bus = RabbitBus(
        wanted if url is None else replace(wanted, urls=(url,)), SystemClock(), Topology((), (), ())
    )
    bus.subscribe_mailbox(REPLIES, prefix=ASKING)
    async with bus.running():
        yield bus


@asynccontextmanager
async def listening_bus(settings: Settings, keys: Sequence[str]) -> AsyncIterator[RabbitBus]:
    """A connection for a command that hears announcements, in the inbox under ``MAILBOX``.

    Raises ``OutsideWorld`` where no router ever was: there is nothing to listen to then.
    """
    names = Names(settings.broker.prefix)
    async with visiting_bus(settings, "look") as bus:
        if await bus.depth(names.intake) is None:
            raise OutsideWorld(
                f"the broker has no queue {names.intake!r}: start a router, or run `reach topology declare`"
            )
    wanted = replace(bus_settings(settings, "listener"), waits=False)
    bus = RabbitBus(wanted, SystemClock(), Topology((), (), ()))
    bus.subscribe_mailbox(MAILBOX, [(names.events, key) for key in keys], prefix=ASKER)
    async with bus.running():
        yield bus


def known_topology(settings: Settings, manifests: Sequence[Manifest]) -> Topology:
    """Everything that this router and these agents need on the broker."""
    return topology.complete(
        Names(settings.broker.prefix),
        router_ids=[settings.router.id],
        agent_ids=[manifest.id for manifest in manifests],
        capabilities=sorted(
            {capability.id for manifest in manifests for capability in manifest.capabilities}
        ),
    )


async def declare(settings: Settings, wanted: Topology) -> list[TopologyMismatch]:
    """Declare all that can be declared; what the broker has otherwise."""
    found: dict[str, TopologyMismatch] = {}
    at_once = replace(bus_settings(settings, "topology"), waits=False)
    while True:
        try:
            async with RabbitBus(at_once, SystemClock(), _without(wanted, found)).running():
                return list(found.values())
        except TopologyMismatch as mismatch:
            if mismatch.queue in found:
                raise
            found[mismatch.queue] = mismatch


async def examine(settings: Settings, wanted: Topology) -> list[Seen]:
    """What the broker has of a topology; nothing is declared."""
    return await examination.examine(bus_settings(settings, "doctor"), wanted)


def _without(wanted: Topology, names: Collection[str]) -> Topology:
    return Topology(
        tuple(exchange for exchange in wanted.exchanges if exchange.name not in names),
        tuple(queue for queue in wanted.queues if queue.name not in names),
        tuple(binding for binding in wanted.bindings if binding.exchange not in names),
    )


@asynccontextmanager
async def client(settings: Settings) -> AsyncIterator[Client]:
    """A client that publishes and waits for answers."""
    async with visiting_bus(settings, "client", mailbox=True) as bus:
        yield Client(
            bus,
            Names(settings.broker.prefix),
            SystemClock(),
            settings.intake.max_body_bytes,
            user_id=_only_user(settings),
        )


def _only_user(settings: Settings) -> str | None:
    """The user that all broker URLs name: the broker vouches for it, so agents know who calls."""
    users = {urlsplit(url).username or "guest" for url in settings.broker.url}
    return unquote(users.pop()) if len(users) == 1 else None


@asynccontextmanager
async def dead_letters(settings: Settings, *, unmatched: bool = False) -> AsyncIterator[DeadLetters]:
    """The tools for the dead letters, or for the unmatched tasks."""
    names = Names(settings.broker.prefix)
    async with visiting_bus(settings, "dead letters") as bus, known_tasks(settings) as known:
        queue = names.unmatched if unmatched else names.dlq
        yield DeadLetters(bus, names, SystemClock(), queue, known)


@asynccontextmanager
async def known_tasks(settings: Settings) -> AsyncIterator[KnownTasks]:
    """What the store knows of tasks, read only; nothing where there is none on this machine."""
    if not settings.store.path.exists():
        yield nothing_known
        return
    async with reading_known_tasks(settings.store.path, settings.store.wait_s, SystemClock()) as known:
        yield known


async def give_feedback(settings: Settings, said: Feedback) -> bool:
    """Store what a person says of a result, and tell the routers; whether any broker took it on.

    Raises :class:`OutsideWorld` if it could not be stored.
    """
    async with open_store(settings) as store:
        if not await store.record([said]):
            raise StoreUnavailable(f"{settings.store.path}: the store does not take it now; try again")
    names = Names(settings.broker.prefix)
    body = feedback_body(said.agent_id, said.capability, said.verdict)
    message = Message(feedback_key(said.agent_id), body, {}, names.events, persistent=False, mandatory=False)
    try:
        async with visiting_bus(settings, "feedback") as bus:
            return await bus.publish([message]) == [Sent.CONFIRMED]
    except OutsideWorld:
        return False


@asynccontextmanager
async def open_store(settings: Settings) -> AsyncIterator[SqliteStore]:
    """The store that the settings name."""
    store = settings.store
    async with SqliteStore.open(
        store.path, wait_s=store.wait_s, batch=store.batch, clock=SystemClock()
    ) as opened:
        yield opened


async def run_worker(settings: Settings, agent: Agent) -> int:
    """A worker process of an agent, from start to the end of its drain."""
    clock = SystemClock()
    names = Names(settings.broker.prefix)
    manifest = agent.manifest
    instance_id = f"{socket.gethostname()}-{os.getpid()}-{clock.new_id()[-6:]}"
    foundation = topology.base(names)
    wanted = Topology(
        foundation.exchanges,
        (*foundation.queues, topology.agent_queue(names, manifest.id)),
        foundation.bindings,
    )
    bus = RabbitBus(bus_settings(settings, f"agent {manifest.id} {instance_id}"), clock, wanted)
    worker = worker_on(bus, agent, instance_id, names, worker_policy(settings), clock)
    with stop_on_signals(worker.stop_asked):
        async with unless_stopped(bus.running(), worker.stop_asked) as up:
            if up is None:
                return 0
            words = "agent %s instance %s is up, broker %s"
            await worker.run(lambda: log.info(words, manifest.id, instance_id, bus.server_version))
    if worker.left_behind:
        log.warning("%d runs could not be ended; leaving without them", worker.left_behind)
        os._exit(0)
    log.info("agent %s instance %s has stopped", manifest.id, instance_id)
    return 0


async def _remembered(store: SqliteStore, tags: TagTable) -> list[Manifest]:
    """Manifests that agents brought in earlier times; one that no longer reads is left out."""
    found = []
    for text in await store.manifests():
        try:
            found.append(manifest_from(parse(text), tags=tags))
        except BadInput as error:
            log.warning("a remembered manifest is no longer valid: %s", error)
    return found


def offline_fleet(settings: Settings, manifests: list[Manifest]) -> Fleet:
    """A fleet of which only the manifests are known."""
    fleet = Fleet(breaker_policy(settings), settings.slots)
    for manifest in manifests:
        fleet.register(manifest)
    return fleet
