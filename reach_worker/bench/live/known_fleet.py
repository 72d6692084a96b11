"""A fleet of which everything is known: agents that are there, with records of their work."""

from collections.abc import Mapping
from typing import Any, Final

from reach_worker.bench.chance import Chance
from reach_worker.bench.live.scene import CAPABILITY, SCHEMA
from reach_worker.core.breaker import BreakerPolicy
from reach_worker.core.document import Document
from reach_worker.core.fleet import Fleet
from reach_worker.core.manifest import Manifest, manifest_from
from reach_worker.core.presence import Heartbeat, Instance
from reach_worker.core.slots import SlotPolicy
from reach_worker.core.success import TrackRecord
from reach_worker.core.tags import TagTable

CAPABILITIES: Final = (CAPABILITY, "text.translate", "text.classify", "text.extract")
SLOTS: Final = 50
TRIES: Final = 40
"""Attempts in the record of each agent on each capability."""


def manifests(agents: int) -> list[Manifest]:
    """Declarations of so many agents; each offers all four capabilities, so all are candidates of every task."""
    return [manifest_from(Document(_declaration(place)), tags=TagTable({})) for place in range(agents)]


def known_fleet(agents: int, now: float, record: TrackRecord | None = None) -> Fleet:
    """All of them active, with records of successes and failures, unless another record is given."""
    fleet = Fleet(BreakerPolicy(), SlotPolicy())
    for manifest in manifests(agents):
        agent = fleet.register(manifest)
        instance = Instance(manifest.id, f"{manifest.id}-1")
        instance.heard(_beat(manifest), now)
        agent.roster.instances[instance.instance_id] = instance
    fleet.record = record or _record(agents, now)
    return fleet


def _record(agents: int, now: float) -> TrackRecord:
    chance = Chance("decide", agents)
    record = TrackRecord.empty()
    for place in range(agents):
        good_share = 0.5 + 0.5 * chance.draw()
        for capability in CAPABILITIES:
            track = record.touch(_name(place), capability)
            for number in range(TRIES):
                good = chance.draw() < good_share
                track.ended(now - TRIES + number, good=good, seconds=0.1 + chance.draw())
    return record


def _beat(manifest: Manifest) -> Heartbeat:
    return Heartbeat(
        manifest.id, f"{manifest.id}-1", "mailbox", SLOTS, (), "", manifest.version, stopping=False
    )


def _name(place: int) -> str:
    return f"agent-{place:04}"


def _declaration(place: int) -> Mapping[str, Any]:
    return {
        "id": _name(place),
        "version": "1",
        "mutually_exclusive_tags": [],
        "callable_by": ["*"],
        "max_concurrency": SLOTS,
        "capabilities": [
            {
                "id": capability,
                "description": f"Does {capability} as agent {place} does it",
                "input_schema": dict(SCHEMA),
                "cost": 1 + place % 5,
                "latency_ms": 500 + 100 * (place % 20),
            }
            for capability in CAPABILITIES
        ],
    }
