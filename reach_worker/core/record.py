"""A decision as the reach log has it: put together only when somebody looks at it, and stored compactly.

What is stored holds every number once and no name twice: how the candidates' scores were made is told of all of them
together, and what follows from the rest (shares, the gates that are open) is left out. :func:`expanded` gives back
exactly what ``Decision.as_dict()`` says.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import orjson

from reach_worker.core.routing import NO_SCORE, Candidate, Decision
from reach_worker.core.scoring import Scored

CANDIDATES: Final = "candidates"
FORM: Final = "form"
_BESIDE: Final = frozenset((FORM, "weights", "multipliers"))
"""What tells how to read the candidates."""

NEWEST: Final = 1
FORMS: Final[Mapping[int, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    1: (
        (
            "base", "cost", "latency", "success", "load", "speed", "recent_success", "p50", "p95", "quality",
            "affinity", "match", "reach", "smoothed_load", "trust", "low_success", "rejections",
        ),
        (
            "capability", "schema", "tags", "domain", "caller", "personal_data", "price", "sent_to", "rejected",
            "presence", "breaker", "rested", "rate", "slots", "fallback", "excluded",
        ),
    )
}  # fmt: skip
"""Of each form what its numbers are called, and which gates there were. What was stored keeps its form: whoever adds a
dimension or a gate adds a form."""


class DecisionRecord(Mapping[str, Any]):
    """``Decision.as_dict()``, with what the shadow policy would have chosen under ``shadow`` where there is one."""

    __slots__ = ("_decision", "_head")

    def __init__(self, decision: Decision, shadow: Decision | None = None) -> None:
        self._decision = decision
        self._head = decision.head()
        if shadow is not None:
            self._head["shadow"] = shadow.summary()

    def __getitem__(self, name: str) -> Any:
        if name == CANDIDATES:
            return [candidate.as_dict() for candidate in self._decision.candidates]
        return self._head[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._head
        yield CANDIDATES

    def __len__(self) -> int:
        return len(self._head) + 1

    def json(self) -> bytes:
        """The same as JSON, in the newest form: see :func:`expanded`."""
        candidates = tuple(self._decision.candidates)
        scored = next((one.scored for one in candidates if one.scored is not None), None)
        weights, multipliers = ({}, ()) if scored is None else (scored.weights, scored.multipliers)
        head = orjson.dumps({**self._head, FORM: NEWEST, "weights": weights, "multipliers": multipliers})
        return b'%b,"candidates":[%b]}' % (head[:-1], b",".join([_line(one) for one in candidates]))


def _line(candidate: Candidate) -> bytes:
    """Probability, agent and closed gates, and the score. But for the first it is kept with the score.

    Most scores serve many decisions where there are many agents.
    """
    scored = candidate.scored
    if scored is None or candidate.closed:
        closed = {verdict.gate: verdict.reason for verdict in candidate.closed}
        parts = () if scored is None else _parts(scored)
        return orjson.dumps((candidate.probability, candidate.agent_id, closed, *parts))
    if not scored.fragment:
        scored.fragment = orjson.dumps((candidate.agent_id, None, *_parts(scored)))[1:]
    return b"[%b,%b" % (repr(candidate.probability).encode(), scored.fragment)


def _parts(scored: Scored) -> tuple[object, ...]:
    return (
        scored.score,
        scored.bonus,
        scored.optimistic,
        scored.hoped,
        tuple(scored.raw(name) for name in (*scored.weights, *scored.multipliers)),
        scored.values,
    )


def expanded(stored: Mapping[str, Any]) -> dict[str, Any]:
    """``Decision.as_dict()`` from what was stored of it, in any form; ``ValueError`` and others where it has none."""
    if FORM not in stored:  # an older version wrote it, or it came out of the spill file
        return dict(stored)
    if stored[FORM] not in FORMS:
        raise ValueError(f"a decision is stored in form {stored[FORM]!r}, which this version does not know")
    names, gates = FORMS[stored[FORM]]
    weights, multipliers = stored["weights"], stored["multipliers"]
    head = {name: value for name, value in stored.items() if name not in _BESIDE}
    lines = stored[CANDIDATES]
    return {**head, CANDIDATES: [_candidate(line, weights, multipliers, names, gates) for line in lines]}


def _candidate(
    line: Sequence[Any],
    weights: Mapping[str, float],
    multipliers: Sequence[str],
    names: Sequence[str],
    gates: Sequence[str],
) -> dict[str, Any]:
    probability, agent, closed, *parts = line
    scored = _scored(parts, weights, multipliers, names) if parts else NO_SCORE
    return {
        "probability": probability,
        "agent": agent,
        "score": parts[0] if parts else None,
        "gates": {**dict.fromkeys(gates, True), **(closed or {})},
        **scored,
    }


def _scored(
    parts: Sequence[Any], weights: Mapping[str, float], multipliers: Sequence[str], names: Sequence[str]
) -> dict[str, Any]:
    _, bonus, optimistic, hoped, raws, values = parts
    facts = dict(zip(names, values, strict=True))
    raw = dict(zip((*weights, *multipliers), raws, strict=True))
    return {
        "dimensions": [
            {
                "name": name,
                "raw": raw[name],
                "value": facts[name],
                "weight": weight,
                "share": facts[name] * weight,
            }
            for name, weight in weights.items()
        ],
        "factors": [{"name": name, "raw": raw[name], "value": facts[name]} for name in multipliers],
        "bonus": bonus,
        "optimistic": optimistic,
        "facts": {**facts, "hoped": hoped},
    }
