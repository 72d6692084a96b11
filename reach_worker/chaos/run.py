"""A run: the broker, the crew and the caller; the faults; the rest; and the verdict."""

import asyncio
import logging
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Final

from reach_worker.chaos.board import Board
from reach_worker.chaos.books import until_rest
from reach_worker.chaos.caller import Caller, calling
from reach_worker.chaos.closing import Ran, conclude
from reach_worker.chaos.crew import Crew
from reach_worker.chaos.faults import plan_faults
from reach_worker.chaos.havoc import Havoc
from reach_worker.chaos.memory import Memory
from reach_worker.chaos.node import Node, running_node
from reach_worker.chaos.report import Figures
from reach_worker.chaos.scale import Scale
from reach_worker.chaos.screen import EACH_S, Screen
from reach_worker.chaos.stage import Keeping, Stage, set_up
from reach_worker.chaos.tasks import plan_tasks
from reach_worker.clock import SystemClock
from reach_worker.errors import OutsideWorld
from reach_worker.services.lifecycle import beside

PUBLISH_S: Final = 60.0
"""So long after the last planned task the broker may take to have confirmed all."""
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(OutsideWorld):
    """Somebody asked us to stop."""


async def run(scale: Scale, seed: int, screen: Screen, *, keep: bool) -> Figures:
    """Do all of it; nothing that it started is left. Raises ``OutsideWorld`` where it could not even begin."""
    clock, keeping, say = SystemClock(), Keeping(keep), screen.say
    began = clock.monotonic()
    async with _until_asked_to_stop():
        with set_up(os.environ, keeping) as stage:
            async with running_node(stage.broker, stage.environ) as node:
                _log_to(stage)
                say(f"broker {node.url}, folder {stage.root}, seed {seed}")
                try:
                    ran = await _perform(stage, node, scale, seed, clock, screen)
                    figures = await conclude(stage, node.url, ran, seed, say)
                except Exception:
                    keeping.kept = True
                    raise
                finally:
                    logging.shutdown()
            keeping.kept = keep or not figures.good
            if keeping.kept:
                say(f"logs, ledgers and store are kept: {stage.root}")
    return replace(figures, seconds=round(clock.monotonic() - began, 1))


def _log_to(stage: Stage) -> None:
    """What our own libraries have to say, the caller's connection that breaks above all, goes where the others' does."""
    form = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    logging.basicConfig(filename=stage.log("caller"), level=logging.INFO, format=form, force=True)


@asynccontextmanager
async def _until_asked_to_stop() -> AsyncIterator[None]:
    """A signal ends the block, in order."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    asked = False

    def stop() -> None:
        nonlocal asked
        if task is not None and not asked:  # what cleans up is not to be disturbed
            task.cancel()
        asked = True

    for number in SIGNALS:
        loop.add_signal_handler(number, stop)
    try:
        yield
    except asyncio.CancelledError:
        if asked:
            raise Interrupted("stopped") from None
        raise
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)


async def _perform(
    stage: Stage, node: Node, scale: Scale, seed: int, clock: SystemClock, screen: Screen
) -> Ran:
    """The whole story, up to the moment when all processes have stopped."""
    say = screen.say
    tasks, faults = plan_tasks(seed, scale), plan_faults(seed, scale)
    board = Board({task.name: task for task in tasks})
    memory = Memory()
    settings = stage.settings(node.url)
    async with AsyncExitStack() as stack:
        crew = await stack.enter_async_context(Crew(stage, node.port, clock))
        await crew.start()
        caller = await stack.enter_async_context(calling(settings, board, clock, stage.names))
        await stack.enter_async_context(beside(memory.watch(crew, clock)))
        await stack.enter_async_context(beside(_tell(board, clock, screen)))
        havoc = Havoc(stage, node, crew, clock, say)
        began = clock.monotonic()
        say(f"{len(tasks)} tasks and {len(faults)} faults in {scale.load_s:g} s")
        async with asyncio.TaskGroup() as group:
            group.create_task(havoc.wreak(faults, began))
            group.create_task(_publish(caller, board, began, scale))
        say(f"the faults are over: {len(board.confirmed)} tasks confirmed, everything has to come to rest")
        ran = Ran(board, [*havoc.windows, *crew.windows], memory, [])
        ran.rest_s = await until_rest(stage, board, clock, scale.rest_s)
        say("it did not come to rest in time" if ran.rest_s is None else f"at rest after {ran.rest_s:.1f} s")
        ran.windows = [*havoc.windows, *crew.windows]
        exits = Counter(f"{each.name} ended by itself with status {each.status}" for each in crew.exits)
        ran.exits = [f"{how}, {times} times" for how, times in sorted(exits.items())]
        ran.exits += await crew.stop()
    return ran


async def _publish(caller: Caller, board: Board, began: float, scale: Scale) -> None:
    try:
        async with asyncio.timeout(scale.load_s + PUBLISH_S):
            await caller.publish(board.tasks.values(), began)
    except TimeoutError:
        raise OutsideWorld(
            f"the broker confirmed only {len(board.confirmed)} of {len(board.tasks)} tasks in time"
        ) from None


async def _tell(board: Board, clock: SystemClock, screen: Screen) -> None:
    while True:
        answered = sum(len(each) for each in board.answers.values())
        screen.now(
            f"{len(board.sent)} of {len(board.tasks)} tasks sent, {len(board.confirmed)} confirmed, {answered} answers"
        )
        await clock.sleep(EACH_S)
