"""The story that a run tells, step by step. Each step waits for what it needs to have happened, never for a time."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from reach_worker import wiring
from reach_worker.core.dead_letter import Filter
from reach_worker.core.outcome import DeadLetterReason
from reach_worker.demo.board import Board
from reach_worker.demo.caller import Caller
from reach_worker.demo.crew import Crew
from reach_worker.demo.screen import Screen
from reach_worker.demo.stage import Stage
from reach_worker.demo.tasks import DemoTask, repaired
from reach_worker.demo.watch import Watch
from reach_worker.errors import OutsideWorld
from reach_worker.ports import Clock
from reach_worker.services.replay_order import ReplayOrder

KILLED: Final = "log-analyzer"
HELD: Final = 5
"""The agent is killed when it has so many dispatches; with fewer, if that takes too long."""
FROZEN_S: Final = 2.0
"""Any longer, and its silence would be noticed."""
BITE: Final = 4
PACE_S: Final = 0.3
"""So many tasks are published so often: people should see the work come in."""
BITES_BEFORE: Final = 6
"""So many times tasks are published before the trouble begins."""
START_LIMIT_S: Final = 60.0
STEP_LIMIT_S: Final = 60.0


class Story:
    """Everything that happens in a run, until its replay."""

    def __init__(
        self,
        stage: Stage,
        crew: Crew,
        caller: Caller,
        board: Board,
        watch: Watch,
        screen: Screen,
        clock: Clock,
    ) -> None:
        self._stage = stage
        self._crew = crew
        self._caller = caller
        self._board = board
        self._watch = watch
        self._screen = screen
        self._clock = clock

    async def play(self) -> None:
        """From the start of the processes until every task has its end."""
        await self._start()
        tasks = self._board.tasks
        coming = iter([tasks[start : start + BITE] for start in range(0, len(tasks), BITE)])
        await self._publish(islice(coming, BITES_BEFORE))
        returned = await self._kill_one_that_works(coming)
        await self._publish(coming)
        await self._replace_it(returned)
        await self._watch.until(self._board.all_settled, "every task has its end", STEP_LIMIT_S)

    async def replay(self) -> None:
        """Repair the dead letter whose payload was refused, replay it, and see it succeed."""
        (task,) = (task for task in self._board.tasks if task.reason == DeadLetterReason.PAYLOAD_REFUSED)
        wanted = Filter(
            reasons=frozenset({DeadLetterReason.PAYLOAD_REFUSED}), task_ids=frozenset({task.name})
        )
        async with wiring.dead_letters(self._stage.settings) as letters:
            report = await letters.replay(ReplayOrder(wanted, body=repaired(task)))
        if report.replayed != [task.name]:
            why = [*report.held_back, *report.failed] or f"it is not among the {report.there} dead letters"
            raise OutsideWorld(f"{task.name} was not replayed: {why}")
        self._screen.tell([f"{task.name} is repaired and replayed"])

        def done() -> bool:
            ends = [end for end in self._board.ends if end.task_id == task.name]
            return len(ends) > 1 and len(self._board.replies[task.name]) > 1

        await self._watch.until(done, f"{task.name} has its second end", STEP_LIMIT_S)
        self._screen.tell([f"{task.name}: {self._board.replies[task.name][-1].status}"])

    async def _start(self) -> None:
        await self._crew.router()
        for agent_id in self._board.agents:
            await self._crew.agent(agent_id)
        agents = len(self._board.agents)
        self._screen.tell(
            [
                f"{1 + agents} processes started: a router and {agents} agents, on queues {self._stage.names.prefix}.*"
            ]
        )
        await self._watch.until(self._board.everybody_there, "router and agents are there", START_LIMIT_S)
        self._screen.tell(["all are there; publishing"])

    async def _publish(self, coming: Iterable[Sequence[DemoTask]]) -> None:
        for tasks in coming:
            await self._caller.publish(tasks)
            self._board.published += len(tasks)
            await self._clock.sleep(PACE_S)

    async def _kill_one_that_works(self, coming: Iterator[Sequence[DemoTask]]) -> int:
        """Held still first, the agent ends nothing any more: what it then has, it has when it is killed.

        Returns how many of its dispatches had come back undone by then.
        """
        line = self._board.agents[KILLED]
        await self._watch.until(lambda: line.done > 0, f"{KILLED} has done something", STEP_LIMIT_S)
        self._crew.freeze(KILLED)
        enough_at = self._clock.monotonic() + FROZEN_S
        while len(line.open) < HELD and self._clock.monotonic() < enough_at and (tasks := next(coming, None)):
            await self._publish([tasks])
        await self._watch.until(lambda: bool(line.open), f"{KILLED} has something to do", STEP_LIMIT_S)
        self._board.killed(KILLED)
        await self._crew.kill(KILLED)
        self._screen.tell([f"{KILLED} is killed (SIGKILL) with {len(line.open)} tasks in its hands"])
        return line.returned

    async def _replace_it(self, returned: int) -> None:
        """Its tasks go back to the router first, and to whoever else can do them; then another instance starts."""
        line = self._board.agents[KILLED]
        await self._watch.until(
            lambda: line.returned > returned, f"what {KILLED} had is taken back", STEP_LIMIT_S
        )
        await self._crew.agent(KILLED)
        self._screen.tell([f"{KILLED} is started again, for what only it can do"])
