"""What the caller knows: what it published, what the broker confirmed, what was answered."""

from dataclasses import dataclass, field

from reach_worker.chaos.tasks import PlannedTask


@dataclass(slots=True)
class Board:
    """Times are UTC microseconds. ``answers``: the status of each answer, and when it came."""

    tasks: dict[str, PlannedTask]
    confirmed: dict[str, int] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)
    answers: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    published: int = 0
    unconfirmed: int = 0

    def final(self, name: str) -> list[str]:
        """The final answers of a task; one that says that nobody could take it is none."""
        return [status for status, _ in self.answers.get(name, ()) if status != "unmatched"]
