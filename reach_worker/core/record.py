"""A decision as the reach log has it: put together only when somebody looks at it, and stored compactly.

What is stored holds every number once and no name twice: how the candidates' scores were made is told of all of them
together, and what follows from the rest (shares, the gates that are open) is left out. :func:`expanded` gives back
exactly what ``Decision.as_dict()`` says.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar, overload

import orjson

from reach_worker.core.gates import Verdict
from reach_worker.core.routing import NO_SCORE, Decision, Lineup
from reach_worker.core.scoring import Scored

T = TypeVar("T")

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

    @overload
    def get(self, name: str, default: None = None, /) -> Any: ...
    @overload
    def get(self, name: str, default: T, /) -> Any | T: ...
    def get(self, name: str, default: object = None, /) -> object:
        """The same as of any mapping; what stands in columns of the store is asked for of every decision."""
        return self[name] if name == CANDIDATES else self._head.get(name, default)

    def json(self) -> bytes:
        """The same as JSON, in the newest form: see :func:`expanded`."""
        candidates = self._decision.candidates
        if not isinstance(candidates, Lineup):
            candidates = Lineup.of(candidates)
        scored = next(filter(None, candidates.scored), None)
        weights, multipliers = ({}, ()) if scored is None else (scored.weights, scored.multipliers)
        head = orjson.dumps({**self._head, FORM: NEWEST, "weights": weights, "multipliers": multipliers})
        shares = orjson.dumps(candidates.shares)[1:-1].split(b",") if candidates else ()
        lines = [
            b"[%b,%b" % (share, one.fragment or _fragment(name, one))
            if one is not None and not verdicts
            else b"[%b,%b" % (share, _line(name, verdicts, one))
            for share, name, verdicts, one in zip(
                shares, candidates.names, candidates.closed, candidates.scored, strict=True
            )
        ]
        return b'%b,"candidates":[%b]}' % (head[:-1], b",".join(lines))


def _fragment(agent_id: str, scored: Scored) -> bytes:
    """Agent, no closed gate, and the score; kept with it, for most scores serve many decisions."""
    scored.fragment = orjson.dumps((agent_id, None, *_parts(scored)))[1:]
    return scored.fragment


def _line(agent_id: str, verdicts: Sequence[Verdict], scored: Scored | None) -> bytes:
    """Agent, closed gates, and the score if there is one."""
    closed = {verdict.gate: verdict.reason for verdict in verdicts}
    return orjson.dumps((agent_id, closed, *(() if scored is None else _parts(scored))))[1:]


def _parts(scored: Scored) -> tuple[object, ...]:
    return (
        scored.score,
        scored.bonus,
        scored.optimistic,
        scored.hoped,
        scored.raw_of((*scored.weights, *scored.multipliers)),
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
