"""Thresholds and windows that follow from the reach log, instead of from taste."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from reach_worker.core.breaker import BreakerPolicy
from reach_worker.core.outcome import RULES, OutcomeClass, Success
from reach_worker.core.recovery import TimeoutPolicy

ENOUGH: Final = 50
"""Successes before a quantile is worth a proposal."""
FALSE_ALARMS_A_DAY: Final = 0.1
"""A streak that opens a healthy agent's breaker should come less often than this."""
DAY_S: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Ended:
    """An attempt of the log: how it ended, how long it ran (``None`` if it did not), when (UTC seconds)."""

    agent_id: str
    capability: str
    outcome: OutcomeClass
    seconds: float | None
    at: float


@dataclass(frozen=True, slots=True)
class Quantiles:
    """One agent on one capability. Times in seconds, ``None`` without a success; rates in [0, 1]."""

    agent_id: str
    capability: str
    attempts: int
    success: float | None
    rejections: float
    p50: float | None
    p95: float | None
    p99: float | None


@dataclass(frozen=True, slots=True)
class Proposal:
    """A setting, what it is, what the log says it should be, and why."""

    setting: str
    now: str
    proposed: str
    why: str


def quantiles(ended: Iterable[Ended]) -> list[Quantiles]:
    """The log by agent and capability."""
    groups: dict[tuple[str, str], list[Ended]] = {}
    for item in ended:
        groups.setdefault((item.agent_id, item.capability), []).append(item)
    return [_quantiles(agent, capability, items) for (agent, capability), items in sorted(groups.items())]


def _quantiles(agent_id: str, capability: str, items: Sequence[Ended]) -> Quantiles:
    kinds = [RULES[item.outcome].success for item in items]
    for_, against = kinds.count(Success.COUNTS_FOR), kinds.count(Success.COUNTS_AGAINST)
    times = sorted(i.seconds for i in items if i.outcome is OutcomeClass.SUCCEEDED and i.seconds is not None)
    return Quantiles(
        agent_id=agent_id,
        capability=capability,
        attempts=len(items),
        success=for_ / (for_ + against) if for_ + against else None,
        rejections=kinds.count(Success.REJECTION) / len(items),
        p50=quantile(times, 0.5),
        p95=quantile(times, 0.95),
        p99=quantile(times, 0.99),
    )


def quantile(ordered: Sequence[float], q: float) -> float | None:
    """The ``q`` quantile of sorted values (nearest rank), ``None`` of none."""
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)] if ordered else None


def proposals(
    table: Sequence[Quantiles],
    *,
    days: float,
    declared_timeouts: Mapping[tuple[str, str], int | None],
    timeouts: TimeoutPolicy,
    breaker: BreakerPolicy,
) -> list[Proposal]:
    """What the quantiles say about the settings. ``days``: how much log they are from."""
    found = [_timeout(row, declared_timeouts.get((row.agent_id, row.capability)), timeouts) for row in table]
    return [*(p for p in found if p is not None), *_streak(table, days, breaker), *_floor(table, breaker)]


def _timeout(row: Quantiles, declared_ms: int | None, policy: TimeoutPolicy) -> Proposal | None:
    if row.p99 is None or row.success is None or row.attempts * row.success < ENOUGH:
        return None
    now_ms = declared_ms or policy.attempt_ms
    wanted_ms = max(policy.floor_ms, math.ceil(row.p99 * policy.factor * 10) * 100)
    if 0.5 <= wanted_ms / now_ms <= 2.0:  # noqa: PLR2004 - within a factor of two nothing is won
        return None
    why = f"99 of 100 successes take {row.p99:.2f} s or less; {policy.factor:g} times that"
    return Proposal(f"{row.agent_id} {row.capability}: timeout_ms", f"{now_ms}", f"{wanted_ms}", why)


def _streak(table: Sequence[Quantiles], days: float, policy: BreakerPolicy) -> list[Proposal]:
    """The shortest streak that healthy agents reach less than once in ten days by chance alone.

    A run of k failures begins about n · p^k times in n attempts that fail with probability p.
    """
    healthy = [r for r in table if r.success is not None and r.success >= (policy.rate_floor or 0.5)]
    wanted = max((_shortest(r, days) for r in healthy if r.attempts >= ENOUGH), default=policy.streak)
    if wanted == policy.streak:
        return []
    why = f"chance alone reaches {policy.streak} in a row too {'often' if wanted > policy.streak else 'seldom to matter'}"
    return [Proposal("breaker.streak", str(policy.streak), str(wanted), why)]


def _shortest(row: Quantiles, days: float) -> int:
    fails = 1.0 - (row.success or 0.0)
    a_day = row.attempts / max(days, 1 / 24)
    streak = 2
    while streak < 100 and a_day * fails**streak > FALSE_ALARMS_A_DAY:  # noqa: PLR2004 - no streak is longer
        streak += 1
    return streak


def _floor(table: Sequence[Quantiles], policy: BreakerPolicy) -> list[Proposal]:
    """Half way between the worst agent that is worth having and certain failure, if all are far above the floor."""
    rates = sorted(r.success for r in table if r.success is not None and r.attempts >= ENOUGH)
    usual = quantile(rates, 0.1)
    if policy.rate_floor is None or usual is None:
        return []
    wanted = round(max(0.3, usual - 0.25), 2)
    if abs(wanted - policy.rate_floor) < 0.1:  # noqa: PLR2004 - a tenth is within what a day changes
        return []
    why = f"nine of ten agents succeed in {usual:.0%} or more; a quarter below that is sick"
    return [Proposal("breaker.rate_floor", f"{policy.rate_floor:g}", f"{wanted:g}", why)]
