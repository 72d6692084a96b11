"""May this agent have this task at all? Yes or no, with a reason that a person understands.

Two kinds. ``MAY_NOT``: no waiting would change it (only another manifest). ``NOT_NOW``: the task waits for it to pass.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Any, Final

from reach_worker.core.breaker import BreakerState, Refuses
from reach_worker.core.envelope import ANONYMOUS
from reach_worker.core.fleet import Fleet, Load, Offer
from reach_worker.core.foreign import is_foreign
from reach_worker.core.manifest import ANYONE, Capability, payload_problem
from reach_worker.core.personal_data import fields_named, told
from reach_worker.core.presence import PresenceState
from reach_worker.core.slots import share
from reach_worker.core.value import value


class GateKind(StrEnum):
    """What a closed gate means for the task."""

    MAY_NOT = "may_not"
    NOT_NOW = "not_now"


@value(frozen=True, slots=True)
class Verdict:
    """One gate's answer for one agent. ``reason`` is empty where it is open."""

    gate: str
    kind: GateKind
    passed: bool
    reason: str = ""


_Fields = tuple[tuple[str, str], ...]


@value(frozen=True, slots=True)
class Ask:
    """What the choice of an agent needs to know of a task. ``excluded``: agents that step back, with why.

    ``attempt`` counts from 1; ``waited_s``: seconds since it was ready to be routed; ``match``: similarity by agent,
    where the semantic level found them.

    ``from_agent`` handed it on, and is who asks now; ``visited``: agents that handed on this very piece of work before.

    ``wishes``: what it asks of an agent's manifest. ``checked`` keeps what was found in the payload, by schema, and
    ``personal`` its personal data, by the names looked for: a task that waits is planned again and again, for many
    agents, and its payload stays as it is.
    """

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
    from_agent: str | None = None
    visited: frozenset[str] = frozenset()
    session_id: str | None = None
    attempt: int = 1
    waited_s: float = 0.0
    match: Mapping[str, float] | None = None
    checked: dict[str, str | None] = field(default_factory=dict, compare=False, repr=False)
    personal: dict[frozenset[str], _Fields] = field(default_factory=dict, compare=False, repr=False)

    wishes: tuple[object, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "wishes", (self.requires, self.domain, self.asker, self.max_cost))

    @property
    def asker(self) -> str:
        """Who wants the work done: the agent that handed it on, else the caller."""
        return self.from_agent or self.caller

    def payload_fault(self, schema: str, capability: Capability) -> str | None:
        """What the capability's input schema (``schema`` as canonical JSON) forbids in the payload, if anything."""
        if schema not in self.checked:
            problem = payload_problem(capability, self.payload)
            self.checked[schema] = None if problem is None else f"payload{problem[0]}: {problem[1]}"
        return self.checked[schema]

    def personal_fields(self, names: frozenset[str]) -> _Fields:
        """Name and place of the payload's fields that bear one of the names."""
        if names not in self.personal:
            self.personal[names] = fields_named(self.payload, names)
        return self.personal[names]


@value(frozen=True, slots=True)
class Gate:
    """A named check: ``None`` lets the agent pass, a text is the reason why not."""

    name: str
    kind: GateKind
    check: Callable[[Ask, Offer, Fleet, float], str | None]


def _capability(ask: Ask, offer: Offer, _fleet: Fleet, _now: float) -> str | None:
    missing = [tag for tag in ask.requires if tag not in offer.capability.tags]
    return f"missing {', '.join(missing)}" if missing else None


def _schema(ask: Ask, offer: Offer, _fleet: Fleet, _now: float) -> str | None:
    return ask.payload_fault(offer.schema, offer.capability)


def _tags(ask: Ask, offer: Offer, _fleet: Fleet, _now: float) -> str | None:
    never = [tag for tag in ask.requires if tag in offer.agent.manifest.mutually_exclusive_tags]
    return f"never handles {', '.join(never)}" if never else None


def _domain(ask: Ask, offer: Offer, _fleet: Fleet, _now: float) -> str | None:
    allowed = offer.agent.manifest.permission_domains
    if ask.domain is None or ask.domain in allowed or ANYONE in allowed:
        return None
    return f"not allowed in domain {ask.domain}, only in {', '.join(allowed) or 'none'}"


def _caller(ask: Ask, offer: Offer, _fleet: Fleet, _now: float) -> str | None:
    allowed = offer.agent.manifest.callable_by
    if ANYONE in allowed or (ask.asker != ANONYMOUS and ask.asker in allowed):
        return None
    return f"not callable by {ask.asker}, only by {', '.join(allowed) or 'nobody'}"


def _personal_data(ask: Ask, offer: Offer, fleet: Fleet, _now: float) -> str | None:
    if not fleet.personal:
        return None
    unasked = [place for name, place in ask.personal_fields(fleet.personal) if name not in offer.asks]
    return f"does not ask for the personal data in {told(unasked)}" if unasked else None


def _price(ask: Ask, offer: Offer, _fleet: Fleet, _now: float) -> str | None:
    price = offer.agent.manifest.price
    if ask.max_cost is None or price is None:
        return None
    if price.per_1k_tokens:
        return f"charges by tokens, so nobody can say that it stays within {ask.max_cost:g}"
    cost = price.per_task or 0.0
    return f"costs {cost:g}, at most {ask.max_cost:g} is paid" if cost > ask.max_cost else None


def _sent_to(ask: Ask, offer: Offer, _fleet: Fleet, _now: float) -> str | None:
    if ask.to_agent is None or ask.to_agent == offer.agent.agent_id:
        return None
    return f"{ask.from_agent or 'a person'} sent it to {ask.to_agent}"


def _rejected(ask: Ask, offer: Offer, _fleet: Fleet, _now: float) -> str | None:
    if offer.agent.agent_id in ask.visited:
        return "handed on this very work before"
    return "said that it is not its own" if offer.agent.agent_id in ask.rejected_by else None


def _presence(_ask: Ask, offer: Offer, _fleet: Fleet, now: float) -> str | None:
    roster = offer.agent.roster
    state = roster.state()
    if state is PresenceState.ACTIVE:
        return None
    if state is PresenceState.STALLED:
        running, seconds = roster.stalled(now)
        return f"stalled: {running} running, nothing completed for {seconds:.0f} s"
    silent = roster.silent_for(now)
    if is_foreign(offer.agent.manifest):
        for_long = "" if silent is None else f" for {silent:.0f} s"
        return f"{state.value}, nobody consumes its queue{for_long}"
    return (
        f"{state.value}, no instance is known"
        if silent is None
        else f"{state.value}, silent for {silent:.0f} s"
    )


def _breaker(_ask: Ask, offer: Offer, _fleet: Fleet, now: float) -> str | None:
    answer = offer.agent.breaker.admits(now)
    return answer.reason if isinstance(answer, Refuses) else None


def _rested(_ask: Ask, offer: Offer, _fleet: Fleet, now: float) -> str | None:
    left = offer.agent.rests_until - now
    return f"rate limited for {math.ceil(left)} s more" if left > 0 else None


def _rate(_ask: Ask, offer: Offer, fleet: Fleet, now: float) -> str | None:
    left, rate = fleet.until_rate(offer.agent, now), offer.agent.rate
    if left <= 0 or rate is None:
        return None
    shared = f" shared by {fleet.routers} routers" if fleet.routers > 1 else ""
    unit = "task" if rate == 1 else "tasks"
    held = rate != offer.agent.manifest.rate
    what = "held back since it became slow, to" if held else "at its rate,"
    return f"{what} {rate:.3g} {unit} per second{shared}, next in {math.ceil(left * 10) / 10:g} s"


def _slots(_ask: Ask, offer: Offer, fleet: Fleet, _now: float) -> str | None:
    if fleet.full():
        return f"the router itself is full, {len(fleet.leases)} dispatches are under way"
    held, limit = fleet.leases.held(offer.agent.agent_id), fleet.limit(offer.agent, offer.capability.id)
    if held < limit or offer.agent.roster.state() is not PresenceState.ACTIVE:
        return None  # one that is away has no slots at all, and that it is away is another gate's word
    slots = fleet.slots(offer.agent)
    back = offer.agent.breaker.slots(slots)
    if back < slots:
        return f"slots come back in steps, {back} of {slots} now"
    return f"at max concurrency {held}/{limit}"


GATES: Final = (
    Gate("capability", GateKind.MAY_NOT, _capability),
    Gate("schema", GateKind.MAY_NOT, _schema),
    Gate("tags", GateKind.MAY_NOT, _tags),
    Gate("domain", GateKind.MAY_NOT, _domain),
    Gate("caller", GateKind.MAY_NOT, _caller),
    Gate("personal_data", GateKind.MAY_NOT, _personal_data),
    Gate("price", GateKind.MAY_NOT, _price),
    Gate("sent_to", GateKind.MAY_NOT, _sent_to),
    Gate("rejected", GateKind.MAY_NOT, _rejected),
    Gate("presence", GateKind.NOT_NOW, _presence),
    Gate("breaker", GateKind.NOT_NOW, _breaker),
    Gate("rested", GateKind.NOT_NOW, _rested),
    Gate("rate", GateKind.NOT_NOW, _rate),
    Gate("slots", GateKind.NOT_NOW, _slots),
)
"""Every gate that looks at one agent alone, in the order people read them."""

NEVER: Final = tuple(gate for gate in GATES if gate.kind is GateKind.MAY_NOT)
"""Those that no waiting opens."""
EXCLUDED: Final = "excluded"
FALLBACK: Final = "fallback"
"""The gates that look at the others too: they come last, see routing."""

OPEN: Final = (
    *(Verdict(gate.name, gate.kind, passed=True) for gate in GATES),
    Verdict(FALLBACK, GateKind.NOT_NOW, passed=True),
    Verdict(EXCLUDED, GateKind.NOT_NOW, passed=True),
)
"""The verdicts on an agent that may have the task, now."""


_BUSY: Final = tuple(gate for gate in GATES if gate.name == "slots")
_AWAY: Final = tuple(gate for gate in GATES if gate.name in {"presence", "slots"})
_BY_WISHES: Final = (_capability, _tags, _domain, _caller, _price)
"""Gates whose answer follows from the manifest and :meth:`Ask.wishes` alone."""
MOST_REMEMBERED: Final = 256
_CLOSED: Final = BreakerState.CLOSED


def in_doubt(
    ask: Ask, offers: tuple[Offer, ...], loads: Sequence[Load], fleet: Fleet, now: float
) -> list[tuple[Gate, ...]]:
    """Of each offer the gates that are not certainly open: those :func:`judge` has to ask, and no others.

    Everything in one loop: of a thousand agents a call for each would cost more than what it does.
    """
    if fleet.personal or ask.to_agent is not None:
        return [GATES] * len(offers)
    most = 0 if fleet.full() else fleet.slot_policy.per_agent
    if fleet.routers > 1:
        loads = [(held, share(slots, fleet.routers)) for held, slots in loads]
    found: list[tuple[Gate, ...]] = []
    for offer, (held, slots), may in zip(offers, loads, _may(ask, offers, fleet, now), strict=True):
        agent = offer.agent
        breaker = agent.breaker
        if not (
            may
            and breaker.state is _CLOSED  # and calm
            and breaker.ramp.successes is None
            and agent.rests_until <= now
            and agent.adapted.limit is None
        ):
            found.append(GATES)
        elif held < most and held < slots:
            found.append(())
        else:
            found.append(_by_slots(offer, held, slots, most, fleet))
    return found


def _by_slots(offer: Offer, held: int, slots: int, most: int, fleet: Fleet) -> tuple[Gate, ...]:
    """The gates in doubt where all slots are taken: none if there is a head start. Only who is active has slots."""
    if not slots:
        return _AWAY
    ahead = held < most and held < fleet.with_head_start(offer.agent, slots, offer.capability.id)
    return () if ahead else _BUSY


def _may(ask: Ask, offers: tuple[Offer, ...], fleet: Fleet, now: float) -> Sequence[bool]:
    """Of each offer whether the gates are open that follow from the manifest and the task."""
    fit = _fit(ask, offers, fleet, now)
    unfit = {
        schema
        for schema, capability in fit.schemas.items()
        if ask.payload_fault(schema, capability) is not None
    }
    never = ask.rejected_by | ask.visited
    if not unfit and not never:
        return fit.may
    return [
        may and offer.schema not in unfit and offer.agent.agent_id not in never
        for offer, may in zip(offers, fit.may, strict=True)
    ]


@value(frozen=True, slots=True)
class _Fit:
    """Of each offer whether the gates are open that follow from manifest and wishes; the schemas that there are."""

    offers: tuple[Offer, ...]
    may: Sequence[bool]
    schemas: Mapping[str, Capability]


def _fit(ask: Ask, offers: tuple[Offer, ...], fleet: Fleet, now: float) -> _Fit:
    """Kept as long as these are the offers. Of an agent with a rate no gate is certainly open."""
    key = (ask.capability, *ask.wishes)
    kept: _Fit | None = fleet.may.get(key)
    if kept is not None and kept.offers is offers:
        return kept
    if len(fleet.may) >= MOST_REMEMBERED:
        fleet.may.clear()
    may = [
        offer.agent.manifest.rate is None
        and all(check(ask, offer, fleet, now) is None for check in _BY_WISHES)
        for offer in offers
    ]
    found = fleet.may[key] = _Fit(offers, may, {offer.schema: offer.capability for offer in offers})
    return found


def judge(
    ask: Ask, offer: Offer, fleet: Fleet, now: float, gates: tuple[Gate, ...] = GATES
) -> tuple[Verdict, ...]:
    """The verdicts of the gates that are closed to one agent; nothing if all of them are open."""
    return tuple(
        [
            Verdict(gate.name, gate.kind, passed=False, reason=reason)
            for gate in gates
            if (reason := gate.check(ask, offer, fleet, now)) is not None
        ]
    )


def excluded(reason: str) -> Verdict:
    """The verdict on an agent that steps back because another one can take the task."""
    return Verdict(EXCLUDED, GateKind.NOT_NOW, passed=False, reason=reason)


def fallback(reason: str) -> Verdict:
    """The verdict on an agent that is kept for when no other can take the task."""
    return Verdict(FALLBACK, GateKind.NOT_NOW, passed=False, reason=reason)


def all_verdicts(closed: Sequence[Verdict]) -> tuple[Verdict, ...]:
    """Every gate's verdict, in order, where ``closed`` are those that are not open."""
    found = {verdict.gate: verdict for verdict in closed}
    return tuple(found.get(verdict.gate, verdict) for verdict in OPEN)
