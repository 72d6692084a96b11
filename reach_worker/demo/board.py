"""What is known of a run while it goes on, put together from the reach log, the answers and the heartbeats."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from reach_worker.core.breaker import BreakerState
from reach_worker.core.outcome import OutcomeClass
from reach_worker.core.presence import Heartbeat
from reach_worker.demo.caller import Heard, Reply, RouterUp
from reach_worker.demo.tasks import DemoTask
from reach_worker.ports import BreakerMoved, Dispatched, Ended, OutcomeSeen, Standing
from reach_worker.store.tail import News

_NOBODYS_FAULT = (OutcomeClass.RELEASED, OutcomeClass.CANCELLED)


@dataclass(slots=True)
class AgentLine:
    """One agent. ``heard_at`` is monotonic seconds.

    ``open``: dispatches without an outcome, with their tasks. ``returned``: those that came back undone, for whatever
    reason; ``failed``: those of them that speak against the agent.
    """

    agent_id: str
    heard_at: float | None = None
    killed: bool = False
    dead_instance: str = ""
    instance: str = ""
    open: dict[str, str] = field(default_factory=dict)
    done: int = 0
    failed: int = 0
    returned: int = 0
    breaker: str = BreakerState.CLOSED.value

    def state(self, now: float, beat_s: float) -> str:
        """In a word or two: starting, active, silent, killed."""
        if self.killed:
            return "killed"
        if self.heard_at is None:
            return "starting"
        silent = now - self.heard_at
        return "active" if silent < 2 * beat_s else f"silent for {silent:.0f} s"


@dataclass(slots=True)
class Board:
    """All of it. ``replies``: the answers to each task, in the order they came."""

    tasks: Sequence[DemoTask]
    agents: dict[str, AgentLine]
    router_up: bool = False
    published: int = 0
    replies: dict[str, list[Reply]] = field(default_factory=dict)
    ends: list[Ended] = field(default_factory=list)
    dispatches: dict[str, list[Dispatched]] = field(default_factory=dict)

    def hear(self, heard: Iterable[Heard], now: float) -> None:
        """Take in what came by message."""
        for one in heard:
            match one:
                case Reply():
                    self.replies.setdefault(one.name, []).append(one)
                case RouterUp():
                    self.router_up = True
                case Heartbeat():
                    self._beat(one, now)

    def read(self, news: Iterable[News]) -> None:
        """Take in what the reach log has new."""
        for row in news:
            match row:
                case Dispatched():
                    self.dispatches.setdefault(row.task_id, []).append(row)
                    self.agents[row.agent_id].open[row.dispatch_id] = row.task_id
                case OutcomeSeen():
                    self._outcome(row)
                case Ended():
                    self.ends.append(row)
                case BreakerMoved():
                    self.agents[row.agent_id].breaker = row.state

    def killed(self, agent_id: str) -> None:
        """The process of this agent was killed. Only another instance makes it active again."""
        line = self.agents[agent_id]
        line.killed, line.dead_instance = True, line.instance

    def everybody_there(self) -> bool:
        """The router, and an instance of every agent."""
        return self.router_up and all(
            line.heard_at is not None and not line.killed for line in self.agents.values()
        )

    def answered(self) -> int:
        """Tasks that have an answer."""
        return len(self.replies)

    def all_settled(self) -> bool:
        """Every task has an answer and, unless it is unmatched, an end in the reach log; no dispatch is out."""
        with_end = {end.task_id for end in self.ends}
        unmatched = {name for name, replies in self.replies.items() if replies[-1].status == "unmatched"}
        return (
            all(task.name in self.replies for task in self.tasks)
            and all(task.name in with_end | unmatched for task in self.tasks)
            and not any(line.open for line in self.agents.values())
        )

    def _beat(self, beat: Heartbeat, now: float) -> None:
        line = self.agents.get(beat.agent_id)
        if line is None or beat.instance_id == line.dead_instance:
            return
        line.instance, line.heard_at, line.killed = beat.instance_id, now, False

    def _outcome(self, row: OutcomeSeen) -> None:
        line = self.agents[row.agent_id]
        if row.standing is Standing.CURRENT:
            line.open.pop(row.dispatch_id, None)
        if row.outcome is OutcomeClass.SUCCEEDED:
            line.done += 1
            return
        line.returned += 1
        line.failed += row.outcome not in _NOBODYS_FAULT


def board_of(tasks: Sequence[DemoTask], agent_ids: Iterable[str]) -> Board:
    """A board before anything happened."""
    return Board(tasks, {agent_id: AgentLine(agent_id) for agent_id in agent_ids})
