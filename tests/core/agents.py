"""Agents and fleets for the tests of the core: manifests in one line, instances that are there, open breakers."""

from collections.abc import Iterable
from typing import Any

from reach_worker.core.breaker import Breaker, BreakerPolicy
from reach_worker.core.document import Document
from reach_worker.core.fleet import Agent, Fleet, Offer
from reach_worker.core.gates import Ask
from reach_worker.core.manifest import Manifest, manifest_from
from reach_worker.core.presence import Heartbeat, Instance
from reach_worker.core.slots import Lease, SlotPolicy
from reach_worker.core.tags import TagTable

NOW = 1000.0
"""Monotonic seconds at which the tests begin."""
CAPABILITY = "log.query"


def manifest(agent_id: str, *, capability: str = CAPABILITY, offers: Any = None, **fields: Any) -> Manifest:
    """``offers`` holds fields of the capability, ``fields`` those of the manifest."""
    data = {
        "id": agent_id,
        "mutually_exclusive_tags": [],
        "capabilities": [{"id": capability, **(offers or {})}],
        "max_concurrency": 8,
        **fields,
    }
    return manifest_from(Document(data), tags=TagTable({}))


def beat(agent_id: str, instance_id: str = "", *, capacity: int = 8, **fields: Any) -> Heartbeat:
    instance_id = instance_id or f"{agent_id}-1"
    said: dict[str, Any] = {
        "agent_id": agent_id,
        "instance_id": instance_id,
        "mailbox": f"instance.{instance_id}",
        "capacity": capacity,
        "running": (),
        "manifest_hash": "h",
        "version": "1",
        "stopping": False,
    }
    return Heartbeat(**{**said, **fields})


def there(agent: Agent, *, capacity: int = 8, instance_id: str = "", now: float = NOW) -> Instance:
    """An instance of the agent that was just heard."""
    said = beat(agent.agent_id, instance_id, capacity=capacity)
    instance = agent.roster.instances.setdefault(said.instance_id, Instance(agent.agent_id, said.instance_id))
    instance.heard(said, now)
    return instance


def fleet_of(
    manifests: Iterable[Manifest] = (),
    *,
    breaker: BreakerPolicy | None = None,
    slots: SlotPolicy | None = None,
    capacity: int = 8,
) -> Fleet:
    """A fleet in which every agent has one instance that was just heard."""
    fleet = Fleet(breaker or BreakerPolicy(), slots or SlotPolicy())
    for one in manifests:
        there(fleet.register(one), capacity=capacity)
    return fleet


def offer_of(fleet: Fleet, agent_id: str, capability: str = CAPABILITY) -> Offer:
    return next(offer for offer in fleet.capable(capability) if offer.agent.agent_id == agent_id)


def lease(dispatch_id: str, agent_id: str = "a", *, size: int = 0) -> Lease:
    return Lease(dispatch_id, agent_id, f"task-{dispatch_id}", NOW, NOW + 60, size, probe=False)


def occupy(fleet: Fleet, agent_id: str, count: int) -> None:
    """Dispatches under way at the agent."""
    for number in range(count):
        fleet.leases.add(lease(f"{agent_id}-{number}", agent_id))


def open_breaker(breaker: Breaker, now: float = NOW) -> None:
    """Failures until it opens."""
    while not breaker.failed("old", now, 0.5, since=now):
        pass


def ask(task_id: str = "t1", **fields: Any) -> Ask:
    known: dict[str, Any] = {"capability": CAPABILITY, "payload": {}, **fields}
    return Ask(task_id, **known)
