"""The plan of faults: which, on whom, when and for how long. It follows from the seed alone."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from reach_worker.bench.chance import Chance
from reach_worker.chaos.draws import Draw, between, one_of, shuffle
from reach_worker.chaos.scale import AGENTS, ROUTERS, Scale


class FaultKind(StrEnum):
    """What can happen."""

    ROUTER_KILL = "router_kill"
    ROUTER_STOP = "router_stop"
    ROUTER_FREEZE = "router_freeze"
    ROUTER_CUT = "router_cut"
    ROUTER_BLACK_HOLE = "router_black_hole"
    ROUTER_SLOW = "router_slow"
    AGENT_KILL = "agent_kill"
    AGENT_STOP = "agent_stop"
    AGENT_FREEZE = "agent_freeze"
    AGENT_CUT = "agent_cut"
    AGENT_BLACK_HOLE = "agent_black_hole"
    AGENT_SLOW = "agent_slow"
    BROKER_KILL = "broker_kill"
    BROKER_RESTART = "broker_restart"
    CONNECTIONS_CLOSED = "connections_closed"
    MEMORY_ALARM = "memory_alarm"
    WRONG_PASSWORD = "wrong_password"  # noqa: S105 - the name of a fault
    QUEUE_DELETED = "queue_deleted"
    STORE_LOCKED = "store_locked"
    STORE_AWAY = "store_away"
    DISK_FULL = "disk_full"


BROKER: Final = "broker"
STORE: Final = "store"

IMPORTANT: Final = (
    FaultKind.QUEUE_DELETED,
    FaultKind.ROUTER_KILL,
    FaultKind.ROUTER_STOP,
    FaultKind.ROUTER_FREEZE,
    FaultKind.ROUTER_CUT,
    FaultKind.AGENT_KILL,
    FaultKind.AGENT_STOP,
    FaultKind.AGENT_FREEZE,
    FaultKind.AGENT_BLACK_HOLE,
    FaultKind.BROKER_KILL,
    FaultKind.CONNECTIONS_CLOSED,
    FaultKind.MEMORY_ALARM,
    FaultKind.STORE_LOCKED,
)
"""What happens in a short run, once each at least."""

LASTS_S: Final[Mapping[FaultKind, tuple[float, float]]] = {
    FaultKind.ROUTER_FREEZE: (2.0, 12.0),
    FaultKind.ROUTER_BLACK_HOLE: (3.0, 14.0),
    FaultKind.ROUTER_SLOW: (4.0, 8.0),
    FaultKind.AGENT_FREEZE: (2.0, 12.0),
    FaultKind.AGENT_BLACK_HOLE: (3.0, 14.0),
    FaultKind.AGENT_SLOW: (4.0, 8.0),
    FaultKind.MEMORY_ALARM: (2.0, 6.0),
    FaultKind.WRONG_PASSWORD: (2.0, 6.0),
    FaultKind.STORE_LOCKED: (2.0, 9.0),
    FaultKind.STORE_AWAY: (2.0, 6.0),
    FaultKind.DISK_FULL: (2.0, 6.0),
}
"""How long, seconds, at least and at most. What is not here is done in a moment."""
SHORT_LASTS_S: Final = 4.0
"""No fault of a short run lasts longer."""

APART_S: Final = 22.0
"""Between a deleted queue and a router that goes: what was in that queue, only the router still has in its memory."""

_OF_STORE: Final = frozenset({FaultKind.STORE_LOCKED, FaultKind.STORE_AWAY, FaultKind.DISK_FULL})
_DESTROYS: Final = frozenset({FaultKind.QUEUE_DELETED})
_FORGETS: Final = frozenset({FaultKind.ROUTER_KILL, FaultKind.ROUTER_STOP})


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. ``at_s`` counts from the first task.

    ``target``: a process, ``broker`` or ``store``; of a deleted queue the agent whose it is.
    """

    number: int
    kind: FaultKind
    target: str
    at_s: float
    lasts_s: float


def plan_faults(seed: int, scale: Scale) -> list[Fault]:
    """The faults of a run, in order. Each kind that the scale asks for is there."""
    draw = Chance("chaos", seed, "faults").draw
    wanted = tuple(FaultKind) if scale.every_kind else IMPORTANT
    count = max(scale.faults, len(wanted))
    step_s = scale.load_s / count
    kinds: list[FaultKind] = []
    while set(kinds) != set(wanted):  # an order may have no room for one that has to wait for others
        kinds = list(_in_order(_kinds(wanted, count, draw), step_s))
    return [
        _fault(number, kind, (number + between(0.1, 0.7, draw)) * step_s, scale, draw)
        for number, kind in enumerate(kinds)
    ]


def _kinds(wanted: Sequence[FaultKind], count: int, draw: Draw) -> list[FaultKind]:
    """Each once, then any; a deleted queue comes first, so that there is room for the others."""
    kinds = [*wanted, *(one_of(wanted, draw) for _ in range(count - len(wanted)))]
    shuffle(kinds, draw)
    if not all(kind is FaultKind.QUEUE_DELETED for kind in kinds):
        kinds.remove(FaultKind.QUEUE_DELETED)
        kinds.insert(0, FaultKind.QUEUE_DELETED)
    return kinds


def _in_order(kinds: Sequence[FaultKind], step_s: float) -> Iterator[FaultKind]:
    """The kinds, with those put off that may not come so soon after another."""
    left = list(kinds)
    last: dict[FaultKind, int] = {}
    slots = int(APART_S / step_s) + 2
    for number in range(len(kinds)):
        kind = next((each for each in left if _may(each, number, last, slots)), None)
        if kind is None:  # only those are left that have to wait: one more of what may always happen
            kind = FaultKind.CONNECTIONS_CLOSED
        else:
            left.remove(kind)
        last[kind] = number
        yield kind


def _may(kind: FaultKind, number: int, last: Mapping[FaultKind, int], slots: int) -> bool:
    others = _FORGETS if kind in _DESTROYS else _DESTROYS if kind in _FORGETS else frozenset()
    return all(other not in last or number - last[other] >= slots for other in others)


def _fault(number: int, kind: FaultKind, at_s: float, scale: Scale, draw: Draw) -> Fault:
    low, high = LASTS_S.get(kind, (0.0, 0.0))
    lasts_s = between(low, high if scale.every_kind else min(high, SHORT_LASTS_S), draw)
    return Fault(number, kind, _target(kind, draw), round(at_s, 3), round(lasts_s, 3))


def _target(kind: FaultKind, draw: Draw) -> str:
    if kind.startswith("router_"):
        return one_of(ROUTERS, draw)
    if kind.startswith("agent_") or kind is FaultKind.QUEUE_DELETED:
        return one_of(AGENTS, draw)
    return STORE if kind in _OF_STORE else BROKER


@dataclass(frozen=True, slots=True)
class Window:
    """When a fault was at work. Times are UTC microseconds; ``done`` is false where it could not be brought about."""

    kind: str
    target: str
    from_us: int
    to_us: int
    done: bool = True
    note: str = ""

    def __str__(self) -> str:
        how = "" if self.done else " (could not be done)"
        return f"{self.kind} of {self.target}, {self.from_us}–{self.to_us}{how} {self.note}".rstrip()
