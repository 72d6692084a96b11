"""A decision as a tree: every candidate with every gate, and what its score is made of.

Decisions come as plain data, the way the reach log keeps them (``Decision.as_dict``).
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from reach_worker.cli.output import Node

Plain = Mapping[str, Any]

_HEADS: Final = {"wait": "waits", "unmatched": "unmatched", "payload_refused": "payload refused"}
OPEN, CLOSED, QUIET = "green", "red", "dim"


def add_decision(parent: Node, decision: Plain, lead: str) -> Node:
    """The decision under ``parent``; ``lead`` is what its line begins with."""
    node = parent.add(f"{lead}: {choice_words(decision)} · policy {decision['policy']}", "bold")
    for line in _group_lines(decision):
        node.add(line, "bold")
    for candidate in in_rank(decision):
        _add_candidate(node, candidate, chosen=candidate["agent"] == decision.get("agent"))
    if not decision["candidates"]:
        node.add("no candidates", QUIET)
    return node


def _group_lines(decision: Plain) -> Iterator[str]:
    """Who takes part in a race or fan-out."""
    if decision.get("legs"):
        yield f"{decision['mode']} of {', '.join(decision['legs'])}"
    for agent, why in (decision.get("missing") or {}).items():
        yield f"without {agent}: {why}"


def choice_words(decision: Plain) -> str:
    """What was chosen: an agent with its score and lead, or why nobody."""
    if decision["verdict"] != "chosen":
        verdict = decision["verdict"]
        return f"{_HEADS.get(verdict, verdict)}, {decision['reason']}"
    margin = decision["margin"]
    words = [f"score {decision['score']:.3f}"]
    words.append("nobody else could" if margin is None else f"margin {margin:.3f}")
    if decision.get("exploration") and margin is not None:
        words.append(f"probability {decision['probability']:.2%}")
    if decision.get("explored"):
        words.append("drawn to explore")
    return f"{decision['agent']} ({', '.join(words)})"


def in_rank(decision: Plain) -> list[Plain]:
    """The candidates: the chosen one, then by score, then those that no gate would let in."""
    return sorted(
        decision["candidates"],
        key=lambda candidate: (
            candidate["agent"] != decision.get("agent"),
            -(candidate["score"] if candidate["score"] is not None else -1.0),
            candidate["agent"],
        ),
    )


def _add_candidate(parent: Node, candidate: Plain, *, chosen: bool) -> None:
    score = candidate["score"]
    if score is None:
        node = parent.add(f"✗ {candidate['agent']}: removed", CLOSED)
    else:
        mark, style = ("✓", OPEN) if chosen else ("·", "")
        node = parent.add(
            f"{mark} {candidate['agent']}: score {score:.3f}{', chosen' if chosen else ''}", style
        )
    for gate, reason in closed_gates(candidate):
        node.add(f"gate {gate}: {reason}", CLOSED)
    passed = [gate for gate, verdict in candidate["gates"].items() if verdict is True]
    if passed:
        node.add(f"gates open: {', '.join(passed)}", QUIET)
    for line in score_lines(candidate):
        node.add(line)


def closed_gates(candidate: Plain) -> Iterator[tuple[str, str]]:
    """The gates that do not let this agent in, each with its reason."""
    return ((gate, verdict) for gate, verdict in candidate["gates"].items() if verdict is not True)


def score_lines(candidate: Plain) -> Iterator[str]:
    """What a score is made of: one line for each dimension, for each factor, and for the bonus."""
    for part in candidate["dimensions"]:
        yield (
            f"{part['name']:<8} {part['value']:.3f} × {part['weight']:.2f} = {part['share']:.3f}"
            f"  ({_raw(part['raw'])})"
        )
    if candidate.get("bonus"):
        yield f"bonus    {candidate['bonus']:+.3f}"
    for factor in candidate.get("factors", ()):
        yield f"× {factor['name']} {factor['value']:.3f}  ({_raw(factor['raw'])})"


def _raw(value: float | None) -> str:
    return "nothing known" if value is None else f"raw {value:g}"
