"""A race or fan-out that a router leads, as far as it has come."""

from collections import OrderedDict
from dataclasses import dataclass, field

from reach_worker.core.envelope import Envelope
from reach_worker.core.group import Leg, LegEnd, Round, without_result
from reach_worker.core.task import Task


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
