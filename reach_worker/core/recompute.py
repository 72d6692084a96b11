"""A recorded decision worked out again, from its record alone.

The record is ``Decision.as_dict()``, before or after JSON. Nothing else is asked: no manifest, no fleet, no clock. So the
reach log proves that every choice followed from what it tells, and `reach replay-log` starts from choices it can trust.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from reach_worker.core.exploration import pick, probabilities
from reach_worker.core.routing import ranked
from reach_worker.core.scoring import weigh


class Recomputed(NamedTuple):
    """Who is chosen, and how likely just this choice was; ``None`` and 0 where nobody could be."""

    agent_id: str | None
    probability: float


def recompute(record: Mapping[str, Any]) -> Recomputed:
    """The choice that follows from a record: scores from values and weights, then the ranking, then the draw.

    The recorded scores, probabilities and choice are not looked at. A record that lacks a part raises KeyError.
    """
    open_ = {candidate["agent"]: candidate for candidate in record["candidates"] if _open(candidate)}
    if not open_:
        return Recomputed(None, 0.0)
    scores = {agent_id: recomputed_score(candidate) for agent_id, candidate in open_.items()}
    best_first = ranked(scores, record["task"], record["ties"])
    shares = probabilities([open_[agent_id]["optimistic"] for agent_id in best_first], record["exploration"])
    place, _ = pick(shares, record["exploration"], record["draw"])
    return Recomputed(best_first[place], shares[place])


def recomputed_score(candidate: Mapping[str, Any]) -> float:
    """The score of one recorded candidate whose gates were open."""
    return weigh(
        [part["value"] * part["weight"] for part in candidate["dimensions"]],
        candidate["bonus"],
        [factor["value"] for factor in candidate["factors"]],
    )


def _open(candidate: Mapping[str, Any]) -> bool:
    return all(verdict is True for verdict in candidate["gates"].values())
