"""What a run came to: every confirmed task has one end, what ran twice is explained by a fault. Plain arithmetic.

- **lost**: a confirmed task without an end, or with two: not done, not among the dead letters, not among the unmatched,
  and nowhere on the broker; or the reach log says that it is a dead letter (unmatched) and the queue does not have it.
- **stuck**: it has no end when everything should have come to rest, and is still somewhere on the broker.
- **doubled**: its handler came to a successful end more than once. **Unexplained** where no fault that touches anything
  the task went through (broker, store, a router, the agents of the two runs) was at work between the start of the one
  run and the start of the next; a fault counts until :data:`SLACK_US` after its end.
- **doubled with side effects**: its handler was begun more than once, however the runs ended.
- **garbled**: the caller of a race, a fan-out or a stream was told what is not so, or not told what is.

A leg of a race or a fan-out, a call that a handler made and each stretch of a task that is handed on is a piece of its
own: each has to have its end, and may be done once. A race has two legs a round.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from reach_worker.chaos.board import Board
from reach_worker.chaos.faults import BROKER, STORE, Window
from reach_worker.chaos.findings import Remains, Verdict, Violation
from reach_worker.chaos.kinds import RACES, READ, Kind
from reach_worker.chaos.ledger import OK, Run
from reach_worker.chaos.scale import ROUTERS
from reach_worker.chaos.tasks import PlannedTask
from reach_worker.chaos.told import wrong_words
from reach_worker.core.group import RACE_WIDTH
from reach_worker.core.task import OURS

SLACK_US: Final = 3_000_000
UNKNOWN: Final = "outcome_unknown"


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
        theirs = runs.get(name, ())
        _judge_runs(name, theirs, windows, verdict)
        _judge_parts(name, remains, verdict)
        if remains.logged.get(name, ("", None))[0] == "succeeded" and not any(
            run.how == OK for run in theirs
        ):
            verdict.lost.append(Violation(name, "it succeeded, and no handler did it", "lost"))
        if task.kind in RACES:
            _judge_rounds(name, theirs, remains, windows, verdict)
        if task.kind in READ and remains.logged.get(name, ("under_way", None))[0] != "under_way":
            _judge_words(task, board, verdict)
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
    unexplained = {violation.part or violation.name for violation in verdict.unexplained}
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
    if end not in task.ends:
        expected = ", ".join(sorted(task.ends))
        verdict.wrong_ends.append(Violation(task.name, f"it ended as {end}, not as {expected}", "wrong end"))


def _judge_runs(name: str, runs: Sequence[Run], windows: Sequence[Window], verdict: Verdict) -> None:
    """Each piece by itself."""
    pieces: dict[tuple[str, int], list[Run]] = {}
    for run in runs:
        pieces.setdefault((run.task_id, run.hop), []).append(run)
    for (part, _), theirs in pieces.items():
        done = [run for run in theirs if run.how == OK]
        for first, second in pairwise(done):
            _doubled(name, part, first, second, windows, verdict)
        if any(run.side_effects for run in theirs) and len(theirs) > 1:
            why = f"{part} has side effects and was begun {len(theirs)} times"
            verdict.repeated.append(Violation(name, why, "doubled with side effects", part))


def _doubled(
    name: str, part: str, first: Run, second: Run, windows: Sequence[Window], verdict: Verdict
) -> None:
    why = _cause(windows, first, second)
    verdict.doubled[part] = _in_words(first, second, why)
    if why is None:
        verdict.unexplained.append(Violation(name, verdict.doubled[part], "doubled, unexplained", part))


def _judge_parts(name: str, remains: Remains, verdict: Verdict) -> None:
    """Legs and calls have ended, too. A leg is never a dead letter, a call may be one."""
    for part, state in remains.parts.get(name, {}).items():
        if state == "under_way":
            where = remains.left.get(part)
            why = f"{part} has no end; " + (f"it is in {', '.join(where)}" if where else "no queue has it")
            found, kind = (verdict.stuck, "stuck") if where else (verdict.lost, "lost")
            found.append(Violation(name, why, kind, part))
        elif not part.startswith(name + OURS):
            fault = _fault_of(state, remains.letters.get(part, ()), remains.parked.get(part, 0))
            if fault is not None:
                verdict.lost.append(Violation(name, f"{part}: {fault}", "lost", part))


def _judge_rounds(
    name: str, runs: Sequence[Run], remains: Remains, windows: Sequence[Window], verdict: Verdict
) -> None:
    """Two agents a round, and not two other ones because it was begun again."""
    legs = Counter(part.rpartition(OURS)[2].rpartition(".")[0] for part in remains.parts.get(name, ()))
    most = max(legs.values(), default=0)
    if most > RACE_WIDTH and runs:
        why = _cause(windows, runs[0], runs[-1])
        verdict.doubled[name] = f"a round of it has {most} legs; {_named(why)}"
        if why is None:
            verdict.unexplained.append(Violation(name, verdict.doubled[name], "doubled, unexplained"))


def _judge_words(task: PlannedTask, board: Board, verdict: Verdict) -> None:
    """What its caller was told. Where it was known to have been done twice he may have heard of both."""
    if task.name not in verdict.doubled:
        for why in wrong_words(task, board):
            verdict.garbled.append(Violation(task.name, why, "garbled"))


def _in_words(first: Run, second: Run, why: Window | None) -> str:
    apart_s = (second.began_us - first.began_us) / 1e6
    dispatches = "one dispatch" if first.dispatch_id == second.dispatch_id else "two dispatches"
    return (
        f"done by {first.agent_id}, {apart_s:.2f} s later by {second.agent_id}; {dispatches}; {_named(why)}"
    )


def _named(why: Window | None) -> str:
    return f"{why.kind} of {why.target}" if why else "no fault"


def _cause(windows: Sequence[Window], first: Run, second: Run) -> Window | None:
    """The first fault that explains the second run, if any does."""
    return next((window for window in windows if _explains(window, first, second)), None)


def _explains(window: Window, first: Run, second: Run) -> bool:
    """The fault may be why the second run came after the first."""
    touched = window.target in (BROKER, STORE, *ROUTERS, first.agent_id, second.agent_id)
    return touched and window.from_us <= second.began_us and window.to_us + SLACK_US >= first.began_us
