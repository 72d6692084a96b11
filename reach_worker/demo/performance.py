"""One performance: the processes, the story that is told with them, and the look back at what it came to."""

import asyncio

from rich.console import Console

from reach_worker.cli.history_tree import history_tree
from reach_worker.cli.output import print_tree
from reach_worker.clock import SystemClock
from reach_worker.demo.board import Board, board_of
from reach_worker.demo.caller import connected
from reach_worker.demo.closing import Closing, examine, summary
from reach_worker.demo.crew import Crew
from reach_worker.demo.screen import Screen
from reach_worker.demo.stage import Stage
from reach_worker.demo.story import KILLED, Story
from reach_worker.demo.tasks import demo_tasks
from reach_worker.demo.watch import TooLong, Watch
from reach_worker.errors import OutsideWorld
from reach_worker.store import StoreReader


class Interrupted(OutsideWorld):
    """Somebody asked us to stop."""


async def perform(stage: Stage, console: Console, asked_to_stop: asyncio.Event) -> Closing:
    """A whole run. When it returns or raises, no process of it is left.

    Raises, in a group:
        Interrupted: ``asked_to_stop`` was set.
        ProcessDied: a process ended that should not have.
        OutsideWorld: broker or store went away.
    """
    clock = SystemClock()
    board = board_of(demo_tasks(), (manifest.id for manifest in stage.manifests))
    screen = Screen(console, board, clock, stage.settings.presence.heartbeat_s)
    async with connected(stage, clock) as caller, asyncio.TaskGroup() as group:
        crew = Crew(stage, group)
        watch = Watch(caller, stage.settings.store.path, board, screen, clock)
        besides = [group.create_task(watch.run()), group.create_task(_until(asked_to_stop))]
        try:
            story = Story(stage, crew, caller, board, watch, screen, clock)
            closing = await _shown(story, stage, board, screen)
            for task in besides:
                task.cancel()
            closing.faults.extend(await crew.stop())
            _conclude(closing, screen)
        finally:
            for task in besides:
                task.cancel()
            await crew.abandon()
    return closing


async def _until(asked_to_stop: asyncio.Event) -> None:
    await asked_to_stop.wait()
    raise Interrupted


async def _shown(story: Story, stage: Stage, board: Board, screen: Screen) -> Closing:
    """The story, then what the reach log says about it. What takes too long is a fault like others."""
    late: list[str] = []
    with screen:
        try:
            await story.play()
        except TooLong as error:
            if not board.published:
                raise
            late.append(str(error))
    async with StoreReader.open(stage.settings.store.path) as reader:
        so_far = await examine(reader, board, KILLED, screen.seconds())
        screen.print(["", *summary(so_far.figures), ""])
        if not late:
            try:
                await story.replay()
            except OutsideWorld as error:
                late.append(str(error))
        closing = await examine(reader, board, KILLED, screen.seconds())
    closing.faults[:0] = late
    history = closing.histories[closing.moved[0]] if closing.moved else None
    if history is not None:
        screen.print(["", f"Why did {history.task.task_id} go where it went?  (reach explain)", ""])
        print_tree(history_tree(history))
    return closing


def _conclude(closing: Closing, screen: Screen) -> None:
    if closing.faults:
        screen.print(["", "NOT as it should be:", *(f"  {fault}" for fault in closing.faults)])
    else:
        screen.print(["", "Every task ended as it should."])
