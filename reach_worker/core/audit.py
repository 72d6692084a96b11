"""Where every task is that has not ended: what the store last wrote of it, against what the broker holds now.

Nobody may look into a live queue (looking marks what it saw as delivered before), so most places are known by
their counts alone. A task that has not ended is, by the store's last word of it:

- parked: its message is in `unmatched`, where one may look; else a person assigned it, and it waits.
- out: a dispatch of it has no outcome. An instance says that it runs it; or it is young enough to be on its way,
  while there is anybody who could have it in hand; or a message of it waits in the agent's queue, or further on.
- waiting: in its capability's lane, on a rung, on the way back, or in a live router's window, which holds none long.

A place that holds n messages explains n tasks, the newest: what came first should have left first. Tasks that no
place is left for are suspects. Whoever asks looks again: what has moved meanwhile is none. This finds no orphan
behind other tasks' messages; in a system at rest it finds every one.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

Key = tuple[str, int]
"""A task id and which of its lives."""

_SECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class OpenLife:
    """A life of a task without an end, as the store has it. Times are UTC microseconds.

    ``dispatch_id``, ``agent_id``, ``dispatched_at``: of the dispatch that is out; without one the id is ``None``.
    ``router``: who dispatched it last, or took it. ``traced_at``: the last time that anything was written of it.
    ``parked``: nobody could take it. ``only_late``: nothing is known of it but an outcome that came too late.
    ``began_anew``: a later life of the same task is known.
    """

    task_id: str
    life: int
    capability: str
    router: str
    first_seen: int
    traced_at: int
    dispatch_id: str | None = None
    agent_id: str = ""
    attempt: int = 0
    dispatched_at: int = 0
    parked: bool = False
    only_late: bool = False
    began_anew: bool = False

    @property
    def key(self) -> Key:
        """Which life of which task."""
        return self.task_id, self.life

    @property
    def out(self) -> bool:
        """A dispatch of it has no outcome yet."""
        return self.dispatch_id is not None and not self.parked

    @property
    def position(self) -> tuple[object, ...]:
        """Stays the same as long as the task has not moved on."""
        return self.task_id, self.life, self.dispatch_id, self.parked, self.traced_at


@dataclass(frozen=True, slots=True)
class Held:
    """What the broker and those who live say that they hold: messages by capability, agent, router, or other queue.

    What waits in ``intake`` has not been accepted, but for one kind: a task with ``side_effects`` (capabilities that
    declare them) is recorded before it is sent, so its message may be there still.
    ``running``: dispatch ids, each with the instance that says it runs it. ``able``: agents that are there: an
    instance was heard, or their queue has a consumer; ``busy``: those that run something. ``routers``: how many are
    there. ``unmatched``, ``letters``: which lives have a message there; ``None`` if nobody could look.
    """

    lanes: Mapping[str, int] = field(default_factory=dict)
    agents: Mapping[str, int] = field(default_factory=dict)
    outcomes: Mapping[str, int] = field(default_factory=dict)
    elsewhere: Mapping[str, int] = field(default_factory=dict)
    intake: int = 0
    side_effects: Collection[str] = ()
    running: Mapping[str, str] = field(default_factory=dict)
    able: Collection[str] = ()
    busy: Collection[str] = ()
    routers: int = 0
    unmatched: Collection[Key] = ()
    letters: Collection[Key] = ()


@dataclass(frozen=True, slots=True)
class Patience:
    """How long what is seen can be explained. Seconds.

    ``out_s``: a dispatch beside its own limit: pick-up, backstop, and what a router adds that could not hear.
    ``attempt_s``: the limit of an attempt that nothing declares; ``declared_s``: by agent and capability.
    ``waiting_s``: from an outcome to its task's lane: the longest rung and the longest hold. ``window``: tasks that
    a router holds at most.
    """

    out_s: float
    attempt_s: float
    waiting_s: float
    window: int
    declared_s: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def out_until(self, life: OpenLife, *, busy: bool) -> int:
        """When a dispatch is overdue. It may wait inside an instance until the longest run beside it has ended."""
        own_s = self.declared_s.get((life.agent_id, life.capability), self.attempt_s)
        others = (seconds for (agent, _), seconds in self.declared_s.items() if agent == life.agent_id)
        beside_s = max(others, default=self.attempt_s) if busy else 0.0
        return life.dispatched_at + int((self.out_s + own_s + beside_s) * _SECOND)


@dataclass(slots=True)
class Placed:
    """Tasks that are accounted for, by place; and those that are not."""

    waiting: Counter[str] = field(default_factory=Counter)
    suspects: list[OpenLife] = field(default_factory=list)


def place(lives: Iterable[OpenLife], held: Held, patience: Patience, now_us: int) -> Placed:
    """Find a place for every life that has not ended."""
    found = Placed()
    out: list[OpenLife] = []
    loose: list[OpenLife] = []
    for life in lives:
        known = _certain(life, held) or _on_its_way(life, held, patience, now_us)
        if known is not None:
            found.waiting[known] += 1
        else:
            (out if life.out else loose).append(life)
    out = _fill_each(found, "queue of agent", out, attrgetter("agent_id"), held.agents)
    out = _fill_each(found, "outcomes of router", out, attrgetter("router"), held.outcomes)
    recorded_first = [one for one in out if one.attempt <= 1 and one.capability in held.side_effects]
    unsent = _fill(found, "intake", held.intake, recorded_first)
    out = [*unsent, *(one for one in out if one not in recorded_first)]
    loose = _fill_each(found, "lane of", loose, attrgetter("capability"), held.lanes)
    young = [one for one in loose if _in_a_window(one, patience, now_us)]
    old = [one for one in loose if not _in_a_window(one, patience, now_us)]
    rest = [*out, *old]
    for name, ready in held.elsewhere.items():
        left = _fill(found, name, ready, rest)
        young = _fill(found, name, ready - len(rest) + len(left), young)
        rest = left
    young = _fill(found, "a router's window", held.routers * patience.window, young)
    found.suspects = sorted([*rest, *young], key=_age)
    return found


def _certain(life: OpenLife, held: Held) -> str | None:
    """Where it is for certain, ``None`` if only counts can tell."""
    if life.key in held.letters:
        return "dlq, its end is not recorded"
    if life.began_anew:
        return "began anew, its end was not recorded"
    if life.only_late:
        return "unknown but for a late outcome"
    if life.parked and life.key in held.unmatched:
        return "unmatched"
    if life.dispatch_id in held.running:
        return f"running at agent {life.agent_id}"
    return None


def _on_its_way(life: OpenLife, held: Held, patience: Patience, now_us: int) -> str | None:
    """With whom a dispatch may still be, as long as there is anybody who could have it."""
    if not life.out or (life.agent_id not in held.able and not held.routers):
        return None
    overdue = now_us >= patience.out_until(life, busy=life.agent_id in held.busy)
    return None if overdue else f"on its way through agent {life.agent_id}"


def _in_a_window(life: OpenLife, patience: Patience, now_us: int) -> bool:
    """It may wait with a router: that holds none long, and then writes that it went to its lane."""
    until = life.traced_at + int(patience.waiting_s * _SECOND)
    return not life.out and not life.parked and now_us < until


def _fill_each(
    found: Placed,
    name: str,
    lives: Iterable[OpenLife],
    whose: Callable[[OpenLife], str],
    room: Mapping[str, int],
) -> list[OpenLife]:
    """Fill one place for each agent, capability or router; those for whom there is no room."""
    groups: defaultdict[str, list[OpenLife]] = defaultdict(list)
    for life in lives:
        groups[whose(life)].append(life)
    left: list[OpenLife] = []
    for owner, theirs in groups.items():
        left += _fill(found, f"{name} {owner}", room.get(owner, 0), theirs)
    return left


def _fill(found: Placed, name: str, room: int, lives: Sequence[OpenLife]) -> list[OpenLife]:
    """Put as many as there is room for into a place, the newest; the others."""
    oldest_first = sorted(lives, key=_age)
    left = max(0, len(lives) - room)
    if len(lives) > left:
        found.waiting[name] += len(lives) - left
    return oldest_first[:left]


def _age(life: OpenLife) -> tuple[int, str, int]:
    return life.traced_at, life.task_id, life.life


@dataclass(frozen=True, slots=True)
class Orphan:
    """A task that was accepted and is nowhere. ``where``: the last that is known; ``advice``: what to do."""

    task_id: str
    life: int
    where: str
    since: int
    advice: str


def orphan(life: OpenLife, intake: int = 0) -> Orphan:
    """Name a task that no place is left for. ``intake``: messages there, which nobody may look into."""
    if life.parked:
        where = "it was parked as unmatched, and its message is not there; no other place holds it either"
    elif life.out:
        where = (
            f"dispatch {life.dispatch_id}, attempt {life.attempt}, went from router {life.router} to agent "
            f"{life.agent_id}; no instance says that it runs it, and nothing waits that could be it"
        )
        if intake and life.attempt <= 1:
            where += f", unless it was published with side effects: {intake} messages are in intake"
    else:
        where = (
            f"it waits for {life.capability or 'an agent'}, last with router {life.router or 'unknown'}; lane, rungs, "
            "returns and routers hold fewer tasks than wait"
        )
    advice = (
        f"see `reach explain {life.task_id}`; publish it again under another id: this one counts as under way"
    )
    return Orphan(life.task_id, life.life, where, life.traced_at, advice)


def still(suspects: Iterable[OpenLife], before: Collection[tuple[object, ...]] | None) -> list[OpenLife]:
    """Those that were suspects in every look so far and have not moved; ``before``: their positions."""
    return [one for one in suspects if before is None or one.position in before]
