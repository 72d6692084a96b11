"""What a run says in the end: figures for programs, a verdict for people, evidence for whoever has to find the fault."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from reach_worker.chaos.faults import Window
from reach_worker.chaos.findings import Verdict, Violation
from reach_worker.chaos.ledger import Run

MOST_SHOWN: Final = 12
AROUND_US: Final = 10_000_000
"""The faults shown for a task are those from so long before its first run to so long after its last."""


@dataclass(frozen=True, slots=True)
class Figures:
    """A run in numbers. The first eleven are what it is judged by; ``faults`` counts those that were brought about.

    ``rerouted``, ``told_lost``: what the readers of streams were told.
    """

    tasks: int
    faults: int
    lost: int
    doubled: int
    doubled_unexplained: int
    doubled_with_side_effects: int
    garbled: int
    stuck: int
    longest_stall_s: float
    memory_slope_mb_per_min: float
    seed: int
    good: bool = True
    seconds: float = 0.0
    rest_s: float | None = None
    faults_by_kind: Mapping[str, int] = field(default_factory=dict)
    failed_faults: int = 0
    ends: Mapping[str, int] = field(default_factory=dict)
    published: int = 0
    unconfirmed: int = 0
    answers: int = 0
    taken_back: int = 0
    rerouted: int = 0
    told_lost: int = 0
    runs: int = 0
    wrong_ends: int = 0
    unanswered: int = 0
    unrecorded: int = 0
    doubled_letters: int = 0
    doubled_ends: int = 0
    exits: Sequence[str] = ()
    audit: Any = None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def summary(figures: Figures) -> Iterator[str]:
    """The figures for people."""
    yield f"{figures.tasks} tasks, {figures.faults} faults, {figures.seconds:.0f} s, seed {figures.seed}"
    yield "  faults: " + _counted(figures.faults_by_kind)
    yield "  ends:   " + _counted(figures.ends)
    yield f"  lost {figures.lost}, stuck {figures.stuck}, garbled {figures.garbled}, doubled {figures.doubled}"
    yield f"  doubled unexplained {figures.doubled_unexplained}, with side effects {figures.doubled_with_side_effects}"
    yield (
        f"  taken back {figures.taken_back}; streams told {figures.rerouted} times that another run goes on, "
        f"and of {figures.told_lost} chunks that they are lost"
    )
    yield (
        f"  wrong ends {figures.wrong_ends}, unanswered {figures.unanswered}, unrecorded {figures.unrecorded}, "
        f"dead letters twice {figures.doubled_letters}"
    )
    yield f"  longest stall {figures.longest_stall_s:.1f} s, memory {figures.memory_slope_mb_per_min:+.2f} MB/min"
    for line in figures.exits:
        yield f"  {line}"


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "none"


def shown(verdict: Verdict) -> list[Violation]:
    """The violations that are told in full: not too many, some of each kind."""
    by_kind: dict[str, list[Violation]] = {}
    for violation in verdict.violations():
        by_kind.setdefault(violation.kind, []).append(violation)
    each = max(1, MOST_SHOWN // max(1, len(by_kind)))
    return [violation for found in by_kind.values() for violation in found[:each]]


def others(verdict: Verdict, told: Sequence[Violation]) -> Iterator[str]:
    """The names of those that are not told in full."""
    left: dict[str, list[str]] = {}
    for violation in verdict.violations():
        if violation not in told:
            left.setdefault(violation.kind, []).append(violation.name)
    yield from (f"also {kind}: {', '.join(names)}" for kind, names in left.items())


def evidence(violation: Violation, runs: Sequence[Run], windows: Iterable[Window]) -> Iterator[str]:
    """What is known of a violation, but for the reach log."""
    yield f"{violation.kind}: {violation.name}: {violation.why}"
    yield from (f"  ran: {run}" for run in runs) if runs else ["  it never ran"]
    if runs:
        from_us, to_us = runs[0].began_us - AROUND_US, runs[-1].began_us + AROUND_US
        yield from (f"  fault: {w}" for w in windows if w.from_us <= to_us and w.to_us >= from_us)
