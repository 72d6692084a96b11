"""May this agent have this task at all? Yes or no, with a reason that a person understands.

Two kinds. ``MAY_NOT``: no waiting would change it (only another manifest). ``NOT_NOW``: the task waits for it to pass.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from reach_worker.core.breaker import Refuses
from reach_worker.core.envelope import ANONYMOUS
from reach_worker.core.fleet import Agent, Fleet
from reach_worker.core.manifest import Capability, payload_problem
from reach_worker.core.presence import PresenceState


class GateKind(StrEnum):
    """What a closed gate means for the task."""

    MAY_NOT = "may_not"
    NOT_NOW = "not_now"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One gate's answer for one agent. ``reason`` is empty where it is open."""

    gate: str
    kind: GateKind
    passed: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Ask:
    """What the choice of an agent needs to know of a task. ``excluded``: agents that step back, with why."""

    task_id: str
    capability: str
    payload: Mapping[str, Any]
    requires: tuple[str, ...] = ()
    domain: str | None = None
    caller: str = ANONYMOUS
    max_cost: float | None = None
    excluded: Mapping[str, str] = field(default_factory=dict)
    rejected_by: frozenset[str] = frozenset()
    to_agent: str | None = None


@dataclass(frozen=True, slots=True)
class Gate:
    """A named check: ``None`` lets the agent pass, a text is the reason why not."""

    name: str
    kind: GateKind
    check: Callable[[Ask, Agent, Capability, Fleet, float], str | None]


def _capability(ask: Ask, agent: Agent, capability: Capability, _fleet: Fleet, _now: float) -> str | None:
    missing = [tag for tag in ask.requires if tag not in capability.tags]
    return f"missing {', '.join(missing)}" if missing else None


def _schema(ask: Ask, _agent: Agent, capability: Capability, _fleet: Fleet, _now: float) -> str | None:
    problem = payload_problem(capability, ask.payload)
    return None if problem is None else f"payload{problem[0]}: {problem[1]}"


def _tags(ask: Ask, agent: Agent, _capability: Capability, _fleet: Fleet, _now: float) -> str | None:
    never = [tag for tag in ask.requires if tag in agent.manifest.mutually_exclusive_tags]
    return f"never handles {', '.join(never)}" if never else None


def _domain(ask: Ask, agent: Agent, _capability: Capability, _fleet: Fleet, _now: float) -> str | None:
    allowed = agent.manifest.permission_domains
    if ask.domain is None or ask.domain in allowed or "*" in allowed:
        return None
    return f"not allowed in domain {ask.domain}, only in {', '.join(allowed) or 'none'}"


def _caller(ask: Ask, agent: Agent, _capability: Capability, _fleet: Fleet, _now: float) -> str | None:
    allowed = agent.manifest.callable_by
    if "*" in allowed or (ask.caller != ANONYMOUS and ask.caller in allowed):
        return None
    return f"not callable by {ask.caller}, only by {', '.join(allowed) or 'nobody'}"


def _sent_to(ask: Ask, agent: Agent, _capability: Capability, _fleet: Fleet, _now: float) -> str | None:
    if ask.to_agent is None or ask.to_agent == agent.agent_id:
        return None
    return f"a person sent it to {ask.to_agent}"


def _rejected(ask: Ask, agent: Agent, _capability: Capability, _fleet: Fleet, _now: float) -> str | None:
    return "said that it is not its own" if agent.agent_id in ask.rejected_by else None


def _presence(_ask: Ask, agent: Agent, _capability: Capability, _fleet: Fleet, now: float) -> str | None:
    state = agent.roster.state()
    if state is PresenceState.ACTIVE:
        return None
    silent = agent.roster.silent_for(now)
    return f"{state.value}, never heard of" if silent is None else f"{state.value}, silent for {silent:.0f} s"


def _breaker(_ask: Ask, agent: Agent, _capability: Capability, _fleet: Fleet, now: float) -> str | None:
    answer = agent.breaker.admits(now)
    return answer.reason if isinstance(answer, Refuses) else None


def _rested(_ask: Ask, agent: Agent, _capability: Capability, _fleet: Fleet, now: float) -> str | None:
    left = agent.rests_until - now
    return f"rate limited for {math.ceil(left)} s more" if left > 0 else None


def _slots(_ask: Ask, agent: Agent, capability: Capability, fleet: Fleet, _now: float) -> str | None:
    held, limit = fleet.leases.held(agent.agent_id), fleet.limit(agent, capability.id)
    return f"at max concurrency {held}/{limit}" if held >= limit else None


GATES: Final = (
    Gate("capability", GateKind.MAY_NOT, _capability),
    Gate("schema", GateKind.MAY_NOT, _schema),
    Gate("tags", GateKind.MAY_NOT, _tags),
    Gate("domain", GateKind.MAY_NOT, _domain),
    Gate("caller", GateKind.MAY_NOT, _caller),
    Gate("sent_to", GateKind.MAY_NOT, _sent_to),
    Gate("rejected", GateKind.MAY_NOT, _rejected),
    Gate("presence", GateKind.NOT_NOW, _presence),
    Gate("breaker", GateKind.NOT_NOW, _breaker),
    Gate("rested", GateKind.NOT_NOW, _rested),
    Gate("slots", GateKind.NOT_NOW, _slots),
)
"""Every gate, in the order people read them. ``excluded`` comes after: it depends on the others (see routing)."""


def judge(ask: Ask, agent: Agent, capability: Capability, fleet: Fleet, now: float) -> tuple[Verdict, ...]:
    """Every gate's verdict on one agent."""
    verdicts = []
    for gate in GATES:
        reason = gate.check(ask, agent, capability, fleet, now)
        verdicts.append(_OPEN[gate.name] if reason is None else Verdict(gate.name, gate.kind, passed=False, reason=reason))
    return tuple(verdicts)


_OPEN: Final = {gate.name: Verdict(gate.name, gate.kind, passed=True) for gate in GATES}
EXCLUDED_OPEN: Final = Verdict("excluded", GateKind.NOT_NOW, passed=True)


def excluded(reason: str) -> Verdict:
    """The verdict on an agent that steps back because another one can take the task."""
    return Verdict("excluded", GateKind.NOT_NOW, passed=False, reason=reason)
