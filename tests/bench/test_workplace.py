from dataclasses import dataclass, field, replace

from reach_worker.bench.fleets import SimulatedAgent
from reach_worker.bench.tasks import ATTEMPT_S, CAPABILITY, Attempt, Ended, Luck, Task
from reach_worker.bench.timeline import Timeline
from reach_worker.bench.workplace import Workplace
from reach_worker.core.gates import Ask
from reach_worker.core.outcome import OutcomeClass
from tests.bench.small_fleets import agent

MEDIAN = 0.5
"""The draw of the median service time."""


@dataclass
class Stage:
    """One agent, and who ended when."""

    agent: SimulatedAgent
    timeline: Timeline = field(default_factory=Timeline)
    ended: list[tuple[str, OutcomeClass, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.place = Workplace(self.agent, self.timeline)

    def give(
        self, name: str, *, service: float = MEDIAN, success: float = 0.0, limit_s: float = ATTEMPT_S
    ) -> None:
        task = Task(Ask(name, CAPABILITY, {}), self.timeline.now, (Luck(service, success),))
        limit_at = self.timeline.now + limit_s
        self.place.accept(Attempt(task, 1, self.agent.agent_id, self.timeline.now, limit_at, self._tell))

    def _tell(self, attempt: Attempt, ended: Ended) -> None:
        self.ended.append((attempt.task.ask.task_id, ended.outcome, round(self.timeline.now, 6)))


ONE_SECOND = agent(mean_s=1.1331484530668263)  # e^(sigma² / 2): its median is a second


def test_so_many_at_once_and_the_others_in_order() -> None:
    stage = Stage(replace(ONE_SECOND, slots=2))
    for name in "abcde":
        stage.give(name)
    assert (len(stage.place.running), len(stage.place.queue), stage.place.longest) == (2, 3, 3)
    stage.timeline.run()
    assert [name for name, _, _ in stage.ended] == list("abcde")
    assert [at for _, _, at in stage.ended] == [1.0, 1.0, 2.0, 2.0, 3.0]
    assert stage.place.started == 5


def test_success_is_drawn() -> None:
    stage = Stage(replace(ONE_SECOND, success=0.7, slots=2))
    stage.give("good", success=0.69)
    stage.give("bad", success=0.7)
    stage.timeline.run()
    assert {name: outcome for name, outcome, _ in stage.ended} == {
        "good": OutcomeClass.SUCCEEDED,
        "bad": OutcomeClass.FAILED,
    }


def test_success_may_change_with_time() -> None:
    sick = replace(ONE_SECOND, success=0.9, changes=((600.0, 0.05), (1200.0, 0.93)))
    assert [sick.success_at(now) for now in (0, 599, 600, 1199, 1200)] == [0.9, 0.9, 0.05, 0.05, 0.93]


def test_a_liar_fails_at_once() -> None:
    stage = Stage(replace(ONE_SECOND, success=0.0, fails_within_s=0.2))
    stage.give("a", service=0.99)
    stage.timeline.run()
    assert stage.ended == [("a", OutcomeClass.FAILED, 0.198)]


def test_an_attempt_that_runs_too_long_is_stopped_and_its_slot_is_free() -> None:
    stage = Stage(ONE_SECOND)
    stage.give("long", limit_s=0.4)
    stage.give("next")
    stage.timeline.run()
    assert stage.ended == [
        ("long", OutcomeClass.TIMEOUT, 0.4),
        ("next", OutcomeClass.SUCCEEDED, 1.4),
    ]


def test_an_attempt_that_queues_too_long_never_runs() -> None:
    stage = Stage(ONE_SECOND)
    stage.give("first")
    stage.give("impatient", limit_s=0.4)
    stage.give("patient")
    stage.timeline.run()
    assert stage.ended == [
        ("impatient", OutcomeClass.TIMEOUT, 0.4),
        ("first", OutcomeClass.SUCCEEDED, 1.0),
        ("patient", OutcomeClass.SUCCEEDED, 2.0),
    ]
    assert stage.place.started == 2
