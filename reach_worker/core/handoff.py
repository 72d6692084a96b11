"""Handing a task on: an agent has done its part, and another one goes on with the same task.

The outcome's body is what the agent says of the handoff, as JSON, and then the task's own body as it was; a header tells
where the one ends. So whoever settles it can go on in either way: with the next stretch, or, where the handoff is no
good, with the task as the agent had it. A stretch is one piece of work, a capability and a payload. It begins with a
budget of retries of its own; the history, the deadline and the number of hops go on.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson
from pydantic import BaseModel, ConfigDict, Field

from reach_worker.core.backoff import RetryPolicy
from reach_worker.core.dispatch import HANDOFF
from reach_worker.core.document import nearest
from reach_worker.core.envelope import Envelope, number
from reach_worker.core.fleet import Fleet
from reach_worker.core.json_object import object_in
from reach_worker.core.outcome import Attempt, DeadLetterReason, cut
from reach_worker.core.recovery import Bury
from reach_worker.core.tags import fold
from reach_worker.core.task import Refusal, Task, decode_task
from reach_worker.core.visits import Visit, been_at, work_name

LONGEST_REASON: Final = 300


class HandoffPolicy(BaseModel):
    """How far a task may be handed on, and calls may lead to calls."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    hops: int = Field(8, ge=0, le=32, description="handoffs, or calls within calls, of one task at most")


@dataclass(frozen=True, slots=True, kw_only=True)
class Handoff:
    """Where an agent hands its task on to, as it says it itself."""

    to_agent: str | None = None
    capability: str | None = None
    reason: str = ""
    context: Mapping[str, Any] = field(default_factory=dict)
    payload: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if not self.to_agent and not self.capability:
            raise ValueError("a handoff names to_agent, or capability, or both")


@dataclass(frozen=True, slots=True)
class BadHandoff:
    """It cannot be followed, through the fault of the agent that hands on."""

    why: str


@dataclass(frozen=True, slots=True)
class Stretch:
    """What comes next. ``holders``: agents that could have it; ``visit``: the agent that hands on, with what it had."""

    task: Task
    body: bytes
    name: str
    to_agent: str | None
    holders: frozenset[str]
    visit: Visit
    side_effects: bool
    words: str

    @property
    def capability(self) -> str:
        """The capability that is wanted now."""
        return self.task.capability or ""


@dataclass(frozen=True, slots=True)
class HandOn:
    """Route the next stretch."""

    envelope: Envelope
    stretch: Stretch


# -- on the wire


def said(handoff: Handoff, plain: Callable[[Any], Any] | None = None) -> bytes:
    """A handoff as JSON, objects in it as ``plain`` makes them. Raises ``TypeError``, ``ValueError``."""
    return orjson.dumps(
        {
            "to_agent": handoff.to_agent,
            "capability": handoff.capability,
            "reason": cut(handoff.reason, LONGEST_REASON),
            "context": dict(handoff.context),
            "payload": None if handoff.payload is None else dict(handoff.payload),
        },
        default=plain,
    )


def split(headers: Mapping[str, Any], body: bytes) -> tuple[bytes, bytes]:
    """The handoff (nothing, if the outcome is none) and the task's own body, of an outcome's body."""
    size = number(headers, HANDOFF) or 0
    return body[:size], body[size:]


def outcome_body(headers: dict[str, Any], text: bytes, own: bytes) -> bytes:
    """The body of an outcome that hands on, which ``headers`` say from now on; see :func:`split`."""
    headers[HANDOFF] = len(text)
    return text + own


def handoff_from(text: bytes) -> Handoff | BadHandoff:
    """What :func:`said` wrote. Never raises."""
    try:
        data = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        return BadHandoff(f"its handoff is no JSON: {error}")
    match data:
        case {
            "to_agent": (str() | None) as to_agent,
            "capability": (str() | None) as capability,
            "reason": str(reason),
            "context": dict(context),
            "payload": (dict() | None) as payload,
        } if to_agent or capability:
            return Handoff(
                to_agent=fold(to_agent) if to_agent else None,
                capability=fold(capability) if capability else None,
                reason=cut(reason, LONGEST_REASON),
                context=context,
                payload=payload,
            )
        case _:
            return BadHandoff("its handoff names neither an agent nor a capability, or has other fields")


# -- where to


def next_stretch(
    handoff: Handoff, own: bytes, envelope: Envelope, *, agent_id: str, fleet: Fleet, max_bytes: int
) -> Stretch | BadHandoff:
    """The task as the next agent gets it. ``own``: the body as ``agent_id`` had it."""
    aimed = _aim(handoff, envelope.capability, fleet)
    if isinstance(aimed, BadHandoff):
        return aimed
    capability, holders = aimed
    had_task = object_in(own)
    if not had_task:
        return BadHandoff("the task that it hands on came back as no JSON object")
    try:
        body = _next_body(
            handoff, own, had_task, capability, agent_id, same=capability == envelope.capability
        )
        had = work_name(envelope.capability, had_task.get("payload") or {})
    except (TypeError, ValueError) as error:
        return BadHandoff(f"what it hands on cannot be written: {error}")
    task = decode_task(body, max_bytes=max_bytes)
    if isinstance(task, Refusal):
        return BadHandoff(f"what it hands on, with the task as it was received, is no task: {task.error}")
    side_effects = task.side_effects or fleet.has_side_effects(capability)
    if side_effects and envelope.group is not None:
        return BadHandoff(
            f"it hands on to {capability}, which has side effects: what several agents have at once would be done "
            "more than once"
        )
    why = f": {handoff.reason}" if handoff.reason else ""
    to = f"{handoff.to_agent} for {capability}" if handoff.to_agent else f"whoever has {capability}"
    return Stretch(
        task=task,
        body=body,
        name=work_name(capability, task.payload),
        to_agent=handoff.to_agent,
        holders=holders,
        visit=Visit(agent_id, had),
        side_effects=side_effects,
        words=f"to {to}{why}",
    )


def _aim(handoff: Handoff, had: str, fleet: Fleet) -> tuple[str, frozenset[str]] | BadHandoff:
    """The capability that is meant, and who could have the task."""
    name, capability = handoff.to_agent, handoff.capability
    if name is None:
        holders = frozenset(offer.agent.agent_id for offer in fleet.capable(capability or ""))
        if holders:
            return capability or "", holders
        return BadHandoff(
            f"it hands on to {capability!r}, which no known agent has"
            + _near(capability or "", fleet.by_capability)
        )
    agent = fleet.agents.get(name)
    if agent is None:
        return BadHandoff(f"it hands on to {name!r}, and no such agent is known" + _near(name, fleet.agents))
    known = [each.id for each in agent.manifest.capabilities]
    if capability is None:
        capability = had if had in known else known[0] if len(known) == 1 else None
    if capability not in known:
        wanted = (
            f"the capability {capability!r}"
            if capability
            else f"{had!r}, so the handoff has to name a capability"
        )
        return BadHandoff(f"it hands on to {name}, which has not {wanted}; it has {', '.join(known)}")
    return capability, frozenset((name,))


def _near(name: str, known: Mapping[str, object]) -> str:
    close = nearest(name, list(known))
    return f", did you mean {close!r}?" if close else ""


def _next_body(
    handoff: Handoff, own: bytes, data: Mapping[str, Any], capability: str, agent_id: str, *, same: bool
) -> bytes:
    """The task's body with what is new. What the caller required of the agent's tags was said of the old capability."""
    before = data.get("handoff")
    dropped = {"intent", "handoff"} if same else {"intent", "handoff", "requires"}
    kept = {name: value for name, value in data.items() if name not in dropped}
    payload = kept.get("payload", {}) if handoff.payload is None else handoff.payload
    handed = {
        "from_agent": agent_id,
        "reason": handoff.reason,
        "context": handoff.context,
        "origin": (before.get("origin") if isinstance(before, dict) else None) or own.decode(),
    }
    return orjson.dumps({**kept, "capability": capability, "payload": payload, "handoff": handed})


# -- what follows


def hand_on(
    envelope: Envelope, attempt: Attempt, stretch: Stretch, *, limits: HandoffPolicy, retry: RetryPolicy
) -> HandOn | Bury:
    """What follows from a handoff: the next stretch, or no more. ``envelope`` is as the handing agent had it."""
    tried = envelope.with_attempt(attempt)
    visited = (*envelope.visited, stretch.visit)
    chain = " → ".join(visit.agent_id for visit in visited)
    to = stretch.to_agent or stretch.capability
    if envelope.hops >= limits.hops:
        return Bury(tried, DeadLetterReason.HOP_LIMIT, f"{too_far(limits)}: {chain} → {to}")
    if stretch.holders <= been_at(visited, stretch.name):
        error = f"it comes back in a circle: {chain} → {to}, which had {stretch.capability} with this very payload before"
        return Bury(tried, DeadLetterReason.HOP_LIMIT, error)
    if len(tried.attempts) >= retry.max_dispatches:
        error = f"{len(tried.attempts)} dispatches, the most that a task may have, the last: handed {stretch.words}"
        return Bury(tried, DeadLetterReason.ATTEMPTS_EXHAUSTED, error)
    if tried.deadline is not None and attempt.ended_at >= tried.deadline:
        return Bury(
            tried,
            DeadLetterReason.EXPIRED,
            f"no time left for another agent after it was handed {stretch.words}",
        )
    following = replace(
        tried,
        capability=stretch.capability,
        side_effects=stretch.side_effects,
        to_agent=stretch.to_agent,
        from_agent=stretch.visit.agent_id,
        hops=envelope.hops + 1,
        visited=visited,
        crashes=0,
        not_before=0,
    )
    return HandOn(following, stretch)


def too_far(limits: HandoffPolicy) -> str:
    """That the limit of hops is reached, in words."""
    return f"it was handed on or called for {limits.hops} times, which is the limit (handoff.hops)"
