"""One router of the bench: a window of waiting tasks, oldest first, and a way to choose."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from reach_worker.bench.knowledge import Knowledge
from reach_worker.bench.tasks import ATTEMPT_S, CAPABILITY, MOST_ATTEMPTS, Attempt, Ended, Task
from reach_worker.bench.timeline import Timeline
from reach_worker.bench.workplace import Workplace
from reach_worker.core.gates import Ask
from reach_worker.core.outcome import OutcomeClass

Contender = Callable[[Ask, Knowledge, float], str | None]
"""A way to choose: the agent that gets the task at this time, or nobody now."""


@dataclass(slots=True)
class Router:
    """Binds each task to an agent as soon as its contender names one, and sends it elsewhere once if that fails."""

    knowledge: Knowledge
    contender: Contender
    timeline: Timeline
    workplaces: Mapping[str, Workplace]
    waiting: dict[str, Task] = field(default_factory=dict)

    def take(self, task: Task) -> None:
        """A task that wants an agent: a new one, or one that comes back."""
        self.waiting[task.ask.task_id] = task
        self.bind()
        if task.ask.task_id in self.waiting:
            self.timeline.at(task.deadline, partial(self._expire, task))

    def bind(self) -> None:
        """Give what waits to those who can take it."""
        now = self.timeline.now
        alone = len(self.waiting) == 1  # then planning it costs less than counting first
        free = 1 if alone else self.knowledge.fleet.free_slots(CAPABILITY, now)
        for task in list(self.waiting.values()):
            if free <= 0:
                return
            agent_id = self.contender(task.ask, self.knowledge, now)
            if agent_id is not None:
                del self.waiting[task.ask.task_id]
                self._send(task, agent_id)
                free -= 1

    def _send(self, task: Task, agent_id: str) -> None:
        now = self.timeline.now
        task.agents.append(agent_id)
        limit_at = min(now + ATTEMPT_S, task.deadline)
        attempt = Attempt(task, len(task.agents), agent_id, now, limit_at, self._ended)
        self.knowledge.send(attempt)
        self.workplaces[agent_id].accept(attempt)

    def _ended(self, attempt: Attempt, ended: Ended) -> None:
        now, task = self.timeline.now, attempt.task
        well_again_at = self.knowledge.settle(attempt, ended, now)
        if well_again_at is not None:
            self.timeline.at(well_again_at, self.bind)
        good = ended.outcome is OutcomeClass.SUCCEEDED
        if attempt.number == 1:
            task.first_good = good
        if good or attempt.number == MOST_ATTEMPTS or now >= task.deadline:
            task.end(now, good=good)
        else:
            excluded = {attempt.agent_id: ended.outcome.value}
            task.ask = replace(task.ask, attempt=attempt.number + 1, excluded=excluded)
            self.take(task)
        if self.waiting:
            self.bind()

    def _expire(self, task: Task) -> None:
        if self.waiting.pop(task.ask.task_id, None) is not None:
            task.end(self.timeline.now, good=False)
