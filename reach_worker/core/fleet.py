"""All that a router knows of its agents: manifests, presence, breakers, leases, records."""

import json
from bisect import insort
from dataclasses import dataclass, field
from typing import Final

from reach_worker.core.breaker import Admits, Breaker, BreakerPolicy
from reach_worker.core.document import nearest
from reach_worker.core.manifest import Capability, Manifest
from reach_worker.core.presence import PresenceState, Roster
from reach_worker.core.slots import Leases, SlotPolicy, head_start, share
from reach_worker.core.success import TrackRecord

MOST_GUESSES: Final = 1_000


@dataclass(slots=True)
class Agent:
    """One agent: its manifest and what is known of it. ``rests_until`` is monotonic seconds (rate limited till then)."""

    manifest: Manifest
    breaker: Breaker
    roster: Roster = field(default_factory=Roster)
    rests_until: float = 0.0
    agent_id: str = field(init=False)

    def __post_init__(self) -> None:
        self.agent_id = self.manifest.id


@dataclass(frozen=True, slots=True)
class Offer:
    """One capability of one agent. ``schema`` is the input schema as canonical JSON: equal ones check a payload once."""

    agent: Agent
    capability: Capability
    schema: str


@dataclass(slots=True)
class Fleet:
    """The agents by id, and who offers which capability, in the order of their ids.

    ``routers`` is the number of live routers, this one included.
    """

    breaker_policy: BreakerPolicy
    slot_policy: SlotPolicy
    agents: dict[str, Agent] = field(default_factory=dict)
    by_capability: dict[str, tuple[Offer, ...]] = field(default_factory=dict)
    with_side_effects: set[str] = field(default_factory=set)
    leases: Leases = field(default_factory=Leases)
    record: TrackRecord = field(default_factory=TrackRecord)
    guesses: dict[str, str | None] = field(default_factory=dict)
    routers: int = 1

    def register(self, manifest: Manifest) -> Agent:
        """Add an agent, or replace its manifest; presence, breaker and record of a known one stay."""
        agent = self.agents.get(manifest.id)
        if agent is None:
            agent = self.agents[manifest.id] = Agent(manifest, Breaker(self.breaker_policy))
        for capability in agent.manifest.capabilities:
            self._offer(agent, capability.id, None)
        agent.manifest = manifest
        self.guesses.clear()
        for capability in manifest.capabilities:
            self._offer(agent, capability.id, capability)
        return agent

    def capable(self, capability: str) -> tuple[Offer, ...]:
        """Who offers the capability, in the order of the agents' ids."""
        return self.by_capability.get(capability, ())

    def nearest(self, capability: str) -> str | None:
        """The known capability that was probably meant. Kept: over hundreds of them the search takes milliseconds."""
        if capability not in self.guesses:
            if len(self.guesses) >= MOST_GUESSES:
                self.guesses.clear()
            self.guesses[capability] = nearest(capability, self.by_capability)
        return self.guesses[capability]

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
            len(self.leases) >= self.slot_policy.in_flight
            or self.leases.size >= self.slot_policy.in_flight_bytes
        )

    def free_slots(self, capability: str, now: float) -> int:
        """Slots that could take a task of the capability now, over all agents that are there, well and rested."""
        if self.full():
            return 0
        free = sum(self._free(offer.agent, capability, now) for offer in self.capable(capability))
        return min(free, self.slot_policy.in_flight - len(self.leases))

    def admits(self, agent: Agent, now: float) -> bool:
        """The agent's breaker lets a task through."""
        return isinstance(agent.breaker.admits(now), Admits)

    def _free(self, agent: Agent, capability: str, now: float) -> int:
        """Free slots of one agent; one where its breaker waits for the result of a single probe."""
        if now < agent.rests_until or agent.roster.state() is not PresenceState.ACTIVE:
            return 0
        match agent.breaker.admits(now):
            case Admits(probe):
                free = max(0, self.limit(agent, capability) - self.leases.held(agent.agent_id))
                return min(1, free) if probe else free
            case _:
                return 0

    def _offer(self, agent: Agent, capability_id: str, capability: Capability | None) -> None:
        """Enter what an agent offers under a capability, or strike it out (``None``)."""
        offers = [offer for offer in self.capable(capability_id) if offer.agent is not agent]
        if capability is not None:
            schema = json.dumps(capability.input_schema, sort_keys=True)
            insort(offers, Offer(agent, capability, schema), key=lambda offer: offer.agent.agent_id)
        if offers:
            self.by_capability[capability_id] = tuple(offers)
        else:
            self.by_capability.pop(capability_id, None)
        if any(offer.capability.side_effects for offer in offers):
            self.with_side_effects.add(capability_id)
        else:
            self.with_side_effects.discard(capability_id)
