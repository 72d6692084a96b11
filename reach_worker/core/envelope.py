"""What travels with a task: ids, caller, deadline, history, as message headers beside the untouched body.

The headers begin with ``x-reach-``. They are believed on our own queues and never on the public one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import orjson

from reach_worker.core.outcome import RULES, TEXT_LIMIT, Attempt, OutcomeClass
from reach_worker.core.value import value
from reach_worker.core.visits import VISITED, Visit, visits_from, written

ANONYMOUS: Final = "anonymous"

TASK: Final = "x-reach-task"
FLOW: Final = "x-reach-flow"
CAPABILITY: Final = "x-reach-capability"
CALLER: Final = "x-reach-caller"
FIRST_SEEN: Final = "x-reach-first-seen"
DEADLINE: Final = "x-reach-deadline"
SIDE_EFFECTS: Final = "x-reach-side-effects"
LIFE: Final = "x-reach-life"
REPLY_TO: Final = "x-reach-reply-to"
CORRELATION: Final = "x-reach-correlation"
CONTENT_TYPE: Final = "x-reach-content-type"
ATTEMPTS: Final = "x-reach-attempts"
RELEASED: Final = "x-reach-released"
CRASHES: Final = "x-reach-crashes"
PAST: Final = "x-reach-past"
REPLAYS: Final = "x-reach-replays"
PAID: Final = "x-reach-paid"
NOT_BEFORE: Final = "x-reach-not-before"
TO_AGENT: Final = "x-reach-to-agent"
GROUP: Final = "x-reach-group"
GROUP_OWNER: Final = "x-reach-group-owner"
GROUP_ROUND: Final = "x-reach-group-round"
RACE: Final = "x-reach-race"
FROM_AGENT: Final = "x-reach-from-agent"
HOPS: Final = "x-reach-hops"

PASSED_ON: Final = ("traceparent", "tracestate", "baggage")
"""Headers of the caller that travel on: the W3C trace context. All others end at the router."""
LONGEST_PASSED_ON: Final = 512

HISTORY_BYTES: Final = 17 * 1024
"""Attempts as JSON take no more: all headers of a message together have 64 KB, and what is larger cannot be sent at all.
Forty attempts (the most that ``max_dispatches`` allows) fit, if need be without their messages."""
MOST_RELEASED: Final = 8
LARGEST_NUMBER: Final = 2**63 - 1
"""The largest whole number that a header holds."""


@value(frozen=True, slots=True)
class Envelope:
    """Everything that must travel with a task. Times are UTC microseconds.

    ``life`` counts how often the task began anew: 0 at first, one more with each replay. ``side_effects``: running it
    twice would do harm, by the task's or the capability's word. ``to_agent``: a person, or ``from_agent``, chose the
    agent. ``past``: the attempts of earlier lives, as JSON text; they are shown and never counted. ``released``:
    dispatches that came back unrun since the last attempt, the latest last; they count as nothing, but not at full
    speed for ever. ``crashes``: processes that went away while they had it, nobody knows whether because of it: from the
    first one on it runs alone. ``paid``: the number of the attempt for which the retry budget was asked, so that it is
    asked once. ``from_agent``: the agent that handed it on last, or that calls; ``hops``: how often that was so,
    ``visited``: by whom, oldest first. ``group``: the task id of the race or fan-out that this one is a leg of
    (see :mod:`core.group`); ``group_owner``: the router that leads it; ``group_round``: the attempt of that task that it
    belongs to; ``race``: what it says waits until it has won.
    """

    task_id: str
    flow_id: str
    capability: str
    caller: str
    first_seen: int
    deadline: int | None = None
    side_effects: bool = False
    life: int = 0
    reply_to: str | None = None
    correlation_id: str | None = None
    content_type: str | None = None
    attempts: tuple[Attempt, ...] = ()
    past: str | None = None
    replays: int = 0
    not_before: int = 0
    to_agent: str | None = None
    passed_on: tuple[tuple[str, str], ...] = ()
    released: tuple[str, ...] = ()
    crashes: int = 0
    paid: int = 0
    group: str | None = None
    group_owner: str = ""
    group_round: int = 0
    race: bool = False
    from_agent: str | None = None
    hops: int = 0
    visited: tuple[Visit, ...] = ()

    @property
    def next_attempt(self) -> int:
        """The number of the attempt that would come now; attempts count from 1."""
        return 1 + len(self.attempts)

    @property
    def tip(self) -> str:
        """The dispatch after which this copy goes on; empty before the first one."""
        if self.released:
            return self.released[-1]
        return self.attempts[-1].dispatch_id if self.attempts else ""

    @property
    def stretch(self) -> tuple[Attempt, ...]:
        """The attempts since it was handed on last: what was before is another agent's, of another piece of work."""
        if not self.attempts:
            return ()
        handed = (n for n, a in enumerate(self.attempts, 1) if a.outcome is OutcomeClass.HANDOFF)
        return self.attempts[max(handed, default=0) :]

    @property
    def retries_spent(self) -> int:
        """Attempts of this stretch that count toward the configured retries."""
        return sum(1 for attempt in self.stretch if RULES[attempt.outcome].spends_retry)

    @property
    def asks_budget(self) -> bool:
        """The next attempt is a retry, and the retry budget was not asked for it yet."""
        spent = bool(self.attempts) and RULES[self.attempts[-1].outcome].spends_retry
        return spent and self.paid != self.next_attempt

    def excluded(self) -> dict[str, str]:
        """Agents that step back for this task, with why."""
        return {
            attempt.agent_id: f"{attempt.outcome.value} at attempt {attempt.number}"
            for attempt in self.stretch
            if RULES[attempt.outcome].excludes
        }

    def rejected_by(self) -> frozenset[str]:
        """Agents that said it is not their capability: they do not get it again."""
        return frozenset(a.agent_id for a in self.stretch if a.outcome is OutcomeClass.REJECTED)

    def chain(self, agent_id: str = "") -> tuple[str, ...]:
        """Who had it one after the other, the last one being ``agent_id``."""
        return (*(visit.agent_id for visit in self.visited), *([agent_id] if agent_id else []))

    @property
    def owner(self) -> str:
        """Who may cancel it: its caller. A call of an agent has none: it belongs to whoever knows its id."""
        return ANONYMOUS if self.caller in self.chain() else self.caller

    def with_attempt(self, attempt: Attempt) -> "Envelope":
        """The same task with one more attempt behind it."""
        return replace(self, attempts=(*self.attempts, attempt), released=())

    def with_release(self, dispatch_id: str) -> "Envelope":
        """The same task after one more dispatch of it came back unrun."""
        return replace(self, released=(*self.released, dispatch_id)[-MOST_RELEASED:])

    def history(self) -> frozenset[str]:
        """The ids of the dispatches that this copy of the task has behind it."""
        return frozenset((*self.released, *(attempt.dispatch_id for attempt in self.attempts)))

    def knows_end_of(self, dispatch_id: str) -> bool:
        """This copy of the task has gone on since that dispatch."""
        return dispatch_id in self.history()

    def remaining_us(self, now_us: int) -> int | None:
        """Microseconds until the deadline, ``None`` where there is none."""
        return None if self.deadline is None else self.deadline - now_us

    def headers(self) -> dict[str, str | int]:
        """The headers that carry it. What is not set is left out, and what :func:`envelope_from` takes for granted."""
        headers: dict[str, str | int] = {
            TASK: self.task_id,
            CAPABILITY: self.capability,
            FIRST_SEEN: self.first_seen,
        }
        if self.flow_id != self.task_id or self.from_agent is not None:
            headers[FLOW] = self.flow_id
        if self.caller != ANONYMOUS:
            headers[CALLER] = self.caller
        self._add_wishes(headers)
        self._add_past(headers)
        self._add_kin(headers)
        headers.update(self.passed_on)
        return headers

    # One question for each header, in plain words: this is asked of every message, and a loop takes eight times as long.

    def _add_wishes(self, headers: dict[str, str | int]) -> None:
        if self.deadline is not None:
            headers[DEADLINE] = self.deadline
        if self.side_effects:
            headers[SIDE_EFFECTS] = 1
        if self.reply_to is not None:
            headers[REPLY_TO] = self.reply_to
        if self.correlation_id is not None:
            headers[CORRELATION] = self.correlation_id
        if self.content_type is not None:
            headers[CONTENT_TYPE] = self.content_type
        if self.to_agent is not None:
            headers[TO_AGENT] = self.to_agent
        if self.not_before:
            headers[NOT_BEFORE] = self.not_before

    def _add_past(self, headers: dict[str, str | int]) -> None:
        if self.life:
            headers[LIFE] = self.life
        if self.attempts:
            headers[ATTEMPTS] = _attempts_json(self.attempts)
        if self.past is not None:
            headers[PAST] = self.past
        if self.released:
            headers[RELEASED] = " ".join(self.released)
        if self.replays:
            headers[REPLAYS] = self.replays
        if self.crashes:
            headers[CRASHES] = self.crashes
        if self.paid:
            headers[PAID] = self.paid

    def _add_kin(self, headers: dict[str, str | int]) -> None:
        if self.group is not None:
            headers[GROUP] = self.group
        if self.group_owner:
            headers[GROUP_OWNER] = self.group_owner
        if self.group_round:
            headers[GROUP_ROUND] = self.group_round
        if self.race:
            headers[RACE] = 1
        if self.from_agent is not None:
            headers[FROM_AGENT] = self.from_agent
        if self.hops:
            headers[HOPS] = self.hops
        if self.visited:
            headers[VISITED] = written(self.visited)


def _attempts_json(attempts: Sequence[Attempt]) -> str:
    """Attempts as JSON text, their messages cut as far as it takes."""
    text = b""
    for longest in (TEXT_LIMIT, TEXT_LIMIT // 3, TEXT_LIMIT // 10, 0):
        text = orjson.dumps([attempt.as_dict(longest) for attempt in attempts])
        if len(text) <= HISTORY_BYTES:
            break
    return text.decode()


@value(frozen=True, slots=True)
class BadHeaders:
    """Internal headers that do not say what they must, with what is wrong."""

    error: str


def text(headers: Mapping[str, Any], name: str) -> str | None:
    """A header as text, ``None`` where it is absent or no text."""
    value = headers.get(name)
    return value if isinstance(value, str) else None


def number(headers: Mapping[str, Any], name: str) -> int | None:
    """A header as a whole number from 0, ``None`` where it is absent or none that could be sent on."""
    value = headers.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= LARGEST_NUMBER else None


def envelope_from(headers: Mapping[str, Any]) -> Envelope | BadHeaders:
    """What :meth:`Envelope.headers` wrote. Only for messages from our own queues."""
    task_id, first_seen = text(headers, TASK), number(headers, FIRST_SEEN)
    if not task_id or first_seen is None:
        return BadHeaders(f"{TASK} or {FIRST_SEEN} is missing: this did not come through the intake queue")
    try:
        attempts = attempts_from(headers)
    except ValueError as error:
        return BadHeaders(f"{ATTEMPTS} cannot be read: {error}")
    try:
        visited = visits_from(text(headers, VISITED))
    except ValueError as error:
        return BadHeaders(f"{VISITED} cannot be read: {error}")
    said = _said(headers)
    return Envelope(
        task_id=task_id,
        flow_id=said.pop("flow_id", "") or task_id,
        capability=said.pop("capability", ""),
        caller=said.pop("caller", "") or ANONYMOUS,
        first_seen=first_seen,
        side_effects=bool(number(headers, SIDE_EFFECTS)),
        race=bool(number(headers, RACE)),
        attempts=attempts,
        passed_on=passed_on(headers),
        released=tuple((text(headers, RELEASED) or "").split())[-MOST_RELEASED:],
        visited=visited,
        **said,
    )


_TEXTS: Final = {
    FLOW: "flow_id",
    CAPABILITY: "capability",
    CALLER: "caller",
    REPLY_TO: "reply_to",
    CORRELATION: "correlation_id",
    CONTENT_TYPE: "content_type",
    PAST: "past",
    TO_AGENT: "to_agent",
    GROUP: "group",
    GROUP_OWNER: "group_owner",
    FROM_AGENT: "from_agent",
}
_NUMBERS: Final = {
    DEADLINE: "deadline",
    LIFE: "life",
    REPLAYS: "replays",
    CRASHES: "crashes",
    PAID: "paid",
    NOT_BEFORE: "not_before",
    GROUP_ROUND: "group_round",
    HOPS: "hops",
}


def _said(headers: Mapping[str, Any]) -> dict[str, Any]:
    """What is there of the fields that are a text or a number. Few headers of many are; so each is asked what it is."""
    said: dict[str, Any] = {}
    for name, word in headers.items():
        if (field := _TEXTS.get(name)) is not None:
            if isinstance(word, str):
                said[field] = word
        elif (field := _NUMBERS.get(name)) is not None and (found := number(headers, name)) is not None:
            said[field] = found
    return said


def attempts_from(headers: Mapping[str, Any]) -> tuple[Attempt, ...]:
    """The attempts so far. Raises ``ValueError`` if the header is not ours."""
    raw = text(headers, ATTEMPTS)
    if raw is None:
        return ()
    match orjson.loads(raw):
        case [*items]:
            return tuple(Attempt.from_dict(item) for item in items)
        case _:
            raise ValueError("it is no list")


def passed_on(headers: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """The caller's headers that travel on. One that is too long is left out: cut it would say something else."""
    if headers.keys().isdisjoint(PASSED_ON):
        return ()
    found = ((name, text(headers, name)) for name in PASSED_ON)
    return tuple((name, value) for name, value in found if value is not None and _passes(value))


def _passes(value: str) -> bool:
    return len(value) <= LONGEST_PASSED_ON and value.isascii() and value.isprintable()
