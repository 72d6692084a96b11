"""A simulated agent at work: so many slots, and a queue in front of them."""

from collections import OrderedDict
from dataclasses import dataclass, field
from functools import partial

from reach_worker.bench.fleets import SimulatedAgent
from reach_worker.bench.tasks import Attempt, Ended
from reach_worker.bench.timeline import Timeline
from reach_worker.core.outcome import OutcomeClass


@dataclass(slots=True)
class Workplace:
    """Works its queue off first in, first out. ``started``: attempts begun; ``longest``: most that ever queued."""

    agent: SimulatedAgent
    timeline: Timeline
    running: dict[str, Attempt] = field(default_factory=dict)
    queue: "OrderedDict[str, Attempt]" = field(default_factory=OrderedDict)
    started: int = 0
    longest: int = 0

    def accept(self, attempt: Attempt) -> None:
        """Begin with it, or queue it."""
        if len(self.running) < self.agent.slots:
            self._start(attempt)
            return
        self.queue[attempt.dispatch_id] = attempt
        self.longest = max(self.longest, len(self.queue))
        self.timeline.at(attempt.limit_at, partial(self._give_up, attempt))

    def _start(self, attempt: Attempt) -> None:
        now = self.timeline.now
        self.running[attempt.dispatch_id] = attempt
        self.started += 1
        luck = attempt.task.luck[attempt.number - 1]
        good = luck.success < self.agent.success_at(now)
        seconds = self.agent.service_s(luck.service, good=good)
        outcome = OutcomeClass.SUCCEEDED if good else OutcomeClass.FAILED
        if now + seconds > attempt.limit_at:
            outcome, seconds = OutcomeClass.TIMEOUT, attempt.limit_at - now
        self.timeline.at(now + seconds, partial(self._finish, attempt, Ended(outcome, seconds)))

    def _finish(self, attempt: Attempt, ended: Ended) -> None:
        del self.running[attempt.dispatch_id]
        if self.queue:
            self._start(self.queue.popitem(last=False)[1])
        attempt.tell(attempt, ended)

    def _give_up(self, attempt: Attempt) -> None:
        if self.queue.pop(attempt.dispatch_id, None) is not None:
            attempt.tell(attempt, Ended(OutcomeClass.TIMEOUT, 0.0))
