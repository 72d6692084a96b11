"""One look for the audit, and looking again: the store at one moment, then the broker, then whoever answers.

The store comes first. What it says was sent had been sent, so a letter that it knows of must be found after it; what
is found and not known there is asked for once more.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from reach_worker.cli.audit_broker import Broker, ask, held_by, patience_of
from reach_worker.cli.roll_call import known_manifests
from reach_worker.core.audit import Key, OpenLife, Orphan, orphan, place, still
from reach_worker.core.duplicates import TaskState
from reach_worker.core.manifest import Manifest
from reach_worker.errors import OutsideWorld
from reach_worker.ports import Clock
from reach_worker.settings import Settings
from reach_worker.store.audit_rows import DeadTask, DoubledEnd
from reach_worker.store.conservation import Conservation

NAMED: Final = 1000
"""Of each kind of oddity so many are named; all are counted."""
LONGEST_PAUSE_S: Final = 8.0


@dataclass(slots=True)
class Named:
    """Oddities of one kind: how many there are, and the first of them."""

    count: int = 0
    first: list[Mapping[str, object]] = field(default_factory=list)

    def add(self, **what: object) -> None:
        """One more."""
        self.count += 1
        if len(self.first) < NAMED:
            self.first.append(what)


@dataclass(slots=True)
class Report:
    """What the audit found. ``unchecked``: what could not be looked at, and why."""

    accepted: int = 0
    ended: dict[str, int] = field(default_factory=dict)
    open: int = 0
    waiting: Counter[str] = field(default_factory=Counter)
    doubled: list[DoubledEnd] = field(default_factory=list)
    orphans: list[Orphan] = field(default_factory=list)
    letters_gone: Named = field(default_factory=Named)
    letters_left: Named = field(default_factory=Named)
    letters_twice: Named = field(default_factory=Named)
    unknown: Named = field(default_factory=Named)
    letters: int = 0
    unmatched: int = 0
    intake: int = 0
    spilled: int = 0
    unreadable: int = 0
    unchecked: list[str] = field(default_factory=list)
    strict: bool = False
    suspects: list[OpenLife] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Every accepted task is accounted for, as far as was asked, and everything was looked at."""
        lost = self.orphans or self.doubled or self.unreadable or self.unchecked
        return not lost and not (self.strict and self.letters_gone.count)


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked: lives first seen since then; ``strict``: no dead letter may have left the dlq unseen."""

    since_us: int = 0
    strict: bool = False
    patience_s: float = 40.0
    listen_s: float = 1.5


async def audit(settings: Settings, question: Question, clock: Clock) -> Report:
    """Look, and while there are suspects look again, until they have moved or the patience is over."""
    manifests = await known_manifests(settings)
    ends_at = clock.monotonic() + question.patience_s
    before: set[tuple[object, ...]] | None = None
    pause_s = 1.0
    while True:
        report = await _look(settings, question, manifests, clock)
        report.suspects = still(report.suspects, before)
        left_s = ends_at - clock.monotonic()
        gone = question.strict and report.letters_gone.count
        if report.unchecked or not (report.suspects or gone) or left_s <= 0:
            break
        before = {one.position for one in report.suspects}
        await clock.sleep(min(pause_s, left_s))
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
    if not report.unchecked:
        report.orphans = [
            orphan(one, report.intake) for one in report.suspects if one.first_seen >= question.since_us
        ]
    return report


async def _look(
    settings: Settings, question: Question, manifests: Mapping[str, Manifest], clock: Clock
) -> Report:
    report = Report(strict=question.strict)
    try:
        async with Conservation(settings.store.path) as store:
            await _count(report, store, question)
            lives = await store.open_lives()
            broker = await ask(settings, question.listen_s, manifests, lives)
            report.unchecked += broker.unchecked
            if broker.letters is not None:
                async for dead in store.dead(question.since_us):
                    _dead(report, dead, broker.letters)
    except OutsideWorld as error:
        report.unchecked.append(f"the store: {error}; no end and no open task was looked at")
        broker = await ask(settings, question.listen_s, manifests, [])
        report.unchecked += broker.unchecked
        _count_letters(report, broker)
        return report
    _count_letters(report, broker)
    held = held_by(settings, manifests, lives, broker)
    placed = place(lives, held, patience_of(settings, manifests), clock.utc_us())
    report.suspects = placed.suspects
    report.waiting = placed.waiting
    report.intake = held.intake
    await _compare(settings, report, broker)
    return report


async def _count(report: Report, store: Conservation, question: Question) -> None:
    states = await store.states(question.since_us)
    report.open = states.pop("open", 0)
    report.ended = states
    report.accepted = report.open + sum(states.values())
    report.doubled = await store.doubled(question.since_us)
    report.spilled, report.unreadable = store.spilled, store.unreadable


def _count_letters(report: Report, broker: Broker) -> None:
    report.letters = len(broker.letters or ())
    report.unmatched = len(broker.unmatched or ())


def _dead(report: Report, dead: DeadTask, letters: Collection[Key]) -> None:
    if (dead.task_id, dead.life) not in letters:
        report.letters_gone.add(
            task_id=dead.task_id, life=dead.life, reason=dead.reason, ended_at=dead.ended_at
        )


async def _compare(settings: Settings, report: Report, broker: Broker) -> None:
    """What is in dlq and unmatched, by what the store knows of it now."""
    found = [("dlq", key, outcome) for key, outcome in (broker.letters or {}).items()]
    found += [("unmatched", key, False) for key in broker.unmatched or ()]
    if not found:
        return
    try:
        async with Conservation(settings.store.path) as store:
            known = await store.known({task_id for _, (task_id, _), _ in found})
    except OutsideWorld as error:
        report.unchecked.append(
            f"the store, which is away by now: {error}; what lies in dlq was not compared"
        )
        return
    for task_id, life in broker.twice:
        if (task_id, life) in known:
            report.letters_twice.add(task_id=task_id, life=life)
    wanted = {"dlq": TaskState.DEAD_LETTER, "unmatched": TaskState.UNMATCHED}
    for queue, key, outcome in found:
        state = known.get(key)
        if state is None:
            report.unknown.add(task_id=key[0], life=key[1], where=queue, is_outcome=outcome)
        elif state is not wanted[queue]:
            report.letters_left.add(task_id=key[0], life=key[1], where=queue, state=state.value)
