"""The tasks of a run: what each asks for, when it is published, and how it may end. They follow from the seed alone."""

from collections.abc import Mapping, MutableSequence, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import orjson

from reach_worker.bench.chance import Chance
from reach_worker.chaos.draws import Draw, between, one_of, shuffle
from reach_worker.chaos.scale import Scale


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


SIDE_EFFECTS: Final = frozenset({Kind.PAY, Kind.PAY_THREAD, Kind.PAY_SLOW, Kind.PAY_FAILING})

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
}
"""Of a thousand tasks; the others are quick ones. Of each kind there is one at least."""

CAPABILITY: Final[Mapping[Kind, str]] = {
    **{kind: f"chaos.{kind.value}" for kind in Kind},
    Kind.UNCHECKED: "chaos.checked",
    Kind.FORGED: "chaos.quick",
    Kind.EXPIRING: "chaos.slow",
}

ANSWERED_SHARE: Final = 0.3
TWICE_SHARE: Final = 0.04
HALF: Final = 0.5
LATER_S: Final = (0.5, 8.0)
"""A duplicate comes at once, or so much later."""

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
}
"""The ends that a kind of task may come to: a state, or the reason of a dead letter."""


@dataclass(frozen=True, slots=True)
class PlannedTask:
    """A task. ``at_s`` counts from the first one; ``again_s``: when it is published once more, under the same id.

    A malformed one has no id that anybody could read: its name is somewhere in its body. ``words``: so many are put into
    a large one when it is sent.
    """

    name: str
    kind: Kind
    at_s: float
    body: bytes
    answered: bool = False
    again_s: tuple[float, ...] = ()
    headers: Mapping[str, Any] = field(default_factory=dict)
    words: int = 0

    @property
    def sent(self) -> bytes:
        """The body as it is published."""
        return self.body.replace(_WORDS, b"large " * self.words) if self.words else self.body

    @property
    def side_effects(self) -> bool:
        """Running it twice would do harm."""
        return self.kind in SIDE_EFFECTS


def plan_tasks(seed: int, scale: Scale) -> list[PlannedTask]:
    """The tasks of a run, in order: a steady stream, in which the kinds are mixed."""
    mix, content = Chance("chaos", seed, "mix").draw, Chance("chaos", seed, "content").draw
    kinds = [
        *(kind for kind, share in SHARES.items() for _ in range(max(1, scale.tasks * share // 1000))),
        *[Kind.POISON] * scale.poison,
    ]
    kinds += [Kind.QUICK] * max(1, scale.tasks - len(kinds))
    shuffle(kinds, mix)
    _poison_early(kinds, mix)
    return [
        _task(number, kind, number * scale.load_s / len(kinds), content) for number, kind in enumerate(kinds)
    ]


def _poison_early(kinds: MutableSequence[Kind], draw: Draw) -> None:
    """In the first half: it takes the longest, with a process that has to start again for each try."""
    for index in [index for index, kind in enumerate(kinds) if kind is Kind.POISON]:
        other = int(draw() * len(kinds) / 2)
        kinds[index], kinds[other] = kinds[other], kinds[index]


def _task(number: int, kind: Kind, at_s: float, draw: Draw) -> PlannedTask:
    name = f"{kind.value}-{number:06d}"
    if kind is Kind.MALFORMED:
        return PlannedTask(name, kind, at_s, _malformed(name, draw))
    content: dict[str, Any] = {
        "task_id": name,
        "capability": CAPABILITY[kind],
        "payload": _payload(kind, draw),
    }
    if kind is Kind.EXPIRING:
        content["deadline_ms"] = int(between(50, 1500, draw))
    if kind in SIDE_EFFECTS and draw() < HALF:  # the capability says so anyway
        content["side_effects"] = True
    again: tuple[float, ...] = ()
    if draw() < TWICE_SHARE and kind is not Kind.POISON:
        again = (at_s if draw() < HALF else round(at_s + between(*LATER_S, draw), 3),)
    return PlannedTask(
        name,
        kind,
        at_s,
        orjson.dumps(content),
        answered=draw() < ANSWERED_SHARE,
        again_s=again,
        headers=_FORGERY if kind is Kind.FORGED else {},
        words=int(between(5_000, 100_000, draw)) if kind is Kind.LARGE else 0,
    )


_WORDS: Final = b"<words>"
_FORGERY: Final[Mapping[str, Any]] = {
    "x-reach-life": 7,
    "x-reach-dispatch-id": "forged",
    "x-reach-task-id": "somebody-elses",
    "x-delivery-count": 99,
    "x-death": [{"reason": "expired", "queue": "nowhere", "count": 12}],
}


def _payload(kind: Kind, draw: Draw) -> dict[str, Any]:
    match kind:
        case Kind.SLOW | Kind.PAY_SLOW | Kind.EXPIRING:
            return {"hold": round(between(0.2, 1.5, draw), 3)}
        case Kind.THREAD | Kind.PAY_THREAD:
            return {"hold": round(between(0.0, 0.05, draw), 3)}
        case Kind.LARGE:
            return {"text": _WORDS.decode()}
        case Kind.FLAKY:
            return {"fails": 1 + int(draw() * 2)}
        case Kind.LIMITED:
            return {"fails": 1 + int(draw() * 2), "after": round(between(0.05, 0.8, draw), 3)}
        case Kind.POISON:
            return {"how": one_of(("exit", "segv"), draw)}
        case Kind.BLOCKING:
            return {"hold": round(between(1.0, 3.5, draw), 3)}
        case Kind.CHECKED:
            return {"number": int(draw() * 1000)}
        case Kind.UNCHECKED:
            return {"number": "not one"}
        case _:
            return {}


def _malformed(name: str, draw: Draw) -> bytes:
    forms: Sequence[bytes] = (
        b'{"task_id": "' + name.encode() + b'", "capability": ',
        b"\xff\xfe\x00" + name.encode() + b"\x80",
        orjson.dumps([name]),
        orjson.dumps({"metadata": {"name": name}, "capabilty": "chaos.quick"}),
        orjson.dumps({"metadata": {"name": name}, "capability": "chaos.quick", "deadline_ms": -1}),
        orjson.dumps({"metadata": {"name": name}, "capability": "chaos.quick", "payload": [1, 2]}),
        name.encode(),
        b"[" * 5000 + name.encode(),
    )
    return one_of(forms, draw)
