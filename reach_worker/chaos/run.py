"""A run: the broker, the crew and the caller; the faults; the rest; and the verdict."""

import asyncio
import logging
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from reach_worker.chaos.board import Board
from reach_worker.chaos.books import read_remains, until_rest
from reach_worker.chaos.caller import Caller, calling
from reach_worker.chaos.crew import Crew
from reach_worker.chaos.faults import Window, plan_faults
from reach_worker.chaos.havoc import Havoc
from reach_worker.chaos.ledger import Ledgers
from reach_worker.chaos.memory import Memory
from reach_worker.chaos.node import Node, running_node
from reach_worker.chaos.report import Figures, evidence, shown
from reach_worker.chaos.scale import Scale
from reach_worker.chaos.stage import URL, Keeping, Stage, set_up
from reach_worker.chaos.tasks import plan_tasks
from reach_worker.chaos.verdict import by_kind, judge, longest_stall_s
from reach_worker.clock import SystemClock
from reach_worker.errors import OutsideWorld
from reach_worker.services.lifecycle import beside

Say = Callable[[str], None]
TELL_S: Final = 10.0
PUBLISH_S: Final = 60.0
"""So long after the last planned task the broker may take to have confirmed all."""
COMMAND_S: Final = 120.0
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(OutsideWorld):
    """Somebody asked us to stop."""


@dataclass(slots=True)
class _Ran:
    """What a run left behind, before anybody has judged it."""

    board: Board
    windows: list[Window]
    memory: Memory
    exits: list[str]
    rest_s: float | None = None


async def run(scale: Scale, seed: int, say: Say, *, keep: bool) -> Figures:
    """Do all of it; nothing that it started is left. Raises ``OutsideWorld`` where it could not even begin."""
    clock, keeping = SystemClock(), Keeping(keep)
    began = clock.monotonic()
    async with _until_asked_to_stop():
        with set_up(os.environ, keeping) as stage:
            async with running_node(stage.broker, stage.environ) as node:
                _log_to(stage)
                say(f"broker {node.url}, folder {stage.root}, seed {seed}")
                try:
                    ran = await _perform(stage, node, scale, seed, clock, say)
                    figures = await _concluded(stage, node, ran, seed, say)
                    figures = replace(figures, seconds=round(clock.monotonic() - began, 1))
                except BaseException:
                    keeping.kept = True
                    raise
                finally:
                    keeping.kept = keeping.kept or keep
            keeping.kept = keep or not figures.good
            if keeping.kept:
                say(f"logs, ledgers and store are kept: {stage.root}")
    return figures


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
        asked = True
        if task is not None:
            task.cancel()

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


async def _perform(stage: Stage, node: Node, scale: Scale, seed: int, clock: SystemClock, say: Say) -> _Ran:
    """The whole story, up to the moment when all processes have stopped."""
    tasks, faults = plan_tasks(seed, scale), plan_faults(seed, scale)
    board = Board({task.name: task for task in tasks})
    memory = Memory()
    settings = stage.settings(node.url)
    async with AsyncExitStack() as stack:
        crew = await stack.enter_async_context(Crew(stage, node.port, clock))
        await crew.start()
        caller = await stack.enter_async_context(calling(settings, board, clock, stage.names.tasks))
        await stack.enter_async_context(beside(memory.watch(crew, clock)))
        await stack.enter_async_context(beside(_tell(board, clock, say)))
        havoc = Havoc(stage, node, crew, clock, say)
        began = clock.monotonic()
        say(f"{len(tasks)} tasks and {len(faults)} faults in {scale.load_s:g} s")
        async with asyncio.TaskGroup() as group:
            group.create_task(havoc.wreak(faults, began))
            group.create_task(_publish(caller, board, began, scale))
        say(f"the faults are over: {len(board.confirmed)} tasks confirmed, everything has to come to rest")
        ran = _Ran(board, [*havoc.windows, *crew.windows], memory, [])
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


async def _tell(board: Board, clock: SystemClock, say: Say) -> None:
    while True:
        await clock.sleep(TELL_S)
        answered = sum(len(each) for each in board.answers.values())
        say(f"{len(board.sent)} tasks sent, {len(board.confirmed)} confirmed, {answered} answers")


async def _concluded(stage: Stage, node: Node, ran: _Ran, seed: int, say: Say) -> Figures:
    """Read everything, judge it, and tell what is wrong with all the evidence."""
    board = ran.board
    settings = stage.settings(node.url)
    remains, doubled_ends = await read_remains(stage, settings, board)
    ledgers = Ledgers.read(stage.ledgers)
    verdict = judge(board, ledgers.runs, remains, ran.windows)
    audit, audit_well = await _audit(stage, node.url)
    for violation in shown(verdict):
        for line in evidence(violation, ledgers.runs.get(violation.name, []), ran.windows):
            say(line)
        _, explained = await _reach(stage, node.url, "explain", violation.name)
        say("\n".join(f"    {line}" for line in explained.splitlines()))
    for name, how in verdict.doubled.items():
        again = " (published twice)" if board.tasks[name].again_s else ""
        say(f"doubled: {name}{again}: {how}")
    done = [window for window in ran.windows if window.done and window.kind != "died"]
    ended = {name: at for name, (_, at) in remains.logged.items() if at is not None}
    return Figures(
        tasks=len(board.confirmed),
        faults=len(done),
        lost=len(verdict.lost),
        doubled=len(verdict.doubled),
        doubled_unexplained=len(verdict.unexplained),
        doubled_with_side_effects=len(verdict.repeated),
        stuck=len(verdict.stuck),
        longest_stall_s=round(longest_stall_s(board.confirmed, ended), 2),
        memory_slope_mb_per_min=round(ran.memory.slope_mb_per_min(), 3),
        seed=seed,
        good=verdict.good and audit_well,
        rest_s=None if ran.rest_s is None else round(ran.rest_s, 1),
        faults_by_kind=by_kind(ran.windows, lambda window: window.done),
        failed_faults=sum(not window.done for window in ran.windows),
        ends=dict(sorted(verdict.ends.items())),
        published=board.published,
        unconfirmed=board.unconfirmed,
        answers=sum(len(each) for each in board.answers.values()),
        runs=sum(len(runs) for runs in ledgers.runs.values()),
        wrong_ends=len(verdict.wrong_ends),
        unanswered=len(verdict.unanswered),
        unrecorded=len(verdict.unrecorded),
        doubled_letters=len(verdict.doubled_letters),
        doubled_ends=doubled_ends,
        exits=ran.exits,
        audit=audit,
    )


async def _audit(stage: Stage, url: str) -> tuple[Any, bool]:
    """What ``reach audit`` says, and whether all is well by it."""
    status, out = await _reach(stage, url, "audit", "--json", "--patience", "10s")
    if status == 2 and "no command" in out:  # noqa: PLR2004 - a command that is not there
        return None, True
    with suppress(orjson.JSONDecodeError):
        return orjson.loads(out), status == 0
    return out.strip(), False


async def _reach(stage: Stage, url: str, *arguments: str) -> tuple[int, str]:
    """Run a command of ``reach``; its exit status and what it wrote: its output, or else its errors."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "reach_worker",
        "--config",
        str(stage.config),
        *arguments,
        env={**stage.environ, URL: url},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(COMMAND_S):
        out, err = await process.communicate()
    return process.returncode or 0, (out or err).decode(errors="replace")
