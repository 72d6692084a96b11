"""What one router knows: its own real fleet, and what heartbeats say of the work that others have sent."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from reach_worker.bench.fleets import SimulatedAgent
from reach_worker.bench.tasks import CAPABILITY, Attempt, Ended
from reach_worker.core.breaker import BreakerPolicy
from reach_worker.core.document import Document
from reach_worker.core.fleet import NEW_LOAD, Agent, Fleet
from reach_worker.core.manifest import Manifest, manifest_from
from reach_worker.core.open_share import room_by_rate
from reach_worker.core.outcome import RULES, BreakerEffect, OutcomeClass, Success
from reach_worker.core.presence import Heartbeat, Instance
from reach_worker.core.slots import Lease, SlotPolicy
from reach_worker.core.tags import TagTable

UTC_AT_START_S: Final = 1_800_000_000.0
"""Track records live by UTC, leases and breakers by the monotonic clock; in the bench both run alike."""
_WIDE_OPEN: Final = SlotPolicy(in_flight=100_000, per_agent=100_000)


class UnboundFleet(Fleet):
    """A fleet without late binding: no agent is ever full, its queue takes what comes."""

    __slots__ = ()

    def limit(self, agent: Agent, capability: str | None = None) -> int:  # noqa: ARG002 - as in Fleet
        return self.slot_policy.per_agent if agent.roster.slots() > 0 else 0


def fleet_for(routers: int, *, early: bool) -> Fleet:
    """An empty fleet of one of ``routers``; ``early``: tasks are bound at once."""
    kind, slots = (UnboundFleet, _WIDE_OPEN) if early else (Fleet, SlotPolicy())
    return kind(BreakerPolicy(), slots, routers=routers, utc_ahead=UTC_AT_START_S)


def manifest_of(agent: SimulatedAgent) -> Manifest:
    """What the agent says of itself."""
    capability = {
        "id": CAPABILITY,
        "cost": agent.declared_cost,
        "latency_ms": agent.declared_latency_ms,
    }
    data = {
        "id": agent.agent_id,
        "capabilities": [capability],
        "mutually_exclusive_tags": [],
        "max_concurrency": agent.slots,
    }
    return manifest_from(Document(data), tags=TagTable({}))


def beat_of(manifest: Manifest, running: tuple[str, ...]) -> Heartbeat:
    """What the agent's one instance says every few seconds."""
    instance_id = f"{manifest.id}-1"
    return Heartbeat(
        agent_id=manifest.id,
        instance_id=instance_id,
        mailbox=instance_id,
        capacity=manifest.max_concurrency,
        running=running,
        manifest_hash=manifest.hash,
        version=manifest.version,
        stopping=False,
    )


@dataclass(slots=True)
class Knowledge:
    """A router's fleet, and its luck. ``elsewhere``: what others have under way at each agent, smoothed and late."""

    fleet: Fleet
    draw: Callable[[], float]
    elsewhere: dict[str, float] = field(default_factory=dict)

    def meet(self, manifest: Manifest, now: float) -> None:
        """An agent that is new: its manifest and its first heartbeat."""
        self.fleet.register(manifest)
        self.hear(beat_of(manifest, ()), 0, now)

    def hear(self, beat: Heartbeat, elsewhere: int, now: float) -> None:
        """A heartbeat. ``elsewhere``: how much the agent had under way for others when it was made."""
        agent = self.fleet.agents[beat.agent_id]
        known = agent.roster.instances
        instance = known.setdefault(beat.instance_id, Instance(beat.agent_id, beat.instance_id))
        instance.heard(beat, now)
        self.fleet.smooth_load(agent)
        before = self.elsewhere.get(beat.agent_id, 0.0)
        self.elsewhere[beat.agent_id] = NEW_LOAD * elsewhere + (1.0 - NEW_LOAD) * before

    def under_way(self, agent_id: str) -> float:
        """The agent's load as this router sees it: its own dispatches, exactly, and those of others."""
        return self.fleet.leases.held(agent_id) + self.elsewhere[agent_id]

    def send(self, attempt: Attempt) -> None:
        """Take a slot for an attempt that goes out now, and the probe where that is what it is."""
        now, dispatch_id = attempt.bound_at, attempt.dispatch_id
        probe = self.fleet.agents[attempt.agent_id].breaker.sent(dispatch_id, now)
        self.fleet.leases.add(
            Lease(dispatch_id, attempt.agent_id, attempt.task.ask.task_id, now, attempt.limit_at, 0, probe)
        )

    def settle(self, attempt: Attempt, ended: Ended, now: float) -> float | None:
        """Give the slot back and count the outcome, as the router's judge does.

        Returns when the agent can be asked again, if this opened its breaker.
        """
        dispatch_id = attempt.dispatch_id
        self.fleet.leases.release(dispatch_id)
        agent = self.fleet.agents[attempt.agent_id]
        breaker = agent.breaker
        if ended.outcome is OutcomeClass.TIMEOUT and attempt.cut_by_deadline:
            breaker.released(dispatch_id)
            return None
        rule = RULES[ended.outcome]
        track = self.fleet.record.touch(attempt.agent_id, CAPABILITY)
        track.ended(UTC_AT_START_S + now, good=rule.success is Success.COUNTS_FOR, seconds=ended.seconds)
        if rule.breaker is BreakerEffect.CLEARS:
            breaker.succeeded(dispatch_id, now, since=attempt.bound_at)
            return None
        room = room_by_rate(self.fleet, agent)
        opened = breaker.failed(dispatch_id, now, self.draw(), since=attempt.bound_at, room_by_rate=room)
        return breaker.open_until if opened else None
