"""What routers tell one another of the agents they share: how dispatches ended, and which ones are probes.

Whoever hears it feeds its own breakers and statistics with it; the task stays its owner's. Hearing it twice, late, or
not at all does no harm: every dispatch counts once, and a probe that is not heard of again ends with its lease.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, assert_never

import orjson

from reach_worker.core.announcement import LONGEST_NAME, Unreadable
from reach_worker.core.outcome import OutcomeClass
from reach_worker.core.value import value

HEARSAY: Final = "hearsay"
AT_ONCE: Final = 500
"""News in one message at most."""
LONGEST_S: Final = 30 * 86_400.0
"""No time that is told is longer."""


@value(frozen=True, slots=True)
class Settled:
    """How a dispatch ended, as far as it concerns the agent. ``age_s``: seconds since it was sent."""

    dispatch_id: str
    agent_id: str
    capability: str
    outcome: OutcomeClass
    age_s: float
    duration_ms: float | None = None
    retry_after_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ProbeSent:
    """A dispatch is the one probe of a half-open breaker."""

    dispatch_id: str
    agent_id: str


@dataclass(frozen=True, slots=True)
class NotWanted:
    """A leg of a race or fan-out is not needed any more: whoever has it stops it."""

    task_id: str


News = Settled | ProbeSent | NotWanted


@dataclass(frozen=True, slots=True)
class Hearsay:
    """What one router told, in the order in which it happened."""

    router_id: str
    news: tuple[News, ...]


def hearsay_key(router_id: str) -> str:
    """Routing key of what a router tells the others."""
    return f"{HEARSAY}.{router_id}"


def hearsay_bodies(router_id: str, news: Sequence[News]) -> Iterator[bytes]:
    """As JSON, in messages of a bounded size."""
    for start in range(0, len(news), AT_ONCE):
        told = [_as_dict(one) for one in news[start : start + AT_ONCE]]
        yield orjson.dumps({"router": router_id, "news": told})


def hearsay_from(body: bytes) -> Hearsay | Unreadable:
    """What :func:`hearsay_bodies` wrote. Never raises; news that it cannot read are a newer router's, and left out."""
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        return Unreadable(f"not JSON: {error}")
    match data:
        case {"router": str(router_id), "news": list(told)} if _name(router_id):
            return Hearsay(router_id, tuple(news for one in told if (news := _news(one)) is not None))
        case _:
            return Unreadable("no word of a router: it needs the router's name and a list of news")


def _as_dict(news: News) -> dict[str, Any]:
    match news:
        case ProbeSent(dispatch_id, agent_id):
            return {"probe": dispatch_id, "agent": agent_id}
        case NotWanted(task_id):
            return {"not_wanted": task_id}
        case Settled():
            return {
                "settled": news.dispatch_id,
                "agent": news.agent_id,
                "capability": news.capability,
                "outcome": news.outcome.value,
                "age_s": round(news.age_s, 6),
                "duration_ms": news.duration_ms,
                "retry_after_ms": news.retry_after_ms,
            }
        case _:
            assert_never(news)


def _news(data: Any) -> News | None:
    match data:
        case {"probe": str(dispatch_id), "agent": str(agent_id)} if _name(dispatch_id) and _name(agent_id):
            return ProbeSent(dispatch_id, agent_id)
        case {"settled": str(dispatch_id), "agent": str(agent_id)} if _name(dispatch_id) and _name(agent_id):
            return _settled(dispatch_id, agent_id, data)
        case {"not_wanted": str(task_id)} if _name(task_id):
            return NotWanted(task_id)
        case _:
            return None


def _settled(dispatch_id: str, agent_id: str, data: Mapping[str, Any]) -> Settled | None:
    capability, outcome = data.get("capability"), data.get("outcome")
    if not isinstance(capability, str) or outcome not in _OUTCOMES:
        return None
    rest_ms = _time(data.get("retry_after_ms"), LONGEST_S * 1000)
    return Settled(
        dispatch_id,
        agent_id,
        capability,
        OutcomeClass(outcome),
        _time(data.get("age_s"), LONGEST_S) or 0.0,
        _time(data.get("duration_ms"), LONGEST_S * 1000),
        None if rest_ms is None else int(rest_ms),
    )


_OUTCOMES: Final = tuple(outcome.value for outcome in OutcomeClass)


def _name(text: str) -> bool:
    return 0 < len(text) <= LONGEST_NAME


def _time(value: object, longest: float) -> float | None:
    """A time that is told, within bounds; ``None`` where there is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return min(max(0.0, float(value)), longest)
