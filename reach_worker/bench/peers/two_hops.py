"""What the peers' job is made of, the same for each of them.

Tasks of about 1 KB lie on an intake queue. A router process takes each, picks one of four agent queues in turn, publishes
it there (durable, confirmed) and acknowledges. An agents' process runs a no-op and acknowledges.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any, Final, Self

from reach_worker.bench.live.scene import CAPABILITY, TEXT_BYTES
from reach_worker.bench.peers.answering import answer_in_background
from reach_worker.bench.peers.tally import Tally

AGENTS: Final = 4
PREFETCH: Final = 200
BURST: Final = 200
THREADS: Final = 8
BODY: Final[Mapping[str, Any]] = {
    "task_id": "t",
    "capability": CAPABILITY,
    "payload": {"text": "x" * TEXT_BYTES},
}


@dataclass(slots=True)
class TwoHops:
    """One role of the job: ``publish``, ``router`` or ``agents``."""

    role: str
    url: str
    prefix: str
    tasks: int
    tally: Tally = field(init=False)
    agents: list[str] = field(init=False)
    next_agent: Callable[[], str] = field(init=False)

    def __post_init__(self) -> None:
        self.tally = Tally(self.tasks)
        self.agents = [f"{self.prefix}.agent-{number}" for number in range(AGENTS)]
        self.next_agent = cycle(self.agents).__next__

    @classmethod
    def called(cls) -> Self:
        """As the command line says."""
        role, url, prefix, tasks = sys.argv[1:]
        return cls(role, url, prefix, int(tasks))

    @property
    def intake(self) -> str:
        """Where the tasks lie."""
        return f"{self.prefix}.intake"

    @property
    def mine(self) -> list[str]:
        """The queues that this role consumes."""
        return [self.intake] if self.role == "router" else self.agents


def begin() -> TwoHops:
    """The role of this process, which answers the bench from now on, unless it only publishes."""
    job = TwoHops.called()
    if job.role != "publish":
        answer_in_background()
    return job
