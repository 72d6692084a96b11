"""The simulated work: a task, and one sending of it to an agent."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from reach_worker.core.gates import Ask
from reach_worker.core.outcome import OutcomeClass

CAPABILITY: Final = "bench.work"
ATTEMPT_S: Final = 30.0
DEADLINE_S: Final = 60.0
MOST_ATTEMPTS: Final = 2


class Luck(NamedTuple):
    """The draws that decide one attempt, wherever it goes. They come with the task: all policies get the same ones."""

    service: float
    success: float


@dataclass(slots=True)
class Task:
    """One task and what became of it. ``ended_at`` is set once; ``agents``: who had it, in order. Times in seconds."""

    ask: Ask
    arrived_at: float
    luck: tuple[Luck, ...]
    agents: list[str] = field(default_factory=list)
    first_good: bool = False
    good: bool = False
    ended_at: float | None = None

    @property
    def deadline(self) -> float:
        """When nobody wants it any more."""
        return self.arrived_at + DEADLINE_S

    def end(self, now: float, *, good: bool) -> None:
        """Its one end; a second one is our bug."""
        if self.ended_at is not None:
            raise ValueError(f"task {self.ask.task_id} has ended before")
        self.ended_at, self.good = now, good


@dataclass(frozen=True, slots=True)
class Ended:
    """How an attempt ended. ``seconds``: how long the agent worked on it."""

    outcome: OutcomeClass
    seconds: float


@dataclass(slots=True, eq=False)
class Attempt:
    """One sending of a task to one agent. ``tell`` hears of its end. Times in seconds.

    It ends at ``limit_at`` at the latest, wherever it is: the time in the agent's queue counts.
    """

    task: Task
    number: int
    agent_id: str
    bound_at: float
    limit_at: float
    tell: Callable[["Attempt", Ended], None]

    @property
    def dispatch_id(self) -> str:
        """Names this sending."""
        return f"{self.task.ask.task_id}.{self.number}"

    @property
    def cut_by_deadline(self) -> bool:
        """Its time was shorter than an attempt may take: a time-out is nobody's fault."""
        return self.limit_at < self.bound_at + ATTEMPT_S
