"""All that a router knows of its agents: manifests, presence, breakers, leases, records."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from reach_worker.core.breaker import Admits, Breaker, BreakerPolicy
from reach_worker.core.manifest import Manifest
from reach_worker.core.presence import PresenceState, Roster
from reach_worker.core.slots import Leases, SlotPolicy, head_start, share
from reach_worker.core.success import TrackRecord


@dataclass(slots=True)
class Agent:
    """One agent: its manifest and what is known of it. ``rests_until`` is monotonic seconds (rate limited till then)."""

    manifest: Manifest
    breaker: Breaker
    roster: Roster = field(default_factory=Roster)
    rests_until: float = 0.0

    @property
    def agent_id(self) -> str:
        """The agent's id."""
        return self.manifest.id


@dataclass(slots=True)
class Fleet:
    """The agents by id, and who has which capability. ``routers`` is the number of live routers, this one included."""

    breaker_policy: BreakerPolicy
    slot_policy: SlotPolicy
    agents: dict[str, Agent] = field(default_factory=dict)
    by_capability: dict[str, tuple[str, ...]] = field(default_factory=dict)
    with_side_effects: frozenset[str] = frozenset()
    leases: Leases = field(default_factory=Leases)
    record: TrackRecord = field(default_factory=TrackRecord)
    routers: int = 1

    def register(self, manifest: Manifest) -> Agent:
        """Add an agent, or replace its manifest; presence, breaker and record of a known one stay."""
        known = self.agents.get(manifest.id)
        if known is None:
            known = self.agents[manifest.id] = Agent(manifest, Breaker(self.breaker_policy))
        known.manifest = manifest
        self._index()
        return known

    def capable(self, capability: str) -> Iterator[Agent]:
        """The agents whose manifest has the capability, by id."""
        for agent_id in self.by_capability.get(capability, ()):
            yield self.agents[agent_id]

    def has_side_effects(self, capability: str) -> bool:
        """Any agent declares side effects for it."""
        return capability in self.with_side_effects

    def limit(self, agent: Agent, capability: str | None = None) -> int:
        """How much this router may have under way at the agent: its share of the slots, and a small head start."""
        slots = share(agent.roster.slots(), self.routers)
        track = self.record.of(agent.agent_id, capability) if capability else None
        typical = track.service.quantile(0.5) if track else None
        return min(self.slot_policy.per_agent, slots + head_start(slots, typical, self.slot_policy))

    def full(self) -> bool:
        """No further dispatch may be under way in all."""
        return (
            len(self.leases) >= self.slot_policy.in_flight or self.leases.size >= self.slot_policy.in_flight_bytes
        )

    def free_slots(self, capability: str, now: float) -> int:
        """Slots that could take a task of the capability now, over all agents that are there, well and rested."""
        if self.full():
            return 0
        free = sum(
            max(0, self.limit(agent, capability) - self.leases.held(agent.agent_id))
            for agent in self.capable(capability)
            if self.can_work(agent, now)
        )
        return min(free, self.slot_policy.in_flight - len(self.leases))

    def can_work(self, agent: Agent, now: float) -> bool:
        """The agent is there, its breaker admits, and it does not rest."""
        if agent.roster.state() is not PresenceState.ACTIVE or now < agent.rests_until:
            return False
        return self.admits(agent, now)

    def admits(self, agent: Agent, now: float) -> bool:
        """The agent's breaker lets a task through."""
        return isinstance(agent.breaker.admits(now), Admits)

    def _index(self) -> None:
        found: dict[str, list[str]] = {}
        for agent_id in sorted(self.agents):
            for capability in self.agents[agent_id].manifest.capabilities:
                found.setdefault(capability.id, []).append(agent_id)
        self.by_capability = {capability: tuple(ids) for capability, ids in found.items()}
        self.with_side_effects = frozenset(
            capability.id
            for agent in self.agents.values()
            for capability in agent.manifest.capabilities
            if capability.side_effects
        )
