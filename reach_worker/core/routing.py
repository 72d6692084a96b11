"""The decision: which agent gets a task, or that it waits, or that nobody may have it."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

from reach_worker.core.document import nearest
from reach_worker.core.fleet import Agent, Fleet
from reach_worker.core.gates import EXCLUDED_OPEN, Ask, GateKind, Verdict, excluded, judge
from reach_worker.core.manifest import Capability
from reach_worker.core.policy import RoutingPolicy
from reach_worker.core.scoring import Dimension, dimensions

TIE: Final = 9
"""Scores that agree to so many decimals are equal."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One agent that has the capability: its gates, and its score if all were open."""

    agent_id: str
    gates: tuple[Verdict, ...]
    dimensions: tuple[Dimension, ...] = ()
    score: float | None = None

    @property
    def eligible(self) -> bool:
        """All gates are open."""
        return self.score is not None


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


def _candidate_dict(candidate: Candidate) -> dict[str, Any]:
    return {
        "agent": candidate.agent_id,
        "score": candidate.score,
        "gates": {verdict.gate: verdict.reason if not verdict.passed else True for verdict in candidate.gates},
        "dimensions": [
            {"name": d.name, "raw": d.raw, "value": d.value, "weight": d.weight, "share": d.share}
            for d in candidate.dimensions
        ],
    }


def plan(ask: Ask, fleet: Fleet, policy: RoutingPolicy, now: float) -> Decision:
    """Choose an agent for a task at ``now`` (monotonic seconds). Two plans of one fleet for one task are equal."""
    judged = [
        (agent, capability, judge(ask, agent, capability, fleet, now))
        for agent, capability in _capable(ask.capability, fleet)
    ]
    judged = _step_back(ask, judged)
    weights = policy.weight_table()
    candidates = tuple(_candidate(agent, capability, gates, fleet, weights) for agent, capability, gates in judged)
    return Decision(ask.task_id, ask.capability, policy.name, _choose(ask, candidates, fleet, policy), candidates)


def _capable(capability_id: str, fleet: Fleet) -> list[tuple[Agent, Capability]]:
    found = []
    for agent in fleet.capable(capability_id):
        capability = agent.manifest.capability(capability_id)
        if capability is not None:
            found.append((agent, capability))
    return found


_Judged = tuple[Agent, Capability, tuple[Verdict, ...]]


def _step_back(ask: Ask, judged: list[_Judged]) -> list[_Judged]:
    """An agent that failed this task steps back while another could work on it; if it is the only one it may try again."""
    others = any(agent.agent_id not in ask.excluded and _could_work(gates) for agent, _, gates in judged)
    result = []
    for agent, capability, gates in judged:
        why = ask.excluded.get(agent.agent_id)
        verdict = excluded(f"{why}; another agent can take it") if why and others else EXCLUDED_OPEN
        result.append((agent, capability, (*gates, verdict)))
    return result


_BUSY: Final = ("slots", "rested")


def _could_work(gates: tuple[Verdict, ...]) -> bool:
    return all(verdict.passed or verdict.gate in _BUSY for verdict in gates)


def _candidate(
    agent: Agent, capability: Capability, gates: tuple[Verdict, ...], fleet: Fleet, weights: Mapping[str, float]
) -> Candidate:
    if not all(verdict.passed for verdict in gates):
        return Candidate(agent.agent_id, gates)
    parts = dimensions(agent, capability, fleet, weights)
    return Candidate(agent.agent_id, gates, parts, min(1.0, sum(part.share for part in parts)))


def _choose(ask: Ask, candidates: tuple[Candidate, ...], fleet: Fleet, policy: RoutingPolicy) -> Choice:
    if not candidates:
        return Unmatched(_nobody_has(ask.capability, fleet))
    ranked = sorted((c for c in candidates if c.eligible), key=lambda c: _rank(c, ask.task_id, policy))
    if ranked:
        best = ranked[0]
        score = best.score or 0.0
        margin = score - (ranked[1].score or 0.0) if len(ranked) > 1 else None
        return Chosen(best.agent_id, score, margin)
    return _why_not(candidates)


def _rank(candidate: Candidate, task_id: str, policy: RoutingPolicy) -> tuple[float, bytes, str]:
    tie = b""
    if policy.tie_break == "spread":
        tie = blake2b(f"{task_id}\x00{candidate.agent_id}".encode(), digest_size=8).digest()
    return (-round(candidate.score or 0.0, TIE), tie, candidate.agent_id)


def _why_not(candidates: tuple[Candidate, ...]) -> Choice:
    closed = {c.agent_id: [v for v in c.gates if not v.passed] for c in candidates}
    never = {a: [v for v in vs if v.kind is GateKind.MAY_NOT] for a, vs in closed.items()}
    if any(not verdicts for verdicts in never.values()):
        waiting = {a: vs for a, vs in closed.items() if not never[a]}
        return Wait(_reasons(waiting))
    if all(any(v.gate == "schema" for v in verdicts) for verdicts in never.values()):
        return PayloadRefused(_reasons({a: [v for v in vs if v.gate == "schema"] for a, vs in never.items()}))
    return Unmatched(_reasons(never))


def _reasons(closed: Mapping[str, list[Verdict]]) -> str:
    return "; ".join(f"{agent}: {', '.join(v.reason for v in verdicts)}" for agent, verdicts in closed.items())


def _nobody_has(capability: str, fleet: Fleet) -> str:
    if not capability:
        return "only an intent is given: routing by meaning is not part of this version, name a capability"
    close = nearest(capability, fleet.by_capability)
    return f"no known agent has the capability {capability!r}" + (f", did you mean {close!r}?" if close else "")
