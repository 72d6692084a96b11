"""What is judged, and what comes of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Remains:
    """Where tasks are when everything has stopped.

    ``logged``: what the reach log says, the state, of a dead letter its reason; when it ended (UTC microseconds, ``None``
    where it has no end). ``letters``: the reasons of the dead letters of each id. ``unread``: reason and body of those
    whose id is not one of ours. ``parked``: how often each is among the unmatched. ``left``: the queues that hold the
    others. ``parts``: of each task the ids of its legs and calls, with what the reach log says of them.
    """

    logged: Mapping[str, tuple[str, int | None]]
    letters: Mapping[str, Sequence[str]] = field(default_factory=dict)
    unread: Sequence[tuple[str, bytes]] = ()
    parked: Mapping[str, int] = field(default_factory=dict)
    left: Mapping[str, Sequence[str]] = field(default_factory=dict)
    parts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Violation:
    """A task that is not as it should be, with why; ``part``: the id of that part of it, if it is not all of it."""

    name: str
    why: str
    kind: str
    part: str = ""


@dataclass(slots=True)
class Verdict:
    """All of a run. What must be empty: ``lost``, ``stuck``, ``unexplained``, ``repeated``, ``garbled``.

    ``doubled``: by the id of the task, or of the leg or call, that was done twice.
    """

    lost: list[Violation] = field(default_factory=list)
    stuck: list[Violation] = field(default_factory=list)
    doubled: dict[str, str] = field(default_factory=dict)
    unexplained: list[Violation] = field(default_factory=list)
    repeated: list[Violation] = field(default_factory=list)
    garbled: list[Violation] = field(default_factory=list)
    wrong_ends: list[Violation] = field(default_factory=list)
    unanswered: list[Violation] = field(default_factory=list)
    unrecorded: list[Violation] = field(default_factory=list)
    doubled_letters: list[str] = field(default_factory=list)
    ends: dict[str, int] = field(default_factory=dict)

    @property
    def good(self) -> bool:
        """All that must be nothing is nothing."""
        return not any((self.lost, self.stuck, self.unexplained, self.repeated, self.garbled))

    def violations(self) -> Iterator[Violation]:
        """Whatever is not as it should be, the worst first."""
        for found in (self.lost, self.repeated, self.unexplained, self.garbled, self.stuck):
            yield from found
        for found in (self.wrong_ends, self.unanswered, self.unrecorded):
            yield from found
