"""What the caller knows: what it published, what the broker confirmed, what was answered."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reach_worker.chaos.kinds import READ, STREAMS
from reach_worker.chaos.listening import Listener
from reach_worker.chaos.tasks import PlannedTask


@dataclass(slots=True)
class Board:
    """Times are UTC microseconds. ``answers``: the status of each answer, and when it came.

    ``read``: the final answers, whole, of those tasks whose caller reads them; ``listeners``: those to streams.
    ``taken_back``: when he asked for them back.
    """

    tasks: dict[str, PlannedTask]
    confirmed: dict[str, int] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)
    taken_back: dict[str, int] = field(default_factory=dict)
    answers: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    read: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    listeners: dict[str, Listener] = field(default_factory=dict)
    published: int = 0
    unconfirmed: int = 0

    def hear(self, name: str, said: Mapping[str, Any], at_us: int) -> None:
        """Something came back for a task: a piece of what an agent says, or an answer."""
        kind = self.tasks[name].kind if name in self.tasks else None
        if kind in STREAMS:
            listener = self.listeners.setdefault(name, Listener())
            (listener.answered if said.get("final") else listener.hear)(said)
        if said.get("final") or "agent" not in said:
            self.answers.setdefault(name, []).append((str(said.get("status")), at_us))
        if said.get("final") and kind in READ:
            self.read.setdefault(name, []).append(said)

    def final(self, name: str) -> list[str]:
        """The final answers of a task; one that says that nobody could take it is none."""
        return [status for status, _ in self.answers.get(name, ()) if status != "unmatched"]
