"""Who is there: heartbeats, manifests and routers, heard on the events exchange."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import orjson

from reach_worker.core.announcement import (
    WHO,
    RouterBeat,
    Unreadable,
    beat_from,
    router_body,
    router_from,
    router_key,
)
from reach_worker.core.document import Document
from reach_worker.core.fleet import Fleet
from reach_worker.core.manifest import Manifest, manifest_from
from reach_worker.core.message import Delivery, Message
from reach_worker.core.names import Names
from reach_worker.core.presence import Died, Instance, PresencePolicy, PresenceState, Probe, tick
from reach_worker.core.tags import TagTable
from reach_worker.errors import BadInput
from reach_worker.ports import Clock, ManifestSeen, Row, Sent

log = logging.getLogger(__name__)


@dataclass(slots=True)
class News:
    """What changed. ``agents``: ids whose presence or manifest is not what it was."""

    agents: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    new_capabilities: set[str] = field(default_factory=set)
    new_agents: set[str] = field(default_factory=set)
    rows: list[Row] = field(default_factory=list)
    questions: list[Message] = field(default_factory=list)
    probes: list[tuple[Instance, Message]] = field(default_factory=list)
    routers: set[str] = field(default_factory=set)


class FleetWatch:
    """Keeps the fleet's presence and manifests by what is heard."""

    def __init__(
        self, fleet: Fleet, policy: PresencePolicy, names: Names, clock: Clock, tags: TagTable, router_id: str
    ) -> None:
        self._fleet = fleet
        self._policy = policy
        self._names = names
        self._clock = clock
        self._tags = tags
        self._router_id = router_id
        self._routers: dict[str, float] = {}
        self._asked: dict[str, float] = {}
        self._began: float | None = None
        self._beaten = float("-inf")
        self._heard_since: set[str] = set()

    def remember(self, manifests: Iterable[Manifest]) -> News:
        """Manifests known from the store or from files, before anybody was heard; the newer version counts."""
        news = News()
        for manifest in manifests:
            if not self._outdated(manifest):
                self._register(manifest, news)
        return news

    def session_began(self) -> None:
        """A new broker session: ask who is there, and trust no silence from before."""
        now = self._clock.monotonic()
        self._began = now if self._began is None else self._began
        self._beaten = float("-inf")
        for agent in self._fleet.agents.values():
            for instance in agent.roster.instances.values():
                instance.heard_at = max(instance.heard_at, now)

    def settled(self) -> bool:
        """It is known who is there: two heartbeat periods have passed, or every known agent has answered."""
        if self._began is None:
            return False
        waited = self._clock.monotonic() - self._began
        known = set(self._fleet.agents)
        return waited >= 2 * self._policy.heartbeat_s or (bool(known) and known <= self._heard_since)

    def lives(self, router_id: str) -> bool:
        """Another router was heard lately, and did not say goodbye."""
        return router_id in self._routers

    def take(self, deliveries: Sequence[Delivery]) -> News:
        """What was announced."""
        news = News()
        for delivery in deliveries:
            kind = delivery.routing_key.partition(".")[0]
            match kind:
                case "presence":
                    self._beat(delivery, news)
                case "manifest":
                    self._manifest(delivery, news)
                case "router":
                    self._router(delivery, news)
                case _:
                    log.debug("an announcement %r says nothing to a router", delivery.routing_key)
        return news

    def tick(self) -> News:
        """Let time pass: suspicions, probes, deaths, and our own heartbeat."""
        now = self._clock.monotonic()
        news = News()
        for agent in self._fleet.agents.values():
            agent.roster.forget(now, self._policy)
            before = agent.roster.state()
            for instance in list(agent.roster.instances.values()):
                match tick(instance, now, self._policy):
                    case Probe(_, mailbox):
                        news.agents.add(agent.agent_id)
                        news.probes.append((instance, Message(mailbox, b"", {}, persistent=False)))
                    case Died():
                        self._dead(
                            agent.agent_id, instance, before, news, "silent, and no probe was answered"
                        )
                    case None:
                        pass
        if now - self._beaten >= self._policy.heartbeat_s:
            news.questions += self._own_beat(now)
        return news

    def probed(self, probes: Sequence[tuple[Instance, Message]], results: Sequence[Sent]) -> News:
        """How sending the probes went: one without a queue to go to proves that the instance is gone."""
        news = News()
        for (instance, _), result in zip(probes, results, strict=True):
            agent = self._fleet.agents[instance.agent_id]
            before = agent.roster.state()
            if result is Sent.UNROUTABLE and instance.probe_unroutable():
                self._dead(instance.agent_id, instance, before, news, "its connection is gone")
        return news

    def farewell(self) -> Message:
        """Says that this router stops."""
        body = router_body(RouterBeat(self._router_id, stopping=True))
        return Message(
            router_key(self._router_id), body, {}, self._names.events, persistent=False, mandatory=False
        )

    # -- inside

    def _beat(self, delivery: Delivery, news: News) -> None:
        beat = beat_from(delivery.body)
        if isinstance(beat, Unreadable):
            log.warning("a heartbeat cannot be read: %s", beat.error)
            return
        agent = self._fleet.agents.get(beat.agent_id)
        if agent is None:
            self._ask_manifest(beat.agent_id, news)
            return
        instances = agent.roster.instances
        instance = instances.setdefault(beat.instance_id, Instance(beat.agent_id, beat.instance_id))
        before = agent.roster.state()
        slots = agent.roster.slots()
        changed = instance.heard(beat, self._clock.monotonic())
        self._heard_since.add(beat.agent_id)
        if beat.manifest_hash != agent.manifest.hash:
            self._ask_manifest(beat.agent_id, news)
        if changed or slots != agent.roster.slots():
            news.agents.add(beat.agent_id)
        if changed:
            log.info("%s instance %s is %s", beat.agent_id, beat.instance_id, instance.state.value)
        if before is not PresenceState.DEAD and agent.roster.state() is PresenceState.DEAD:
            news.gone.add(beat.agent_id)

    def _ask_manifest(self, agent_id: str, news: News) -> None:
        """Ask for a manifest we do not have, at most once a heartbeat period and agent."""
        now = self._clock.monotonic()
        if now - self._asked.get(agent_id, float("-inf")) < self._policy.heartbeat_s:
            return
        self._asked[agent_id] = now
        news.questions.append(Message(WHO, b"", {}, self._names.events, persistent=False, mandatory=False))

    def _manifest(self, delivery: Delivery, news: News) -> None:
        try:
            manifest = manifest_from(Document(orjson.loads(delivery.body)), tags=self._tags)
        except (BadInput, ValueError) as error:
            log.warning("the manifest on %s is refused, the known one stays: %s", delivery.routing_key, error)
            return
        known = self._fleet.agents.get(manifest.id)
        if known is not None and known.manifest.hash == manifest.hash:
            return
        if self._outdated(manifest):
            return
        self._register(manifest, news)
        now_us = self._clock.utc_us()
        news.rows.append(
            ManifestSeen(manifest.id, manifest.hash, manifest.version, manifest.declaration, now_us)
        )

    def _outdated(self, manifest: Manifest) -> bool:
        known = self._fleet.agents.get(manifest.id)
        if known is None or version_key(manifest.version) >= version_key(known.manifest.version):
            return False
        log.info("%s %s is older than the known %s", manifest.id, manifest.version, known.manifest.version)
        return True

    def _register(self, manifest: Manifest, news: News) -> None:
        known = self._fleet.agents.get(manifest.id)
        before = {capability.id for capability in known.manifest.capabilities} if known else set()
        after = {capability.id for capability in manifest.capabilities}
        self._fleet.register(manifest)
        if known is None:
            news.new_agents.add(manifest.id)
            log.info("agent %s %s: %s", manifest.id, manifest.version, ", ".join(sorted(after)))
        elif before != after:
            added, withdrawn = ", ".join(sorted(after - before)), ", ".join(sorted(before - after))
            log.info(
                "agent %s %s: added %s; withdrawn %s",
                manifest.id,
                manifest.version,
                added or "-",
                withdrawn or "-",
            )
        news.new_capabilities |= after
        news.agents.add(manifest.id)

    def _router(self, delivery: Delivery, news: News) -> None:
        beat = router_from(delivery.body)
        if isinstance(beat, Unreadable):
            log.warning("a router's heartbeat cannot be read: %s", beat.error)
            return
        if beat.router_id == self._router_id:
            return
        if beat.stopping:
            self._routers.pop(beat.router_id, None)
        else:
            if beat.router_id not in self._routers:
                news.routers.add(beat.router_id)
            self._routers[beat.router_id] = self._clock.monotonic()
        self._count_routers()

    def _count_routers(self) -> None:
        limit = self._clock.monotonic() - self._policy.suspect_s
        self._routers = {router: heard for router, heard in self._routers.items() if heard >= limit}
        self._fleet.routers = 1 + len(self._routers)

    def _own_beat(self, now: float) -> list[Message]:
        first = self._beaten == float("-inf")
        self._beaten = now
        self._count_routers()
        body = router_body(RouterBeat(self._router_id, stopping=False))
        beat = Message(
            router_key(self._router_id), body, {}, self._names.events, persistent=False, mandatory=False
        )
        who = Message(WHO, b"", {}, self._names.events, persistent=False, mandatory=False)
        return [beat, who] if first else [beat]

    def _dead(self, agent_id: str, instance: Instance, before: PresenceState, news: News, why: str) -> None:
        log.warning("%s instance %s is dead: %s", agent_id, instance.instance_id, why)
        news.agents.add(agent_id)
        roster = self._fleet.agents[agent_id].roster
        if before is not PresenceState.DEAD and roster.state() is PresenceState.DEAD:
            news.gone.add(agent_id)


def version_key(version: str) -> tuple[tuple[int, int, str], ...]:
    """Versions in the order people mean: numbers by value, words by letter, ``1.10`` after ``1.9``."""
    parts = version.replace("-", ".").split(".")
    return tuple((1, int(part), "") if part.isascii() and part.isdigit() else (0, 0, part) for part in parts)
