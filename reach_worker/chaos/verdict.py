"""What a run came to: every confirmed task has one end, what ran twice is explained by a fault. Plain arithmetic.

- **lost**: a confirmed task without an end, or with two: not done, not among the dead letters, not among the unmatched,
  and nowhere on the broker; or the reach log says that it is a dead letter (unmatched) and the queue does not have it.
- **stuck**: it has no end when everything should have come to rest, and is still somewhere on the broker.
- **doubled**: its handler came to a successful end more than once. **Unexplained** where no fault that touches anything
  the task went through (broker, store, a router, the agents of the two runs) was at work between the start of the one
  run and the start of the next; a fault counts until :data:`SLACK_US` after its end.
- **doubled with side effects**: its handler was begun more than once, however the runs ended.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from reach_worker.chaos.board import Board
from reach_worker.chaos.faults import BROKER, STORE, Window
from reach_worker.chaos.ledger import OK, Run
from reach_worker.chaos.scale import ROUTERS
from reach_worker.chaos.tasks import ENDS, Kind, PlannedTask

SLACK_US: Final = 3_000_000
UNKNOWN: Final = "outcome_unknown"


@dataclass(frozen=True, slots=True)
class Remains:
    """Where tasks are when everything has stopped.

    ``logged``: what the reach log says, the state, of a dead letter its reason; when it ended (UTC microseconds, ``None``
    where it has no end). ``letters``: the reasons of the dead letters of each id. ``unread``: reason and body of those
    whose id is not one of ours. ``parked``: how often each is among the unmatched. ``left``: the queues that hold the
    others.
    """

    logged: Mapping[str, tuple[str, int | None]]
    letters: Mapping[str, Sequence[str]] = field(default_factory=dict)
    unread: Sequence[tuple[str, bytes]] = ()
    parked: Mapping[str, int] = field(default_factory=dict)
    left: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Violation:
    """A task that is not as it should be, with why."""

    name: str
    why: str
    kind: str


@dataclass(slots=True)
class Verdict:
    """All of a run. What must be empty: ``lost``, ``stuck``, ``unexplained``, ``repeated``."""

    lost: list[Violation] = field(default_factory=list)
    stuck: list[Violation] = field(default_factory=list)
    doubled: dict[str, str] = field(default_factory=dict)
    unexplained: list[Violation] = field(default_factory=list)
    repeated: list[Violation] = field(default_factory=list)
    wrong_ends: list[Violation] = field(default_factory=list)
    unanswered: list[Violation] = field(default_factory=list)
    unrecorded: list[Violation] = field(default_factory=list)
    doubled_letters: list[str] = field(default_factory=list)
    ends: dict[str, int] = field(default_factory=dict)

    @property
    def good(self) -> bool:
        """All that must be nothing is nothing."""
        return not any((self.lost, self.stuck, self.unexplained, self.repeated))

    def violations(self) -> Iterator[Violation]:
        """Whatever is not as it should be, the worst first."""
        for found in (self.lost, self.repeated, self.unexplained, self.stuck):
            yield from found
        for found in (self.wrong_ends, self.unanswered, self.unrecorded):
            yield from found


def judge(
    board: Board, runs: Mapping[str, Sequence[Run]], remains: Remains, windows: Sequence[Window]
) -> Verdict:
    """The verdict on all tasks that the broker had confirmed."""
    verdict = Verdict()
    for name in board.confirmed:
        task = board.tasks[name]
        if task.kind is Kind.MALFORMED:
            _judge_malformed(task, remains, verdict)
        else:
            _judge_end(task, board, remains, verdict)
        _judge_runs(task, runs.get(name, ()), windows, verdict)
    return verdict


def agrees(audit: Any, status: int, verdict: Verdict) -> bool:
    """Whether ``reach audit`` found nothing that the verdict does not know and can explain.

    It counts every life with two ends. Here those are no fault whose task was done, or buried, twice for a known reason,
    or whose two ends are the same one, written down twice.
    """
    if status == 0:
        return True
    if not isinstance(audit, dict) or any(
        audit.get(name) for name in ("orphans", "unchecked", "spilled_unreadable")
    ):
        return False
    unexplained = {violation.name for violation in verdict.unexplained}
    known = (set(verdict.doubled) | set(verdict.doubled_letters)) - unexplained
    doubled = audit.get("doubled", ())
    return bool(doubled) and all(one["task_id"] in known or _the_same(one.get("ends", ())) for one in doubled)


def _the_same(ends: Sequence[Mapping[str, Any]]) -> bool:
    return len({(end["state"], end["reason"]) for end in ends}) == 1


def _judge_malformed(task: PlannedTask, remains: Remains, verdict: Verdict) -> None:
    """Nobody could read its id; its body says which it was."""
    reasons = [reason for reason, body in remains.unread if task.name.encode() in body]
    reasons += remains.letters.get(task.name, ())
    if not reasons:
        verdict.lost.append(Violation(task.name, "it is not among the dead letters", "lost"))
        return
    if len(reasons) > 1:
        verdict.doubled_letters.append(task.name)
    _count_end(task, reasons[0], verdict)


def _judge_end(task: PlannedTask, board: Board, remains: Remains, verdict: Verdict) -> None:
    name = task.name
    logged, _ = remains.logged.get(name, (None, None))
    letters, parked, answers = remains.letters.get(name, ()), remains.parked.get(name, 0), board.final(name)
    if len(letters) > 1:
        verdict.doubled_letters.append(name)
    fault = _fault_of(logged, letters, parked)
    end = _end_of(logged, letters, parked, answers)
    if fault is not None:
        verdict.lost.append(Violation(name, fault, "lost"))
    elif end is None:
        _without_end(name, logged, remains, verdict)
    else:
        if end != logged:
            why = f"it ended as {end}, and the reach log has {logged or 'nothing of it'}"
            verdict.unrecorded.append(Violation(name, why, "unrecorded"))
        _count_end(task, end, verdict)
        if task.answered and name not in board.answers:
            verdict.unanswered.append(Violation(name, f"it ended as {end}, and no answer came", "unanswered"))


def _fault_of(logged: str | None, letters: Sequence[str], parked: int) -> str | None:
    """What the log and the queues say against each other."""
    if logged == "succeeded" and any(reason != UNKNOWN for reason in letters):
        return f"two ends: it succeeded, and is a dead letter ({', '.join(letters)})"
    if letters and parked:
        return f"two ends: it is a dead letter ({', '.join(letters)}), and is unmatched"
    if logged == "unmatched" and not parked:
        return "the reach log says that it is unmatched, and the queue does not have it"
    if logged not in (None, "under_way", "succeeded", "unmatched", "cancelled") and not letters:
        return f"the reach log says that it is a dead letter ({logged}), and the queue does not have it"
    return None


def _end_of(logged: str | None, letters: Sequence[str], parked: int, answers: Sequence[str]) -> str | None:
    if logged is not None and logged != "under_way":
        return logged
    if letters:
        return letters[0]
    if parked:
        return "unmatched"
    return answers[0] if answers else None


def _without_end(name: str, logged: str | None, remains: Remains, verdict: Verdict) -> None:
    seen = "the reach log has it as under way" if logged else "the reach log does not know it"
    if name in remains.left:
        where = ", ".join(remains.left[name])
        verdict.stuck.append(Violation(name, f"no end; {seen}; it is in {where}", "stuck"))
    else:
        verdict.lost.append(Violation(name, f"no end; {seen}; no queue has it", "lost"))


def _count_end(task: PlannedTask, end: str, verdict: Verdict) -> None:
    verdict.ends[end] = verdict.ends.get(end, 0) + 1
    if end not in ENDS[task.kind]:
        expected = ", ".join(sorted(ENDS[task.kind]))
        verdict.wrong_ends.append(Violation(task.name, f"it ended as {end}, not as {expected}", "wrong end"))


def _judge_runs(task: PlannedTask, runs: Sequence[Run], windows: Sequence[Window], verdict: Verdict) -> None:
    done = [run for run in runs if run.how == OK]
    if len(done) > 1:
        for first, second in pairwise(done):
            why = next((window for window in windows if explains(window, first, second)), None)
            verdict.doubled[task.name] = _in_words(first, second, why)
            if why is None:
                violation = Violation(task.name, verdict.doubled[task.name], "doubled, unexplained")
                verdict.unexplained.append(violation)
    if task.side_effects and len(runs) > 1:
        verdict.repeated.append(
            Violation(
                task.name, f"it has side effects and was begun {len(runs)} times", "doubled with side effects"
            )
        )


def _in_words(first: Run, second: Run, why: Window | None) -> str:
    apart_s = (second.began_us - first.began_us) / 1e6
    dispatches = "one dispatch" if first.dispatch_id == second.dispatch_id else "two dispatches"
    cause = f"{why.kind} of {why.target}" if why else "no fault"
    return f"done by {first.agent_id}, {apart_s:.2f} s later by {second.agent_id}; {dispatches}; {cause}"


def explains(window: Window, first: Run, second: Run) -> bool:
    """The fault may be why the second run came after the first."""
    touched = window.target in (BROKER, STORE, *ROUTERS, first.agent_id, second.agent_id)
    return touched and window.from_us <= second.began_us and window.to_us + SLACK_US >= first.began_us


# ---- Figures


def longest_stall_s(confirmed: Mapping[str, int], ended: Mapping[str, int]) -> float:
    """The longest time without any end while a task was waiting. Times in UTC microseconds, by task."""
    moves = sorted(
        [(at, 1) for name, at in confirmed.items() if name in ended]
        + [(max(at, confirmed.get(name, at)), -1) for name, at in ended.items() if name in confirmed],
        key=lambda move: (move[0], -move[1]),
    )
    waiting, since, longest = 0, 0, 0
    for at, change in moves:
        if change > 0:
            if waiting == 0:
                since = at
        else:
            longest = max(longest, at - since)
            since = at
        waiting += change
    return longest / 1e6


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The slope of the line that fits the points best (least squares), 0 where there is none."""
    count = len(points)
    if count < 2:  # noqa: PLR2004 - a line needs two
        return 0.0
    mean_x = sum(x for x, _ in points) / count
    mean_y = sum(y for _, y in points) / count
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


def by_kind(windows: Iterable[Window], counted: Callable[[Window], bool]) -> dict[str, int]:
    """How many there were of each kind."""
    found: dict[str, int] = {}
    for window in windows:
        if counted(window):
            found[window.kind] = found.get(window.kind, 0) + 1
    return dict(sorted(found.items()))
