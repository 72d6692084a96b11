"""How much an agent may have at once: slots of its live instances, counted from leases that exist."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from reach_worker.core.value import value

MOST_AHEAD: Final = 4


class SlotPolicy(BaseModel):
    """How much may be on its way to agents at once."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    in_flight: int = Field(200, ge=1, le=100_000, description="dispatches under way in all, per router")
    per_agent: int = Field(80, ge=1, le=100_000, description="dispatches under way per agent, per router")
    in_flight_bytes: int = Field(
        256 * 1024 * 1024, ge=1024 * 1024, description="bytes of task bodies held for dispatches under way"
    )
    adaptive_rate: bool = Field(
        default=True,
        description="an agent that takes twice its usual time gets fewer tasks a second, until it is well again",
    )
    head_start_s: float = Field(
        0.05,
        ge=0,
        le=5,
        description="work sent ahead of a free slot: what the agent finishes in this time (one way through the broker)",
    )


@value(frozen=True, slots=True)
class Lease:
    """One slot held by one dispatch. Times are monotonic seconds of the router; ``timeout_s`` is the attempt's limit."""

    dispatch_id: str
    agent_id: str
    task_id: str
    since: float
    backstop_at: float
    size: int
    probe: bool
    timeout_s: float = 0.0


@dataclass(slots=True)
class Leases:
    """The leases there are. A slot is taken while its lease is here and free when it is not; nobody counts up or down.

    ``size``: bytes of the task bodies that the leases stand for.
    """

    by_dispatch: dict[str, Lease] = field(default_factory=dict)
    by_agent: dict[str, set[str]] = field(default_factory=dict)
    size: int = 0

    def add(self, lease: Lease) -> None:
        """Take a slot; a second lease for one dispatch is our bug."""
        if lease.dispatch_id in self.by_dispatch:
            raise ValueError(f"dispatch {lease.dispatch_id} already holds a slot")
        self.by_dispatch[lease.dispatch_id] = lease
        self.by_agent.setdefault(lease.agent_id, set()).add(lease.dispatch_id)
        self.size += lease.size

    def release(self, dispatch_id: str) -> Lease | None:
        """Give a slot back; ``None`` if there is no such lease (it was given back before)."""
        lease = self.by_dispatch.pop(dispatch_id, None)
        if lease is not None:
            self.size -= lease.size
            of_agent = self.by_agent[lease.agent_id]
            of_agent.discard(dispatch_id)
            if not of_agent:
                del self.by_agent[lease.agent_id]
        return lease

    def postpone(self, until: float) -> None:
        """Give none up before that: nothing could be heard of them meanwhile."""
        for dispatch_id, lease in self.by_dispatch.items():
            if lease.backstop_at < until:
                self.by_dispatch[dispatch_id] = replace(lease, backstop_at=until)

    def put_off(self, dispatch_id: str, until: float) -> bool:
        """Do not give this one up before that; ``False`` if there is no such lease."""
        lease = self.by_dispatch.get(dispatch_id)
        if lease is not None:
            self.by_dispatch[dispatch_id] = replace(lease, backstop_at=until)
        return lease is not None

    def held(self, agent_id: str) -> int:
        """Slots of the agent that are taken."""
        return len(self.by_agent.get(agent_id, ()))

    def longest_s(self, dispatch_ids: Iterable[str], unknown_s: float) -> float:
        """The longest limit of these attempts, seconds; each that no lease here tells of counts as ``unknown_s``."""
        leases = (self.by_dispatch.get(dispatch_id) for dispatch_id in dispatch_ids)
        return max(
            (lease.timeout_s if lease and lease.timeout_s else unknown_s for lease in leases), default=0.0
        )

    def __len__(self) -> int:
        return len(self.by_dispatch)


def share(slots: int, routers: int) -> int:
    """What one of ``routers`` live routers may bind of an agent's ``slots``: max(1, ⌈slots / routers⌉), 0 of 0."""
    if slots <= 0:
        return 0
    return max(1, -(-slots // max(1, routers)))


def head_start(slots: int, service_s: float | None, policy: SlotPolicy) -> int:
    """Tasks sent ahead of a free slot.

    Little's law: the agent finishes ``slots / service_s`` tasks a second, so this many are done while one travels.
    Nothing is sent ahead to an agent whose service time is not known, and at most :data:`MOST_AHEAD` for each slot.
    """
    if slots <= 0 or service_s is None:
        return 0
    ahead = slots * policy.head_start_s / max(service_s, 1e-6)
    return min(slots * MOST_AHEAD, int(ahead), policy.per_agent)
