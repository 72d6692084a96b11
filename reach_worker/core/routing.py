"""The decision: which agent gets a task, or that it waits, or that nobody may have it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from typing import Any, Final

from reach_worker.core.fleet import Fleet, Offer
from reach_worker.core.gates import OPEN, Ask, GateKind, Verdict, all_verdicts, excluded, judge
from reach_worker.core.policy import DimensionName, RoutingPolicy
from reach_worker.core.scoring import Dimension, dimensions, score

TIE: Final = 9
"""Scores that agree to so many decimals are equal."""
MOST_NAMED: Final = 5
"""Agents that are named for one reason, and reasons that are told of one decision; the others are only counted."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One agent that has the capability: the gates closed to it, and its score if there are none."""

    agent_id: str
    closed: tuple[Verdict, ...]
    dimensions: tuple[Dimension, ...] = ()
    score: float | None = None

    @property
    def eligible(self) -> bool:
        """All gates are open."""
        return not self.closed

    @property
    def gates(self) -> tuple[Verdict, ...]:
        """Every gate's verdict, in the order people read them."""
        return all_verdicts(self.closed)


@dataclass(frozen=True, slots=True)
class Chosen:
    """This agent gets the task. ``margin``: its lead over the next best, ``None`` if there was no other."""

    agent_id: str
    score: float
    margin: float | None


@dataclass(frozen=True, slots=True)
class Wait:
    """Somebody may have it, nobody can take it now."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unmatched:
    """No known manifest could ever take it."""

    reason: str


@dataclass(frozen=True, slots=True)
class PayloadRefused:
    """The payload fits no agent's input schema."""

    reason: str


Choice = Chosen | Wait | Unmatched | PayloadRefused


@dataclass(frozen=True, slots=True)
class Decision:
    """A choice and everything behind it."""

    task_id: str
    capability: str
    policy: str
    choice: Choice
    candidates: tuple[Candidate, ...]

    @property
    def agent_id(self) -> str | None:
        """The chosen agent."""
        return self.choice.agent_id if isinstance(self.choice, Chosen) else None

    @property
    def verdict(self) -> str:
        """The kind of choice, one word: ``chosen``, ``wait``, ``unmatched`` or ``payload_refused``."""
        return VERDICTS[type(self.choice)]

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for the reach log and ``--json``."""
        choice: dict[str, Any] = (
            {"agent": self.choice.agent_id, "score": self.choice.score, "margin": self.choice.margin}
            if isinstance(self.choice, Chosen)
            else {"reason": self.choice.reason}
        )
        return {
            "task": self.task_id,
            "capability": self.capability,
            "policy": self.policy,
            "verdict": self.verdict,
            **choice,
            "candidates": [_candidate_dict(candidate) for candidate in self.candidates],
        }


VERDICTS: Final[Mapping[type, str]] = {
    Chosen: "chosen",
    Wait: "wait",
    Unmatched: "unmatched",
    PayloadRefused: "payload_refused",
}


_ALL_OPEN: Final[Mapping[str, bool | str]] = {verdict.gate: True for verdict in OPEN}


def _candidate_dict(candidate: Candidate) -> dict[str, Any]:
    return {
        "agent": candidate.agent_id,
        "score": candidate.score,
        "gates": {**_ALL_OPEN, **{verdict.gate: verdict.reason for verdict in candidate.closed}},
        "dimensions": [dimension._asdict() for dimension in candidate.dimensions],
    }


def plan(ask: Ask, fleet: Fleet, policy: RoutingPolicy, now: float) -> Decision:
    """Choose an agent for a task at ``now`` (monotonic seconds). Two plans of one fleet for one task are equal."""
    offers = fleet.capable(ask.capability)
    closed = _step_back(ask, offers, [judge(ask, offer, fleet, now) for offer in offers])
    weights = policy.weight_table
    candidates = tuple(
        [_candidate(offer, verdicts, fleet, weights) for offer, verdicts in zip(offers, closed, strict=True)]
    )
    return Decision(
        ask.task_id, ask.capability, policy.name, _choose(ask, candidates, fleet, policy), candidates
    )


_Closed = tuple[Verdict, ...]


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


_BUSY: Final = frozenset(("slots", "rested"))
"""Gates that close to an agent that could work, and open again by themselves."""


def _candidate(
    offer: Offer, closed: _Closed, fleet: Fleet, weights: Mapping[DimensionName, float]
) -> Candidate:
    if closed:
        return Candidate(offer.agent.agent_id, closed)
    parts = dimensions(offer, fleet, weights)
    return Candidate(offer.agent.agent_id, closed, parts, score(parts))


def _choose(ask: Ask, candidates: Sequence[Candidate], fleet: Fleet, policy: RoutingPolicy) -> Choice:
    if not candidates:
        return Unmatched(_nobody_has(ask.capability, fleet))
    ranked = sorted(
        (_rank(c.score, c.agent_id, ask.task_id, policy), c.score, c.agent_id)
        for c in candidates
        if c.score is not None
    )
    if not ranked:
        return _why_not(candidates)
    _, best, agent_id = ranked[0]
    margin = max(0.0, round(best - ranked[1][1], TIE)) if len(ranked) > 1 else None
    return Chosen(agent_id, best, margin)


def _rank(value: float, agent_id: str, task_id: str, policy: RoutingPolicy) -> tuple[float, bytes, str]:
    """Sorts the best first, and equals by name, or by a hash of task and agent (rendezvous: each gets its share)."""
    tie = b""
    if policy.tie_break == "spread":
        tie = blake2b(f"{task_id}\x00{agent_id}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return (-round(value, TIE), tie, agent_id)


def _why_not(candidates: Sequence[Candidate]) -> Choice:
    never = {c.agent_id: [v for v in c.closed if v.kind is GateKind.MAY_NOT] for c in candidates}
    if not all(never.values()):
        return Wait(_reasons({c.agent_id: c.closed for c in candidates if not never[c.agent_id]}))
    misfits = {agent: [v for v in verdicts if v.gate == "schema"] for agent, verdicts in never.items()}
    if all(misfits.values()):
        return PayloadRefused(_reasons(misfits))
    return Unmatched(_reasons(never))


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
