"""The tasks of a run: what each asks for, when it is published, and how it may end. They follow from the seed alone."""

from collections.abc import Mapping, MutableSequence, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from reach_worker.bench.chance import Chance
from reach_worker.chaos.draws import Draw, between, one_of, shuffle
from reach_worker.chaos.kinds import (
    CAPABILITY,
    DECLARE_EFFECTS,
    ENDS,
    FANOUTS,
    FIRST_N,
    RACES,
    READ,
    SHARES,
    SIDE_EFFECTS,
    STREAMS,
    TAKEN_BACK,
    Kind,
)
from reach_worker.chaos.scale import Scale

ANSWERED_SHARE: Final = 0.3
TWICE_SHARE: Final = 0.04
HALF: Final = 0.5
LATER_S: Final = (0.5, 8.0)
"""A duplicate comes at once, or so much later."""
TAKEN_BACK_S: Final = (0.0, 2.0)
"""So long after he has published it."""


@dataclass(frozen=True, slots=True)
class PlannedTask:
    """A task. ``at_s`` counts from the first one; ``again_s``: when it is published once more, under the same id.

    A malformed one has no id that anybody could read: its name is somewhere in its body. ``words``: so many are put into
    a large one when it is sent. ``taken_back_s``: when its caller takes it back, ``None`` if he never does.
    """

    name: str
    kind: Kind
    at_s: float
    body: bytes
    answered: bool = False
    again_s: tuple[float, ...] = ()
    headers: Mapping[str, Any] = field(default_factory=dict)
    words: int = 0
    taken_back_s: float | None = None

    @property
    def ends(self) -> frozenset[str]:
        """What it may come to."""
        return ENDS[self.kind] if self.taken_back_s is None else ENDS[self.kind] | {"cancelled"}

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
        **_MODES.get(kind, {}),
    }
    if kind is Kind.EXPIRING:
        content["deadline_ms"] = int(between(50, 1500, draw))
    if kind in DECLARE_EFFECTS and draw() < HALF:  # the capability says so anyway
        content["side_effects"] = True
    again: tuple[float, ...] = ()
    if draw() < TWICE_SHARE and kind is not Kind.POISON:
        again = (at_s if draw() < HALF else round(at_s + between(*LATER_S, draw), 3),)
    return PlannedTask(
        name,
        kind,
        at_s,
        orjson.dumps(content),
        answered=draw() < ANSWERED_SHARE or kind in READ,
        again_s=again,
        headers=_FORGERY if kind is Kind.FORGED else {},
        words=int(between(5_000, 100_000, draw)) if kind is Kind.LARGE else 0,
        taken_back_s=_taken_back_s(kind, at_s, draw),
    )


def _taken_back_s(kind: Kind, at_s: float, draw: Draw) -> float | None:
    if draw() >= TAKEN_BACK.get(kind, 0.0):
        return None
    return round(at_s + between(*TAKEN_BACK_S, draw), 3)


_MODES: Final[Mapping[Kind, Mapping[str, Any]]] = {
    Kind.RACE: {"mode": "race"},
    Kind.RACE_FAILING: {"mode": "race"},
    Kind.RACE_STREAM: {"mode": "race", "stream": True},
    Kind.FANOUT: {"mode": "fanout", "aggregate": "all"},
    Kind.FIRST: {"mode": "fanout", "aggregate": "first_n", "first_n": FIRST_N},
    Kind.VOTE: {"mode": "fanout", "aggregate": "vote"},
    Kind.STREAM: {"stream": True},
}
_HOLDS_S: Final[Mapping[Kind, tuple[float, float]]] = {
    **dict.fromkeys((Kind.SLOW, Kind.PAY_SLOW, Kind.EXPIRING, Kind.TAKEN_BACK), (0.2, 1.5)),
    **dict.fromkeys((Kind.THREAD, Kind.PAY_THREAD), (0.0, 0.05)),
    **dict.fromkeys((Kind.HANDOFF, Kind.PAY_HANDED, Kind.CALL, Kind.PAY_CALL), (0.0, 0.2)),
    Kind.BLOCKING: (1.0, 3.5),
}
"""How long their handlers take."""
_WORDS: Final = b"<words>"
_FORGERY: Final[Mapping[str, Any]] = {
    "x-reach-life": 7,
    "x-reach-dispatch-id": "forged",
    "x-reach-task-id": "somebody-elses",
    "x-delivery-count": 99,
    "x-death": [{"reason": "expired", "queue": "nowhere", "count": 12}],
}


def _payload(kind: Kind, draw: Draw) -> dict[str, Any]:
    if kind in _HOLDS_S:
        return {"hold": round(between(*_HOLDS_S[kind], draw), 3)}
    match kind:
        case Kind.LARGE:
            return {"text": _WORDS.decode()}
        case Kind.FLAKY:
            return {"fails": 1 + int(draw() * 2)}
        case Kind.LIMITED:
            return {"fails": 1 + int(draw() * 2), "after": round(between(0.05, 0.8, draw), 3)}
        case Kind.POISON:
            return {"how": one_of(("exit", "segv"), draw)}
        case Kind.CHECKED:
            return {"number": int(draw() * 1000)}
        case Kind.UNCHECKED:
            return {"number": "not one"}
        case _ if kind in STREAMS:
            return _speech(draw)
        case _ if kind in RACES | FANOUTS:
            return {"hold": round(between(0.0, 0.3, draw), 3), "odd": int(draw() * 8)}
        case _:
            return {}


def _speech(draw: Draw) -> dict[str, Any]:
    """So many pieces; of a quarter the first attempt breaks off before one of them."""
    chunks = 1 + int(draw() * 12)
    breaks = int(draw() * chunks) if draw() < HALF / 2 else None
    return {"chunks": chunks, "pause": round(between(0.0, 0.05, draw), 3), "breaks": breaks}


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
