"""Races and fan-outs that a router leads, as far as they have come."""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from reach_worker.core.envelope import Envelope
from reach_worker.core.group import Leg, LegEnd, Round, without_result
from reach_worker.core.task import Task

REMEMBERED: Final = 10_000


@dataclass(slots=True)
class Group:
    """A group.

    ``room``: bytes that are left for results. ``session``: the broker session in which it was certainly led here; after
    that one another router may have ended it. ``ends`` in the order they came. ``winner``: the leg that spoke first.
    ``silent``: dispatches of legs of which nothing is heard, with the session and the monotonic seconds since when.
    """

    envelope: Envelope
    task: Task
    body: bytes
    round: Round
    room: int
    session: int
    ends: OrderedDict[str, LegEnd] = field(default_factory=OrderedDict)
    winner: str | None = None
    silent: dict[str, tuple[int, float]] = field(default_factory=dict)

    def leg(self, task_id: str) -> Leg | None:
        """The leg of that id."""
        return next((leg for leg in self.round.legs if leg.task_id == task_id), None)

    def take(self, leg: Leg, end: LegEnd) -> None:
        """Note how a leg has ended; the first word counts."""
        if leg.task_id in self.ends:
            return
        if end.size > self.room:
            end = without_result(end, leg)
        else:
            self.room -= end.size
        self.ends[leg.task_id] = end


@dataclass(slots=True)
class Led:
    """``open``: the groups that are led here. ``over``: the last round that ended here, of those that ended last."""

    open: dict[str, Group] = field(default_factory=dict)
    over: OrderedDict[str, int] = field(default_factory=OrderedDict)

    def begun(self, envelope: Envelope) -> bool:
        """The next round of a task, or a later one, was begun here: the message behind it has come again."""
        next_round, group = stamp(envelope, envelope.next_attempt), self.open.get(envelope.task_id)
        later = group is not None and stamp(group.envelope, group.round.number) >= next_round
        return later or self.over.get(envelope.task_id, -1) >= next_round

    def is_over(self, envelope: Envelope, number: int) -> bool:
        """That round, or a later one, ended here."""
        return self.over.get(envelope.task_id, -1) >= stamp(envelope, number)

    def close(self, group: Group) -> None:
        """Its round is over."""
        task_id = group.envelope.task_id
        self.open.pop(task_id, None)
        self.over[task_id] = stamp(group.envelope, group.round.number)
        if len(self.over) > REMEMBERED:
            self.over.popitem(last=False)


def stamp(envelope: Envelope, number: int) -> int:
    """Rounds in order, over all lives of a task."""
    return envelope.life * 1_000 + number
