"""Why a certain agent did not get a task, in sentences."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from reach_worker.cli.decision_tree import closed_gates, in_rank
from reach_worker.cli.human_times import local
from reach_worker.core.document import nearest
from reach_worker.ports import Decided

Plain = Mapping[str, Any]
EQUAL: Final = 1e-9
SHOWN: Final = 0.0005
"""Smaller differences vanish in three digits."""


def why_not(agent_id: str, decisions: Iterable[Decided], known: Iterable[str]) -> list[str]:
    """One sentence for each decision; ``known`` are the ids of all agents there are."""
    answers = [
        f"{local(decided.at)}: {_answer(agent_id, decided.decision, set(known))}" for decided in decisions
    ]
    return answers or ["no decision was made about this task yet"]


def _answer(agent_id: str, decision: Plain, known: set[str]) -> str:
    if decision.get("agent") == agent_id:
        return f"{agent_id} was chosen"
    ranked = in_rank(decision)
    for candidate in ranked:
        if candidate["agent"] == agent_id:
            return _as_candidate(candidate, ranked[0])
    return _no_candidate(agent_id, decision, {*known, *(each["agent"] for each in ranked)})


def _as_candidate(candidate: Plain, best: Plain) -> str:
    closed = [f"{reason} (gate {gate})" for gate, reason in closed_gates(candidate)]
    if closed:
        return f"{candidate['agent']}: {'; '.join(closed)}"
    lead = best["score"] - candidate["score"]
    if lead < -EQUAL:
        return (
            f"{candidate['agent']} scored {candidate['score']:.3f}, more than {best['agent']}: the draw of this decision "
            "was one of those that explore"
        )
    if lead <= EQUAL:
        return f"{candidate['agent']} scored the same as {best['agent']}, and the tie went to that one"
    return (
        f"{candidate['agent']} scored {candidate['score']:.3f}, {lead:.3f} less than {best['agent']}"
        f" ({', '.join([*_parts(candidate, best), *_factors(candidate, best)])})"
    )


def _parts(candidate: Plain, best: Plain) -> Iterator[str]:
    """Which dimensions made the difference, the largest first."""
    shares = {part["name"]: part["share"] for part in candidate["dimensions"]}
    gaps = [(shares.get(part["name"], 0.0) - part["share"], part["name"]) for part in best["dimensions"]]
    for gap, name in sorted(gaps, key=lambda gap: -abs(gap[0])):
        if abs(gap) >= SHOWN:
            yield f"{name} {gap:+.3f}"


def _factors(candidate: Plain, best: Plain) -> Iterator[str]:
    values = {factor["name"]: factor["value"] for factor in candidate.get("factors", ())}
    for factor in best.get("factors", ()):
        own = values.get(factor["name"], 1.0)
        if abs(own - factor["value"]) >= SHOWN:
            yield f"× {factor['name']} {own:.3f} against {factor['value']:.3f}"


def _no_candidate(agent_id: str, decision: Plain, known: set[str]) -> str:
    if agent_id in known:
        return f"{agent_id} has not the capability {decision['capability']!r}"
    close = nearest(agent_id, known)
    return f"no agent {agent_id!r} is known" + (f", did you mean {close!r}?" if close else "")
