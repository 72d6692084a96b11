"""What a run is judged by: figures and differences from histories that are made up here."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from reach_worker.core.duplicates import TaskState
from reach_worker.core.outcome import DeadLetterReason, OutcomeClass
from reach_worker.demo.caller import Reply
from reach_worker.demo.tasks import DemoTask
from reach_worker.demo.verdict import Figures, differences, figures, moved_on, shortfalls
from reach_worker.ports import BreakerMoved, Dispatched, Ended, OutcomeSeen, Standing
from reach_worker.store.records import StoredTask, TaskHistory

SUCCEEDED = DemoTask("t", b"{}", "succeeded")
REFUSED = DemoTask("t", b"{}", "dead_letter", "payload_refused")
UNMATCHED = DemoTask("t", b"{}", "unmatched")

Try = tuple[str, OutcomeClass]
GOOD, BAD, RELEASED = OutcomeClass.SUCCEEDED, OutcomeClass.FAILED, OutcomeClass.RELEASED


def life(number: int, state: TaskState, reason: DeadLetterReason | None = None) -> StoredTask:
    return StoredTask(
        task_id="t",
        life=number,
        accepted=True,
        flow_id="t",
        capability="c",
        caller="anonymous",
        router="r",
        first_seen=1,
        state=state,
        dispatch_id=None,
        attempt=0,
        parked_reason=None,
        ended_at=None,
        reason=reason,
        error=None,
        remember_until=None,
        answer=None,
    )


def end(number: int, state: TaskState, reason: DeadLetterReason | None = None) -> Ended:
    return Ended("t", number, state, reason, "", 9, 9, None)


def history(lives: Sequence[StoredTask], *tries: Try) -> TaskHistory:
    """One end per life that has one; the tries are those of the last life."""
    last = lives[-1].life
    dispatches, outcomes, attempt = [], [], 1
    for number, (agent, outcome) in enumerate(tries):
        dispatches.append(Dispatched(f"d{number}", "t", last, attempt, agent, "c", "x", "r", number))
        outcomes.append(
            OutcomeSeen(
                f"d{number}", "t", last, attempt, agent, "c", "i", outcome, "", number, 1.0, Standing.CURRENT
            )
        )
        attempt += outcome is not RELEASED
    ends = [
        end(each.life, each.state, each.reason) for each in lives if each.state is not TaskState.UNMATCHED
    ]
    return TaskHistory(tuple(lives), (), tuple(dispatches), (), tuple(outcomes), tuple(ends), (), ())


def replies(*statuses: str) -> list[Reply]:
    return [Reply("t", status, "") for status in statuses]


DONE = history([life(0, TaskState.SUCCEEDED)], ("a", GOOD))
RETRIED = history([life(0, TaskState.SUCCEEDED)], ("a", BAD), ("b", GOOD))
SENT_AGAIN = history([life(0, TaskState.SUCCEEDED)], ("a", RELEASED), ("a", GOOD))
PARKED = history([life(0, TaskState.UNMATCHED)])
DEAD = life(0, TaskState.DEAD_LETTER, DeadLetterReason.PAYLOAD_REFUSED)
REPLAYED = history([DEAD, life(1, TaskState.SUCCEEDED)], ("a", GOOD))


def test_figures() -> None:
    histories = {
        "done": DONE,
        "retried": RETRIED,
        "sent again": SENT_AGAIN,
        "parked": PARKED,
        "replayed": REPLAYED,
        "unknown": None,
    }
    moves = [BreakerMoved("a", "r", state, 1, "") for state in ("open", "closed", "open")]
    assert figures(histories, moves, 1.26) == Figures(
        tasks=6,
        succeeded=3,
        retried=1,
        rerouted=1,
        dead_lettered=1,
        unmatched=1,
        breaker_opened=2,
        replayed=1,
        seconds=1.3,
    )


@pytest.mark.parametrize(
    ("task", "told", "statuses"),
    [
        (SUCCEEDED, DONE, ["succeeded"]),
        (SUCCEEDED, RETRIED, ["succeeded"]),
        (UNMATCHED, PARKED, ["unmatched"]),
        (REFUSED, REPLAYED, ["dead_letter", "succeeded"]),
    ],
)
def test_as_it_should_be(task: DemoTask, told: TaskHistory, statuses: list[str]) -> None:
    assert differences(task, told, replies(*statuses), replayed=task is REFUSED) == []


OTHER_REASON = history([life(0, TaskState.DEAD_LETTER, DeadLetterReason.EXPIRED)])


@pytest.mark.parametrize(
    ("task", "told", "statuses", "wrong"),
    [
        (SUCCEEDED, None, [], "the reach log does not know it"),
        (SUCCEEDED, DONE, [], "its answers are none, not succeeded"),
        (SUCCEEDED, DONE, ["succeeded"] * 2, "its answers are succeeded, succeeded, not succeeded"),
        (SUCCEEDED, replace(DONE, ends=()), ["succeeded"], "life 0 has 0 ends, not 1"),
        (SUCCEEDED, replace(DONE, ends=DONE.ends * 2), ["succeeded"], "life 0 has 2 ends, not 1"),
        (SUCCEEDED, replace(DONE, outcomes=()), ["succeeded"], "what became of attempt 1 at a is not known"),
        (SUCCEEDED, history([DEAD]), ["succeeded"], "it is dead_letter (payload_refused), not succeeded"),
        (
            REFUSED,
            OTHER_REASON,
            ["dead_letter"],
            "it is dead_letter (expired), not dead_letter (payload_refused)",
        ),
        (UNMATCHED, DONE, ["unmatched"], "it is succeeded, not unmatched"),
        (REFUSED, REPLAYED, ["dead_letter"], "it has 2 lives, not 1"),
        (
            SUCCEEDED,
            replace(DONE, lives=(replace(DONE.lives[0], accepted=False),)),
            ["succeeded"],
            "the reach log does not say how life 0 began",
        ),
    ],
)
def test_what_differs_is_named(
    task: DemoTask, told: TaskHistory | None, statuses: list[str], wrong: str
) -> None:
    assert wrong in differences(task, told, replies(*statuses), replayed=False)


def test_moved_on_is_what_another_agent_did_in_its_place() -> None:
    histories = {"moved": RETRIED, "done": DONE, "unknown": None, "same again": SENT_AGAIN}
    assert moved_on(histories, "a") == ["moved"]


def test_shortfalls_of_the_whole() -> None:
    good = Figures(3, 1, 1, 1, 1, 1, 1, 1, 1.0)
    assert [*shortfalls(good, ["t"], "a", doubled_ends=0, in_log=3)] == []
    nothing = replace(good, breaker_opened=0, rerouted=0, replayed=0)
    assert [*shortfalls(nothing, [], "a", doubled_ends=2, in_log=4)] == [
        "no breaker opened",
        "no task was re-routed",
        "nothing of what a had when it was killed was done by another agent",
        "0 dead letters were replayed, not 1",
        "2 lives of tasks ended twice",
        "the reach log has 4 tasks, not 3",
    ]
