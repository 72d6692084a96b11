"""The kinds of tasks: how many there are of each, who takes what back, and how each may end."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Kind(StrEnum):
    """What a task does."""

    QUICK = "quick"
    THREAD = "thread"
    SLOW = "slow"
    LARGE = "large"
    FLAKY = "flaky"
    BROKEN = "broken"
    LIMITED = "limited"
    PICKY = "picky"
    REFUSED = "refused"
    CHECKED = "checked"
    UNCHECKED = "unchecked"
    NOBODY = "nobody"
    MALFORMED = "malformed"
    FORGED = "forged"
    EXPIRING = "expiring"
    POISON = "poison"
    BLOCKING = "blocking"
    DEAF = "deaf"
    PAY = "pay"
    PAY_THREAD = "pay-thread"
    PAY_SLOW = "pay-slow"
    PAY_FAILING = "pay-failing"
    RACE = "race"
    RACE_FAILING = "race-failing"
    RACE_STREAM = "race-stream"
    FANOUT = "fanout"
    FIRST = "fanout-first"
    VOTE = "fanout-vote"
    STREAM = "stream"
    HANDOFF = "handoff"
    CIRCLE = "circle"
    PAY_HANDED = "pay-handed"
    CALL = "call"
    PAY_CALL = "pay-call"
    TAKEN_BACK = "taken-back"


SIDE_EFFECTS: Final = frozenset(
    {Kind.PAY, Kind.PAY_THREAD, Kind.PAY_SLOW, Kind.PAY_FAILING, Kind.PAY_HANDED, Kind.PAY_CALL}
)
"""Somebody who works for it does what must not be done twice, at once or after it was handed on."""
DECLARE_EFFECTS: Final = SIDE_EFFECTS - {Kind.PAY_HANDED}
"""Their own capability says so. Of what is handed on first only the second agent's does."""
RACES: Final = frozenset({Kind.RACE, Kind.RACE_FAILING, Kind.RACE_STREAM})
FANOUTS: Final = frozenset({Kind.FANOUT, Kind.FIRST, Kind.VOTE})
STREAMS: Final = frozenset({Kind.STREAM, Kind.RACE_STREAM})
FIRST_N: Final = 2
"""So many results the caller of :attr:`Kind.FIRST` waits for."""
READ: Final = RACES | FANOUTS | STREAMS
"""Their caller always waits for what comes of them, and reads it."""

SHARES: Final[Mapping[Kind, int]] = {
    Kind.THREAD: 160,
    Kind.SLOW: 60,
    Kind.LARGE: 6,
    Kind.FLAKY: 50,
    Kind.BROKEN: 6,
    Kind.LIMITED: 30,
    Kind.PICKY: 40,
    Kind.REFUSED: 10,
    Kind.CHECKED: 30,
    Kind.UNCHECKED: 8,
    Kind.NOBODY: 5,
    Kind.MALFORMED: 10,
    Kind.FORGED: 10,
    Kind.EXPIRING: 20,
    Kind.BLOCKING: 1,
    Kind.DEAF: 3,
    Kind.PAY: 100,
    Kind.PAY_THREAD: 60,
    Kind.PAY_SLOW: 30,
    Kind.PAY_FAILING: 8,
    Kind.RACE: 12,
    Kind.RACE_FAILING: 8,
    Kind.RACE_STREAM: 8,
    Kind.FANOUT: 8,
    Kind.FIRST: 6,
    Kind.VOTE: 6,
    Kind.STREAM: 25,
    Kind.HANDOFF: 15,
    Kind.CIRCLE: 4,
    Kind.PAY_HANDED: 8,
    Kind.CALL: 12,
    Kind.PAY_CALL: 4,
    Kind.TAKEN_BACK: 15,
}
"""Of a thousand tasks; the others are quick ones. Of each kind there is one at least."""

CAPABILITY: Final[Mapping[Kind, str]] = {
    **{kind: f"chaos.{kind.value}" for kind in Kind},
    Kind.UNCHECKED: "chaos.checked",
    Kind.FORGED: "chaos.quick",
    Kind.EXPIRING: "chaos.slow",
    Kind.TAKEN_BACK: "chaos.slow",
}

TAKEN_BACK: Final[Mapping[Kind, float]] = {
    Kind.TAKEN_BACK: 1.0,
    **dict.fromkeys(READ | {Kind.HANDOFF, Kind.CALL}, 0.1),
    **dict.fromkeys((Kind.PAY_SLOW, Kind.PAY_HANDED, Kind.PAY_CALL), 0.1),
    Kind.FLAKY: 0.02,
}
"""Which share of a kind its caller takes back."""

_WORKS: Final = frozenset({"succeeded", "attempts_exhausted", "poison"})
"""How what any agent can do may end: done, or out of attempts where each one met a fault."""
_ONCE: Final = frozenset({"succeeded", "outcome_unknown", "attempts_exhausted", "poison"})
ENDS: Final[Mapping[Kind, frozenset[str]]] = {
    **dict.fromkeys(Kind, _WORKS),
    **dict.fromkeys(SIDE_EFFECTS, _ONCE),
    Kind.PAY_FAILING: _ONCE - {"succeeded"},
    Kind.BROKEN: _WORKS - {"succeeded"},
    Kind.POISON: _WORKS - {"succeeded"},
    Kind.REFUSED: frozenset({"bad_request", "attempts_exhausted", "poison"}),
    Kind.UNCHECKED: frozenset({"payload_refused"}),
    Kind.NOBODY: frozenset({"unmatched"}),
    Kind.MALFORMED: frozenset({"undecodable", "invalid"}),
    Kind.EXPIRING: _WORKS | {"expired"},
    **dict.fromkeys(FANOUTS, _WORKS | {"expired"}),  # "expired": nobody could work for as long as it waits
    Kind.CIRCLE: frozenset({"hop_limit", "attempts_exhausted", "poison"}),
}
"""The ends that a kind of task may come to: a state, or the reason of a dead letter."""
