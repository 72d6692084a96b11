"""Is an instance there? Judged from its heartbeats by the router's own monotonic clock.

Transitions (state, what happened → state, what to do)::

    PENDING  heard                                   → ACTIVE
    ACTIVE   silent for suspect_s                    → SUSPECT, probe
    ACTIVE   runs something, none done for too long  → STALLED, tell it to stop consuming
    STALLED  heard, something was done               → ACTIVE, tell it to go on
    STALLED  heard, nothing runs any more            → ACTIVE, tell it to go on
    STALLED  still so, one heartbeat period on       → STALLED, tell it again
    STALLED  silent for suspect_s                    → SUSPECT, probe
    SUSPECT  heard                                   → ACTIVE (STALLED if it was that, and nothing was done since)
    SUSPECT  still silent, one heartbeat period on   → SUSPECT, probe again
    SUSPECT  so for dead_s, still silent             → DEAD      (every probe since went unanswered)
    SUSPECT  probe unroutable                        → DEAD      (its private queue is gone, so its connection is;
                                                                  not a queue from before the router's own session)
    DEAD     heard                                   → ACTIVE
    any      said goodbye                            → DEAD

One lost heartbeat moves nobody. An unroutable probe is proof, not silence: the instance's private queue lives exactly
as long as its connection, so a killed process is known after ``suspect_s`` instead of ``suspect_s + dead_s``. Death is
counted from the suspicion, not from the last heartbeat: a router that was itself asleep gives everybody time to answer.

Alive is not able: heartbeats also count what the instance has completed. "Too long" is ``stalled_s``, or the longest
time-out of what it runs. An instance that does not count is never stalled. All times are the router's.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from pydantic import BaseModel, ConfigDict, Field


class PresencePolicy(BaseModel):
    """When an agent's instance counts as there."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    heartbeat_s: float = Field(3.0, gt=0, le=60, description="seconds between heartbeats of an instance")
    suspect_s: float = Field(
        9.0, gt=0, le=600, description="silence after which it gets no new tasks, and a probe"
    )
    dead_s: float = Field(
        30.0, gt=0, le=3600, description="further silence, probes unanswered, after which it is dead"
    )
    stalled_s: float = Field(
        120.0,
        gt=0,
        le=86_400,
        description="something runs and nothing is completed for so long: no new tasks",
    )
    newcomers_s: float = Field(
        6.0,
        ge=0,
        le=600,
        description="a router that knew no agent at its start takes no task until no new one came for so long",
    )


class PresenceState(StrEnum):
    """What the router believes of an instance."""

    PENDING = "pending"
    ACTIVE = "active"
    STALLED = "suspect: stalled"
    SUSPECT = "suspect"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What an instance says of itself, every ``heartbeat_s``.

    ``completed``: runs that have ended in its life, however they ended; ``None`` if it does not count them.
    ``consuming``: whether it takes dispatches now; ``None`` if it does not say.
    """

    agent_id: str
    instance_id: str
    mailbox: str
    capacity: int
    running: tuple[str, ...]
    manifest_hash: str
    version: str
    stopping: bool
    completed: int | None = None
    consuming: bool | None = None


_ACTIVE: Final = PresenceState.ACTIVE
"""Asked for of every agent in every decision: of the enumeration itself that takes five times as long."""


@dataclass(slots=True)
class Instance:
    """One running process of an agent, as the router sees it.

    ``progress_at``: when it last had completed something, or had nothing to do. ``paused``: it was told to stop
    consuming, and not yet to go on; ``told_at``: when. ``mailbox_known``: it named its private queue in the broker
    session that is alive now; those of earlier ones may be gone while it lives.
    """

    agent_id: str
    instance_id: str
    state: PresenceState = PresenceState.PENDING
    heard_at: float = 0.0
    suspected_at: float = 0.0
    probed_at: float = 0.0
    beat: Heartbeat | None = None
    progress_at: float = 0.0
    paused: bool = False
    told_at: float = 0.0
    mailbox_known: bool = True

    def session_began(self, now: float) -> None:
        """The router's own session is new: silence from before says nothing, nor does a queue from before."""
        self.heard_at = max(self.heard_at, now)
        self.progress_at = max(self.progress_at, now)
        self.mailbox_known = False

    def heard(self, beat: Heartbeat, now: float) -> bool:
        """Take a heartbeat; returns whether the state changed."""
        before = self.state
        progress = self._progressed(beat)
        if progress:
            self.progress_at = now
        self.heard_at = now
        self.mailbox_known = True
        self.beat = beat
        alive = PresenceState.STALLED if self.paused and not progress else PresenceState.ACTIVE
        self.state = PresenceState.DEAD if beat.stopping else alive
        return self.state is not before

    def _progressed(self, beat: Heartbeat) -> bool:
        """It completed something since its last heartbeat, or has nothing to do, or nobody can tell."""
        if self.beat is None or beat.completed is None or self.state is PresenceState.DEAD:
            return True
        return not beat.running or beat.completed != self.beat.completed

    def goes_on(self) -> bool:
        """It was told to stop consuming, and need not any more; says so once."""
        goes_on = self.paused and self.state is PresenceState.ACTIVE
        self.paused = self.paused and not goes_on
        return goes_on

    def probe_unroutable(self) -> bool:
        """Its private queue is gone; returns whether that made it dead."""
        if self.state is not PresenceState.SUSPECT or not self.mailbox_known:
            return False
        self.state = PresenceState.DEAD
        return True


@dataclass(frozen=True, slots=True)
class Probe:
    """Send a probe to this instance's private queue."""

    instance_id: str
    mailbox: str


@dataclass(frozen=True, slots=True)
class Died:
    """This instance is dead now: what it was running comes back, what waits for it is taken back."""

    instance_id: str


@dataclass(frozen=True, slots=True)
class Pause:
    """Tell this instance to stop consuming: ``running`` dispatches run, none was completed for ``seconds``.

    ``again``: it was told before, and a message may be lost.
    """

    instance_id: str
    mailbox: str
    running: int
    seconds: float
    again: bool = False


def tick(
    instance: Instance, now: float, policy: PresencePolicy, longest_s: float = 0.0
) -> Probe | Pause | Died | None:
    """Let time pass for one instance. ``longest_s``: the longest time-out of what it runs, as far as is known."""
    silent = now - instance.heard_at
    mailbox = instance.beat.mailbox if instance.beat else ""
    if instance.state in HEARD:
        if silent < policy.suspect_s:
            return _stall(instance, now, policy, longest_s)
        instance.state = PresenceState.SUSPECT
        instance.suspected_at = instance.probed_at = now
        return Probe(instance.instance_id, mailbox)
    if instance.state is not PresenceState.SUSPECT:
        return None
    if silent >= policy.suspect_s + policy.dead_s and now - instance.suspected_at >= policy.dead_s:
        instance.state = PresenceState.DEAD
        return Died(instance.instance_id)
    if now - instance.probed_at >= policy.heartbeat_s:
        instance.probed_at = now
        return Probe(instance.instance_id, mailbox)
    return None


def _stall(instance: Instance, now: float, policy: PresencePolicy, longest_s: float) -> Pause | None:
    """Whether an instance that is heard gets nothing done. Its heartbeat may be late in saying that it does."""
    beat = instance.beat
    if beat is None or not beat.running or beat.completed is None:
        return None
    idle_s, again = now - instance.progress_at, instance.state is PresenceState.STALLED
    if not again:
        if idle_s < max(policy.stalled_s, longest_s + policy.heartbeat_s):
            return None
        instance.state = PresenceState.STALLED
        instance.paused = True
    elif now - instance.told_at < policy.heartbeat_s:
        return None
    instance.told_at = now
    return Pause(instance.instance_id, beat.mailbox, len(beat.running), idle_s, again)


HEARD: Final = frozenset((PresenceState.ACTIVE, PresenceState.STALLED))
"""Heard lately."""
THERE: Final = HEARD | {PresenceState.SUSPECT}
"""Not known to be gone."""
_RANK: Final = {
    PresenceState.ACTIVE: 4,
    PresenceState.STALLED: 3,
    PresenceState.SUSPECT: 2,
    PresenceState.DEAD: 1,
    PresenceState.PENDING: 0,
}
REMEMBERED: Final = 10
"""A dead instance is remembered for so many times the silence that makes one dead."""


@dataclass(slots=True)
class Roster:
    """The instances of one agent."""

    instances: dict[str, Instance] = field(default_factory=dict)

    def state(self) -> PresenceState:
        """The most alive state any instance is in; pending where none was ever heard."""
        best = PresenceState.PENDING
        for instance in self.instances.values():
            if instance.state is PresenceState.ACTIVE:
                return PresenceState.ACTIVE
            best = max(best, instance.state, key=_RANK.__getitem__)
        return best

    def slots(self) -> int:
        """Slots that the active instances offer together."""
        slots = 0
        for instance in self.instances.values():
            if instance.state is _ACTIVE and (beat := instance.beat) is not None:
                slots += beat.capacity
        return slots

    def forget(self, now: float, policy: PresencePolicy) -> None:
        """Drop instances that have been dead for long: their names never come again, and nobody asks for their work."""
        limit = now - REMEMBERED * (policy.suspect_s + policy.dead_s)
        gone = [
            i.instance_id
            for i in self.instances.values()
            if i.state is PresenceState.DEAD and i.heard_at < limit
        ]
        for instance_id in gone:
            del self.instances[instance_id]

    def stalled(self, now: float) -> tuple[int, float]:
        """Dispatches that the stalled instances run, and seconds since any of them completed one."""
        stalled = [i for i in self.instances.values() if i.state is PresenceState.STALLED]
        running = sum(len(i.beat.running) for i in stalled if i.beat is not None)
        return running, min((now - i.progress_at for i in stalled), default=0.0)

    def silent_for(self, now: float) -> float | None:
        """Seconds since any instance was heard, ``None`` if never."""
        heard = [instance.heard_at for instance in self.instances.values() if instance.beat is not None]
        return now - max(heard) if heard else None

    def last_running(self) -> set[str]:
        """Dispatch ids that the instances said they run, in their last heartbeats."""
        beats = (instance.beat for instance in self.instances.values() if instance.beat is not None)
        return {dispatch for beat in beats for dispatch in beat.running}
