"""The decision: which agent gets a task, or that it waits, or that nobody may have it."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import islice, pairwise
from typing import Any, Final, TypeVar, overload

from reach_worker.core.exploration import exploration_draw, explores, pick, probabilities
from reach_worker.core.fleet import Fleet, Offer
from reach_worker.core.gates import (
    NEVER,
    OPEN,
    Ask,
    GateKind,
    Verdict,
    all_verdicts,
    excluded,
    fallback,
    in_doubt,
    judge,
)
from reach_worker.core.open_share import all_open
from reach_worker.core.policy import RoutingPolicy, TieBreak
from reach_worker.core.scoreboard import Field, scoreboard
from reach_worker.core.scoring import TIE, Scene, Scored, loads_of, place_of
from reach_worker.core.value import value

T = TypeVar("T")
S = TypeVar("S")
_Closed = tuple[Verdict, ...]

MOST_NAMED: Final = 5
"""Agents that are named for one reason, and reasons that are told of one decision; the others are only counted."""


@value(frozen=True, slots=True)
class Candidate:
    """One agent that has the capability: the gates closed to it, and its score if there are none.

    ``probability``: how likely this decision was to choose it, exploration included; 0 behind a closed gate.
    """

    agent_id: str
    closed: tuple[Verdict, ...]
    scored: Scored | None = None
    probability: float = 0.0

    @property
    def score(self) -> float | None:
        """The score, ``None`` behind a closed gate."""
        return None if self.scored is None else self.scored.score

    @property
    def eligible(self) -> bool:
        """All gates are open."""
        return not self.closed

    @property
    def gates(self) -> tuple[Verdict, ...]:
        """Every gate's verdict, in the order people read them."""
        return all_verdicts(self.closed)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for the reach log."""
        scored = self.scored
        return {
            "probability": self.probability,
            "agent": self.agent_id,
            "score": self.score,
            "gates": {**_ALL_OPEN, **{verdict.gate: verdict.reason for verdict in self.closed}},
            **(scored.as_dict() if scored else NO_SCORE),
        }


class Lineup(Sequence[Candidate]):
    """The candidates of a decision, in the order of their ids, each put together when it is looked at.

    ``names``, ``closed``, ``scored`` and ``shares`` (the probabilities) hold what there is of each.
    """

    __slots__ = ("closed", "names", "scored", "shares")

    def __init__(
        self,
        names: Sequence[str],
        closed: Sequence[tuple[Verdict, ...]],
        scored: Sequence[Scored | None],
        shares: Sequence[float],
    ) -> None:
        self.names, self.closed, self.scored, self.shares = names, closed, scored, shares

    @classmethod
    def of(cls, candidates: Sequence[Candidate]) -> "Lineup":
        """The same candidates as a lineup."""
        return cls(
            [one.agent_id for one in candidates],
            [one.closed for one in candidates],
            [one.scored for one in candidates],
            [one.probability for one in candidates],
        )

    def __len__(self) -> int:
        return len(self.names)

    @overload
    def __getitem__(self, place: int) -> Candidate: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Candidate, ...]: ...
    def __getitem__(self, place: int | slice) -> Candidate | tuple[Candidate, ...]:
        if isinstance(place, slice):
            return tuple(self)[place]
        return Candidate(self.names[place], self.closed[place], self.scored[place], self.shares[place])

    def __iter__(self) -> Iterator[Candidate]:
        return map(Candidate, self.names, self.closed, self.scored, self.shares)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self.names))

    def __repr__(self) -> str:
        return repr(tuple(self))


@value(frozen=True, slots=True)
class Chosen:
    """This agent gets the task.

    ``margin``: its lead over the best other, ``None`` if there was no other; below 0 where exploration chose another than
    the best (``explored``: the draw fell into the exploring share). ``probability``: of just this choice.
    """

    agent_id: str
    score: float
    margin: float | None
    probability: float
    explored: bool


@value(frozen=True, slots=True)
class Wait:
    """Somebody may have it, nobody can take it now."""

    reason: str


@value(frozen=True, slots=True)
class Unmatched:
    """No known manifest could ever take it."""

    reason: str


@value(frozen=True, slots=True)
class PayloadRefused:
    """The payload fits no agent's input schema."""

    reason: str


Choice = Chosen | Wait | Unmatched | PayloadRefused


@value(frozen=True, slots=True)
class Decision:
    """A choice and everything behind it."""

    task_id: str
    capability: str
    policy: str
    choice: Choice
    candidates: Sequence[Candidate]
    exploration: float = 0.0
    draw: float = 0.0
    ties: TieBreak = "name"

    @property
    def agent_id(self) -> str | None:
        """The chosen agent."""
        return self.choice.agent_id if isinstance(self.choice, Chosen) else None

    @property
    def verdict(self) -> str:
        """The kind of choice, one word: ``chosen``, ``wait``, ``unmatched`` or ``payload_refused``."""
        return VERDICTS[type(self.choice)]

    def summary(self) -> dict[str, Any]:
        """The choice and everybody's score: what is kept of a shadow's decision."""
        return {
            "policy": self.policy,
            "verdict": self.verdict,
            **_choice_dict(self.choice),
            "scores": {c.agent_id: c.score for c in self.candidates if c.score is not None},
        }

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for the reach log and ``--json``: all that is needed to work the choice out again."""
        return {**self.head(), "candidates": [candidate.as_dict() for candidate in self.candidates]}

    def head(self) -> dict[str, Any]:
        """All of it but the candidates."""
        return {
            "task": self.task_id,
            "capability": self.capability,
            "policy": self.policy,
            "verdict": self.verdict,
            **_choice_dict(self.choice),
            "exploration": self.exploration,
            "draw": self.draw,
            "ties": self.ties,
        }


VERDICTS: Final[Mapping[type, str]] = {
    Chosen: "chosen",
    Wait: "wait",
    Unmatched: "unmatched",
    PayloadRefused: "payload_refused",
}


_ALL_OPEN: Final[Mapping[str, bool | str]] = {verdict.gate: True for verdict in OPEN}
NO_SCORE: Final[Mapping[str, Any]] = {
    "dimensions": [],
    "factors": [],
    "bonus": 0.0,
    "optimistic": None,
    "facts": {},
}


def _choice_dict(choice: Choice) -> dict[str, Any]:
    if not isinstance(choice, Chosen):
        return {"reason": choice.reason}
    return {
        "agent": choice.agent_id,
        "score": choice.score,
        "margin": choice.margin,
        "probability": choice.probability,
        "explored": choice.explored,
    }


def plan(ask: Ask, fleet: Fleet, policy: RoutingPolicy, now: float) -> Decision:
    """Choose an agent for a task at ``now`` (monotonic seconds). Two plans of one fleet for one task are equal."""
    offers = fleet.capable(ask.capability)
    loads = loads_of(offers, fleet)
    closed = _hold_fallbacks(ask, offers, _judged(ask, offers, loads, fleet, now), policy)
    closed = _step_back(ask, offers, closed)
    draw = exploration_draw(policy.seed, ask.task_id, ask.attempt)
    choice: Choice
    if all(closed):
        names = [offer.agent.agent_id for offer in offers]
        candidates = Lineup(names, closed, [None] * len(offers), [0.0] * len(offers))
        choice = _nobody(ask, candidates, fleet, now)
    else:
        scene = Scene(ask, fleet, offers, now, policy)
        board = scoreboard(scene)
        field = board.field(scene, loads, closed)
        choice, shares = _choose(field, ask.task_id, policy, draw)
        scored = _aligned(field.scored, closed, None)
        candidates = Lineup(board.names, closed, scored, _aligned(shares, closed, 0.0))
    return Decision(
        ask.task_id, ask.capability, policy.name, choice, candidates, policy.exploration, draw, policy.ties
    )


def _nobody(ask: Ask, candidates: Lineup, fleet: Fleet, now: float) -> Choice:
    if not candidates:
        return Unmatched(_nobody_has(ask.capability, fleet))
    choice = _why_not(candidates)
    return _until_asked(choice, candidates, fleet, now) if isinstance(choice, Wait) else choice


def _aligned(of_open: Sequence[T], closed: Sequence[_Closed], nothing: S) -> Sequence[T | S]:
    """What there is of each open one, as a list of all of them."""
    if len(of_open) == len(closed):
        return of_open
    found = iter(of_open)
    return [nothing if verdicts else next(found) for verdicts in closed]


def _judged(
    ask: Ask, offers: tuple[Offer, ...], loads: Sequence[tuple[int, int]], fleet: Fleet, now: float
) -> list[_Closed]:
    """The closed gates of each offer. Mostly all are open, and that is seen quickly."""
    doubts = in_doubt(ask, offers, loads, fleet, now)
    if not any(doubts):
        return [()] * len(offers)
    return [
        judge(ask, offer, fleet, now, gates) if gates else ()
        for offer, gates in zip(offers, doubts, strict=True)
    ]


def _step_back(ask: Ask, offers: Sequence[Offer], closed: Sequence[_Closed]) -> Sequence[_Closed]:
    """An agent that failed this task steps back while another could work on it; the only one may try again."""
    if not ask.excluded:
        return closed
    names = [offer.agent.agent_id for offer in offers]
    others = any(
        name not in ask.excluded and all(verdict.gate in _BUSY for verdict in verdicts)
        for name, verdicts in zip(names, closed, strict=True)
    )
    if not others:
        return closed
    return [
        (*verdicts, excluded(f"{ask.excluded[name]}, another agent can take it"))
        if name in ask.excluded
        else verdicts
        for name, verdicts in zip(names, closed, strict=True)
    ]


_BUSY: Final = frozenset(("slots", "rested", "rate"))
"""Gates that close to an agent that could work, and open again by themselves."""


def _hold_fallbacks(
    ask: Ask, offers: Sequence[Offer], closed: Sequence[_Closed], policy: RoutingPolicy
) -> Sequence[_Closed]:
    """Fallback agents are closed while another may have the task and has not had long enough to take it.

    An agent that failed this task is no such other: it steps back for a fallback too.
    """
    names = policy.fallback.get(ask.capability)
    if not names:
        return closed
    left_s = policy.fallback_after_ms / 1000 - ask.waited_s
    if left_s <= 0:
        return closed
    others = any(
        offer.agent.agent_id not in names
        and offer.agent.agent_id not in ask.excluded
        and all(verdict.kind is not GateKind.MAY_NOT for verdict in verdicts)
        for offer, verdicts in zip(offers, closed, strict=True)
    )
    if not others:
        return closed
    verdict = fallback(f"kept as a fallback for {left_s:.1f} s more")
    return [
        (*verdicts, verdict) if offer.agent.agent_id in names else verdicts
        for offer, verdicts in zip(offers, closed, strict=True)
    ]


def ranked(scores: Mapping[str, float], task_id: str, ties: TieBreak) -> list[str]:
    """Agents by their scores, from the best to the last.

    Equals go by name, or by a hash of task and agent (rendezvous: each gets its share, and keeps it when others go).
    """
    names = sorted(scores)
    places = [place_of(scores[name]) for name in names]
    return [names[at] for at in in_order(names, places, task_id, ties)]


def in_order(names: Sequence[str], places: Sequence[float], task_id: str, ties: TieBreak) -> list[int]:
    """As :func:`ranked`, by what :func:`place_of` made of the scores: positions in ``names``, which are in order."""
    order = sorted(range(len(names)), key=places.__getitem__)
    if ties == "name":
        return order
    found = [places[at] for at in order]
    for tied in {one for one, following in pairwise(found) if one == following}:
        equals = slice(bisect_left(found, tied), bisect_right(found, tied))
        order[equals] = sorted(order[equals], key=lambda at: _rendezvous(task_id, names[at]))
    return order


def _rendezvous(task_id: str, agent_id: str) -> bytes:
    return blake2b(f"{task_id}\x00{agent_id}".encode("utf-8", "surrogatepass"), digest_size=8).digest()


def _choose(field: Field, task_id: str, policy: RoutingPolicy, draw: float) -> tuple[Chosen, list[float]]:
    """The choice, and everybody's probability. All are put in order only where the draw explores: that is rare."""
    names, scored, places, optimistic = field
    at = best = _best(names, places, task_id, policy.ties)
    shares, explored = probabilities(optimistic, policy.exploration, best), False
    if explores(len(names), policy.exploration, draw):
        best_first = in_order(names, places, task_id, policy.ties)
        place, explored = pick([shares[each] for each in best_first], policy.exploration, draw)
        at = best_first[place]
    return Chosen(names[at], scored[at].score, _margin(at, scored, places), shares[at], explored), shares


def _best(names: Sequence[str], places: Sequence[float], task_id: str, ties: TieBreak) -> int:
    """The first one of :func:`in_order`, where the names are in order already."""
    lowest = min(places)
    first = places.index(lowest)
    if ties == "name" or places.count(lowest) == 1:
        return first
    equals = [at for at, place in enumerate(places) if place == lowest]
    return min(equals, key=lambda at: _rendezvous(task_id, names[at]))


def _margin(at: int, scored: Sequence[Scored], places: Sequence[float]) -> float | None:
    """The lead over the best other, ``None`` where there is none."""
    if len(places) == 1:
        return None
    following = min([*places[:at], *places[at + 1 :]])
    best = max(
        [scored[other].score for other, place in enumerate(places) if place == following and other != at]
    )
    return round(scored[at].score - best, TIE) + 0.0  # + 0.0 makes 0.0 of -0.0


def _why_not(candidates: Lineup) -> Choice:
    closed = dict(zip(candidates.names, candidates.closed, strict=True))
    never = {name: [v for v in verdicts if v.kind is GateKind.MAY_NOT] for name, verdicts in closed.items()}
    if not all(never.values()):
        return Wait(_reasons({name: verdicts for name, verdicts in closed.items() if not never[name]}))
    misfits = {agent: [v for v in verdicts if v.gate == "schema"] for agent, verdicts in never.items()}
    if all(misfits.values()):
        return PayloadRefused(_reasons(misfits))
    return Unmatched(_reasons(never))


def why_none_is_free(capability: str, fleet: Fleet, now: float) -> str:
    """Why no agent takes a task of the capability now, whatever the task is; empty if one does."""
    ask = Ask("", capability, {})
    closed = {
        offer.agent.agent_id: [v for v in judge(ask, offer, fleet, now) if v.kind is GateKind.NOT_NOW]
        for offer in fleet.capable(capability)
    }
    if not closed:
        return _nobody_has(capability, fleet)
    if not all(closed.values()):
        return ""
    first = all_open(fleet, list(closed), now)
    return f"{first}; {_reasons(closed)}" if first else _reasons(closed)


def somebody_may(ask: Ask, fleet: Fleet, now: float) -> bool:
    """Some agent may have the task, now or later: it is neither unmatched nor refused."""
    return any(not judge(ask, offer, fleet, now, NEVER) for offer in fleet.capable(ask.capability))


def _until_asked(wait: Wait, candidates: Lineup, fleet: Fleet, now: float) -> Wait:
    """Where every agent that may have the task is behind an open breaker, the wait ends with the first probe."""
    may = [
        name
        for name, verdicts in zip(candidates.names, candidates.closed, strict=True)
        if all(verdict.kind is not GateKind.MAY_NOT for verdict in verdicts)
    ]
    first = all_open(fleet, may, now)
    return Wait(f"{first}; {wait.reason}") if first else wait


def _reasons(closed: Mapping[str, Sequence[Verdict]]) -> str:
    """Why not, those with the same reasons together: ``a, b: missing vision; c: at max concurrency 8/8``."""
    agents: dict[str, list[str]] = {}
    for agent, verdicts in closed.items():
        agents.setdefault(", ".join(verdict.reason for verdict in verdicts), []).append(agent)
    told = [f"{_named(names)}: {why}" for why, names in islice(agents.items(), MOST_NAMED)]
    if len(agents) > MOST_NAMED:
        told.append(f"and {len(agents) - MOST_NAMED} reasons more")
    return "; ".join(told)


def _named(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _nobody_has(capability: str, fleet: Fleet) -> str:
    if not capability:
        return "only an intent is given: routing by meaning is not part of this version, name a capability"
    close = fleet.nearest(capability)
    return f"no known agent has the capability {capability!r}" + (
        f", did you mean {close!r}?" if close else ""
    )
