"""A run that lasts: what becomes of its lease each time it comes back to the routers.

The broker takes a delivery away that is not acknowledged within its consumer timeout, and gives it to somebody else. So
a worker parks a copy of what has run for half that time on a rung of the retry ladder, confirmed, and acknowledges the
original. The copy is the lease. When it comes back (rung → ``returns``), then, by what the router knows::

    the dispatch is settled, or its task has gone on    → let go
    an instance that was heard lately lists it          → parked again, for LEASE_S
    its instance is silent, and not known to be dead    → parked again, for DOUBT_S
    its instance is dead, since DOUBT_S or longer       → given up
    its instance lives and does not list it any more    → parked again, for DOUBT_S; given up once that was so for
    nobody here has ever heard of its instance            suspect_s + dead_s

An instance lists a dispatch until the broker has confirmed its outcome, so where it does not any more the outcome is in
its owner's queue and only has to be read. What is given up is told through that same queue, behind it. A lease is never
let go before its dispatch is settled: the task is either on its rung or in an outcome, or in both.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from reach_worker.core.envelope import Envelope
from reach_worker.core.outcome import OutcomeClass
from reach_worker.core.presence import THERE, Instance, PresencePolicy, PresenceState, Roster

LEASE_S: Final = 15.0
"""So often a lease comes back while all is well: whoever dies with a long task is found out within this time. A rung."""
DOUBT_S: Final = 8.0
"""So soon it comes back where that is in doubt. Longer than a cut connection takes to come back. A rung."""


class Sight(StrEnum):
    """What can be seen of a run."""

    RUNS = "it runs"
    SILENT = "its instance is silent"
    ENDED = "its instance has ended it"
    GONE = "its instance is dead"
    UNKNOWN = "its instance was never heard"


@dataclass(frozen=True, slots=True)
class Park:
    """Put the lease on a rung again. ``doubts``: how often in a row nobody could say that it runs."""

    delay_s: float
    doubts: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """No outcome will come. ``crashed``: its process is gone."""

    crashed: bool


def sight_of(
    roster: Roster | None, instance_id: str, dispatch_id: str, now: float, policy: PresencePolicy
) -> Sight:
    """What the heartbeats say of a run of this instance, at ``now`` (monotonic seconds)."""
    instances = {} if roster is None else roster.instances
    listing = [one for one in instances.values() if dispatch_id in _running(one) and _there(one, now, policy)]
    if listing:
        silent = all(one.state is PresenceState.SUSPECT for one in listing)
        return Sight.SILENT if silent else Sight.RUNS
    instance = instances.get(instance_id)
    if instance is None:
        return Sight.UNKNOWN
    if not _there(instance, now, policy):
        return Sight.GONE
    return Sight.SILENT if instance.state is PresenceState.SUSPECT else Sight.ENDED


def after(sight: Sight, doubts: int, policy: PresencePolicy) -> Park | GiveUp:
    """What becomes of a lease. ``doubts``: those that it came back with."""
    if sight in (Sight.RUNS, Sight.SILENT):
        return Park(LEASE_S if sight is Sight.RUNS else DOUBT_S, 0)
    patience = DOUBT_S if sight is Sight.GONE else policy.suspect_s + policy.dead_s
    if doubts * DOUBT_S >= patience:
        return GiveUp(crashed=sight is not Sight.ENDED)
    return Park(DOUBT_S, doubts + 1)


def lost(envelope: Envelope) -> Envelope:
    """The task of a run whose process is gone: from the second time on it runs alone, for it may be what kills.

    Not from the first: an instance that runs one long task alone does nothing else for long.
    """
    before = any(attempt.outcome is OutcomeClass.UNAVAILABLE for attempt in envelope.attempts)
    return replace(envelope, crashes=envelope.crashes + 1) if before else envelope


def _running(instance: Instance) -> tuple[str, ...]:
    return () if instance.beat is None else instance.beat.running


def _there(instance: Instance, now: float, policy: PresencePolicy) -> bool:
    """Not known to be gone. One that has said goodbye gets no work, and goes on with what it has until it is silent."""
    if instance.state in THERE:
        return True
    stopping = instance.beat is not None and instance.beat.stopping
    return stopping and now - instance.heard_at < policy.suspect_s + policy.dead_s
