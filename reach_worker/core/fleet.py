"""All that a router knows of its agents: manifests, presence, breakers, leases, records."""

import json
from bisect import insort
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final
from zlib import crc32

from reach_worker.core.adaptive_rate import AdaptiveRate
from reach_worker.core.breaker import Admits, Breaker, BreakerPolicy
from reach_worker.core.document import nearest
from reach_worker.core.manifest import Capability, Manifest
from reach_worker.core.personal_data import asked_for, marked
from reach_worker.core.presence import PresenceState, Roster
from reach_worker.core.slots import Leases, SlotPolicy, head_start, share
from reach_worker.core.success import TrackRecord
from reach_worker.core.token_bucket import TokenBucket

MOST_GUESSES: Final = 1_000
NEW_LOAD: Final = 0.7
PHASES: Final = 128
"""The records of a thousand agents are not all read anew in the same decision."""
MOST_SESSIONS: Final = 10_000


@dataclass(slots=True)
class Agent:
    """One agent: its manifest and what is known of it.

    ``rests_until`` is monotonic seconds (rate limited till then). ``smoothed_load``: share of its slots taken, at each
    heartbeat 0.7 new + 0.3 old. ``adapted``: the rate it is held to since it became slow. ``pace``: what its rate lets
    through.
    """

    manifest: Manifest
    breaker: Breaker
    roster: Roster = field(default_factory=Roster)
    rests_until: float = 0.0
    smoothed_load: float = 0.0
    adapted: AdaptiveRate = field(default_factory=AdaptiveRate)
    agent_id: str = field(init=False)
    pace: TokenBucket = field(init=False)

    def __post_init__(self) -> None:
        self.agent_id = self.manifest.id
        self.pace = TokenBucket.paced(self.manifest.rate)

    @property
    def rate(self) -> float | None:
        """Tasks per second over all routers, as it declares or as it is held to; ``None`` without a limit."""
        declared, adapted = self.manifest.rate, self.adapted.limit
        if declared is None or adapted is None:
            return adapted if declared is None else declared
        return min(declared, adapted)

    def declare(self, manifest: Manifest) -> None:
        """Take another manifest. What was taken of the rate stays taken, unless the rate is another one."""
        if manifest.rate != self.manifest.rate:
            self.pace = TokenBucket.paced(manifest.rate)
        self.manifest = manifest


@dataclass(frozen=True, slots=True)
class Offer:
    """One capability of one agent.

    ``schema`` is the input schema as canonical JSON: equal ones check a payload once. ``asks``: names of the fields that
    it describes, folded. ``key``: agent and capability. ``phase``: in which part of each step its record is read anew,
    of :data:`PHASES`.
    """

    agent: Agent
    capability: Capability
    schema: str
    asks: frozenset[str] = frozenset()
    key: tuple[str, str] = field(init=False)
    phase: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", (self.agent.agent_id, self.capability.id))
        object.__setattr__(self, "phase", crc32(repr(self.key).encode("utf-8", "surrogatepass")) % PHASES)


Load = tuple[int, int]
"""How much is under way at an agent, and the slots of its active instances."""
Medians = tuple[float | None, float | None]
"""Of the 50th and the 95th percentile of service times, in seconds."""


@dataclass(slots=True)
class Fleet:
    """The agents by id, and who offers which capability, in the order of their ids.

    ``routers`` is the number of live routers, this one included; ``rank`` how many of them come before it, by their ids.
    ``sessions``: the agent that a session's last task went to. ``utc_ahead``: UTC seconds minus monotonic seconds, as the
    router last saw them. ``personal``: names of fields that some manifest marks as personal data, folded. ``medians``: by
    capability and step of time, over its agents. ``may``: by capability and a task's wishes,
    for which of these offers they are open, see gates. ``boards``: by capability and policy, the scores of the last
    decision, see scoreboard. ``shared``: agents that give no head start now, see
    :meth:`share_slots`.
    """

    breaker_policy: BreakerPolicy
    slot_policy: SlotPolicy
    agents: dict[str, Agent] = field(default_factory=dict)
    by_capability: dict[str, tuple[Offer, ...]] = field(default_factory=dict)
    with_side_effects: set[str] = field(default_factory=set)
    leases: Leases = field(default_factory=Leases)
    record: TrackRecord = field(default_factory=TrackRecord)
    guesses: dict[str, str | None] = field(default_factory=dict)
    sessions: OrderedDict[str, str] = field(default_factory=OrderedDict)
    personal: frozenset[str] = frozenset()
    medians: dict[str, dict[float, Medians]] = field(default_factory=dict)
    may: dict[tuple[object, ...], Any] = field(default_factory=dict)
    boards: dict[str, dict[int, Any]] = field(default_factory=dict)
    shared: set[str] = field(default_factory=set)
    routers: int = 1
    rank: int = 0
    utc_ahead: float = 0.0

    def register(self, manifest: Manifest) -> Agent:
        """Add an agent, or replace its manifest; presence, breaker and record of a known one stay."""
        agent = self.agents.get(manifest.id)
        if agent is None:
            agent = self.agents[manifest.id] = Agent(manifest, Breaker(self.breaker_policy))
        for capability in agent.manifest.capabilities:
            self._offer(agent, capability.id, None)
        agent.declare(manifest)
        for capability in manifest.capabilities:
            self._offer(agent, capability.id, capability)
        self._index()
        return agent

    def withdraw(self, agent_id: str) -> None:
        """Forget an agent and what it offers; its record and its leases stay."""
        agent = self.agents.pop(agent_id)
        for capability in agent.manifest.capabilities:
            self._offer(agent, capability.id, None)
        self._index()

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

    def smooth_load(self, agent: Agent) -> None:
        """Take the agent's load into its smoothed one: 0.7 new + 0.3 old. Done at each of its heartbeats."""
        load = min(1.0, self.leases.held(agent.agent_id) / max(1, agent.roster.slots()))
        agent.smoothed_load = NEW_LOAD * load + (1.0 - NEW_LOAD) * agent.smoothed_load

    def last_in_session(self, session_id: str | None) -> str | None:
        """The agent that had the session's last task."""
        return None if session_id is None else self.sessions.get(session_id)

    def had_session(self, session_id: str, agent_id: str) -> None:
        """Note who has a session's task; the longest unused are forgotten."""
        self.sessions[session_id] = agent_id
        self.sessions.move_to_end(session_id)
        if len(self.sessions) > MOST_SESSIONS:
            self.sessions.popitem(last=False)

    def has_side_effects(self, capability: str) -> bool:
        """Any agent declares side effects for it."""
        return capability in self.with_side_effects

    def limit(self, agent: Agent, capability: str | None = None) -> int:
        """How much this router may have under way at the agent: its share of the slots, and a small head start.

        Fewer slots, and no head start, for a while after the agent's breaker has closed. None either while another of
        its capabilities waits that has none: it would never find a free slot.
        """
        slots = self.slots(agent)
        back = agent.breaker.slots(slots)
        if back < slots:
            return min(self.slot_policy.per_agent, back)
        return self.with_head_start(agent, slots, capability)

    def with_head_start(self, agent: Agent, slots: int, capability: str | None) -> int:
        """As :meth:`limit`, where all of the agent's slots are there."""
        if agent.agent_id in self.shared:
            return min(self.slot_policy.per_agent, slots)
        track = self.record.of(agent.agent_id, capability) if capability else None
        typical = track.service.p50 if track else None
        return min(self.slot_policy.per_agent, slots + head_start(slots, typical, self.slot_policy))

    def share_slots(self, waiting: Iterable[str]) -> None:
        """Tasks of these capabilities wait: agents where one of them has no head start give none to any other."""
        self.shared = set()
        self.shared = {
            offer.agent.agent_id
            for capability in waiting
            for offer in self.capable(capability)
            if self.limit(offer.agent, capability) <= self.slots(offer.agent)
        }

    def slots(self, agent: Agent) -> int:
        """This router's share of the agent's slots."""
        return share(agent.roster.slots(), self.routers)

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

    def until_rate(self, agent: Agent, now: float) -> float:
        """Seconds until the agent's rate lets the next task through, 0 if it does now. Live routers share the rate."""
        rate = agent.rate
        if rate is None:
            return 0.0
        agent.pace.pace(rate / max(1, self.routers))
        return agent.pace.seconds_to_next(now)

    def next_by_rate(self, now: float) -> float | None:
        """Seconds until the first agent that is at its rate may have a task again, ``None`` if none is."""
        paced = (agent for agent in self.agents.values() if agent.rate is not None)
        return min((left for agent in paced if (left := self.until_rate(agent, now)) > 0), default=None)

    def admits(self, agent: Agent, now: float) -> bool:
        """The agent's breaker lets a task through."""
        return isinstance(agent.breaker.admits(now), Admits)

    def _free(self, agent: Agent, capability: str, now: float) -> int:
        """Free slots of one agent; one where its breaker waits for the result of a single probe."""
        if now < agent.rests_until or agent.roster.state() is not PresenceState.ACTIVE:
            return 0
        if self.until_rate(agent, now) > 0:
            return 0
        match agent.breaker.admits(now):
            case Admits(probe):
                free = max(0, self.limit(agent, capability) - self.leases.held(agent.agent_id))
                if agent.rate is not None:
                    free = min(free, agent.pace.available(now))
                return min(1, free) if probe else free
            case _:
                return 0

    def _index(self) -> None:
        """Work out anew what follows from all manifests together."""
        self.guesses.clear()
        self.personal = marked(agent.manifest for agent in self.agents.values())

    def _offer(self, agent: Agent, capability_id: str, capability: Capability | None) -> None:
        """Enter what an agent offers under a capability, or strike it out (``None``)."""
        offers = [offer for offer in self.capable(capability_id) if offer.agent is not agent]
        if capability is not None:
            schema = json.dumps(capability.input_schema, sort_keys=True)
            offer = Offer(agent, capability, schema, asked_for(capability.input_schema))
            insort(offers, offer, key=lambda offer: offer.agent.agent_id)
        if offers:
            self.by_capability[capability_id] = tuple(offers)
        else:
            self.by_capability.pop(capability_id, None)
            self.boards.pop(capability_id, None)
        if any(offer.capability.side_effects for offer in offers):
            self.with_side_effects.add(capability_id)
        else:
            self.with_side_effects.discard(capability_id)
