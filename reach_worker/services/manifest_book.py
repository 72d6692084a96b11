"""Which manifest counts for each agent: from files, from the store, from the agents themselves.

The newest version counts; of equal versions the one that was registered last. A registration is a changed file, or a
manifest that an instance brings when it starts. An instance that only repeats what it brought earlier registers
nothing: else a file that was changed while the agent runs would be undone by its next heartbeat, and two instances
with other words for one version would take turns.
"""

import logging
from collections.abc import Collection, Iterable
from typing import Final

import orjson

from reach_worker.core.changes import manifest_changes
from reach_worker.core.document import Document
from reach_worker.core.fleet import Fleet
from reach_worker.core.manifest import Manifest, manifest_from
from reach_worker.core.message import Delivery
from reach_worker.core.presence import PresenceState
from reach_worker.core.tags import TagTable
from reach_worker.errors import BadInput
from reach_worker.ports import Clock, ManifestSeen
from reach_worker.services.news import News

log = logging.getLogger(__name__)

MOST_BROUGHT: Final = 100
"""Manifests of one agent that are remembered as brought before."""


class ManifestBook:
    """Keeps the fleet's manifests."""

    def __init__(self, fleet: Fleet, tags: TagTable, clock: Clock) -> None:
        self._fleet = fleet
        self._tags = tags
        self._clock = clock
        self._brought: dict[str, set[str]] = {}
        self._open: set[str] = set()

    def remember(self, manifests: Iterable[Manifest], news: News) -> None:
        """Manifests from files or the store: each is a registration."""
        for manifest in manifests:
            if not self._outdated(manifest):
                self._register(manifest, news)

    def forget(self, agent_ids: Collection[str], news: News) -> None:
        """The files of these agents are gone, and so are they, unless a live instance brings its manifest."""
        for agent_id in sorted(agent_ids & self._fleet.agents.keys()):
            state = self._fleet.agents[agent_id].roster.state()
            if state in (PresenceState.PENDING, PresenceState.DEAD):
                self._withdraw(agent_id, news)
                continue
            log.info("the file of agent %s is gone; it is there, so what it brings itself counts", agent_id)
            self._open.add(agent_id)
            self._brought.pop(agent_id, None)

    def retag(self, tags: TagTable) -> None:
        """Another table of tags: every manifest in the new spelling."""
        self._tags = tags
        for agent in list(self._fleet.agents.values()):
            self._fleet.register(_declared(agent.manifest.declaration, tags))

    def is_new(self, agent_id: str, manifest_hash: str, *, starts: bool) -> bool:
        """Whether a heartbeat tells of a manifest that is to be asked for. ``starts``: the instance was not there."""
        agent = self._fleet.agents.get(agent_id)
        if agent is None:
            return True
        brought = self._brought.get(agent_id, set())
        if starts:
            brought.discard(manifest_hash)
        return manifest_hash != agent.manifest.hash and manifest_hash not in brought

    def bring(self, delivery: Delivery, news: News) -> None:
        """An agent says what its manifest is. A bad one changes nothing."""
        try:
            manifest = manifest_from(Document(orjson.loads(delivery.body)), tags=self._tags)
        except (BadInput, ValueError) as error:
            log.warning("the manifest on %s is refused, the known one stays: %s", delivery.routing_key, error)
            return
        known = self._fleet.agents.get(manifest.id)
        if self._brought_before(manifest) and known is not None:
            return
        free = manifest.id in self._open
        self._open.discard(manifest.id)
        if known is not None and (
            known.manifest.hash == manifest.hash or (not free and self._outdated(manifest))
        ):
            return
        self._register(manifest, news)
        now_us = self._clock.utc_us()
        news.rows.append(
            ManifestSeen(manifest.id, manifest.hash, manifest.version, manifest.declaration, now_us)
        )

    def _brought_before(self, manifest: Manifest) -> bool:
        """Whether it was brought before; from now on it was."""
        brought = self._brought.setdefault(manifest.id, set())
        if manifest.hash in brought:
            return True
        if len(brought) >= MOST_BROUGHT:
            brought.clear()
        brought.add(manifest.hash)
        return False

    def _outdated(self, manifest: Manifest) -> bool:
        known = self._fleet.agents.get(manifest.id)
        if known is None or version_key(manifest.version) >= version_key(known.manifest.version):
            return False
        log.info("%s %s is older than the known %s", manifest.id, manifest.version, known.manifest.version)
        return True

    def _register(self, manifest: Manifest, news: News) -> None:
        known = self._fleet.agents.get(manifest.id)
        old = None if known is None else known.manifest
        self._fleet.register(manifest)
        after = {capability.id for capability in manifest.capabilities}
        before = set() if old is None else {capability.id for capability in old.capabilities}
        news.new_capabilities |= after
        news.agents.add(manifest.id)
        news.withdrawn |= {name for name in before - after if not self._fleet.capable(name)}
        if old is None:
            news.new_agents.add(manifest.id)
            log.info("agent %s %s: %s", manifest.id, manifest.version, ", ".join(sorted(after)))
        else:
            _tell(old, manifest, before, after)

    def _withdraw(self, agent_id: str, news: News) -> None:
        offered = {capability.id for capability in self._fleet.agents[agent_id].manifest.capabilities}
        self._fleet.withdraw(agent_id)
        news.withdrawn |= {name for name in offered if not self._fleet.capable(name)}
        log.warning(
            "agent %s is withdrawn, its file is gone and it is not there: withdrawn %s",
            agent_id,
            ", ".join(sorted(offered)),
        )


def _tell(old: Manifest, new: Manifest, before: set[str], after: set[str]) -> None:
    """What is added, what is withdrawn and what else changed, apart."""
    for what, names in (
        ("added", after - before),
        ("withdrawn", before - after),
        ("changed", manifest_changes(old, new)),
    ):
        if names:
            log.info("agent %s %s: %s %s", new.id, new.version, what, ", ".join(sorted(names)))


def _declared(declaration: str, tags: TagTable) -> Manifest:
    return manifest_from(Document(orjson.loads(declaration)), tags=tags)


def version_key(version: str) -> tuple[tuple[int, int, str], ...]:
    """Versions in the order people mean: numbers by value, words by letter, ``1.10`` after ``1.9``."""
    parts = version.replace("-", ".").split(".")
    return tuple((1, int(part), "") if part.isascii() and part.isdigit() else (0, 0, part) for part in parts)
