"""``reach demo``: a router and seven agents at work on real input, with trouble on purpose, and proof of the end.

A run has its own folder, its own names on the broker and its own processes, so several may run at once. Nothing of it is
left afterwards, unless it is to be kept; when something went wrong, the folder with the logs stays.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict
from typing import Final

import orjson
from rich.console import Console

from reach_worker import wiring
from reach_worker.bus.removal import remove
from reach_worker.cli.failures import INTERRUPTED, OK, TROUBLE, tell
from reach_worker.clock import SystemClock
from reach_worker.demo.performance import Interrupted, perform
from reach_worker.demo.stage import Keeping, Stage, set_up
from reach_worker.errors import OutsideWorld, ReachError

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(*, json_output: bool, keep: bool) -> int:
    """Run the demo; its exit status: 0 only if every task ended as it should.

    ``json_output``: the last line is one JSON object with the figures. ``keep``: folder and queues stay.
    """
    return wiring.run(lambda: _main(json_output=json_output, keep=keep))


async def _main(*, json_output: bool, keep: bool) -> int:
    console = Console(highlight=False, markup=False, soft_wrap=True)
    keeping = Keeping(keep)
    try:
        with _asked_to_stop() as asked, set_up(os.environ, SystemClock().new_id(), keeping) as stage:
            async with _swept(stage, keeping, console):
                closing = await perform(stage, console, asked)
                keeping.kept = keep or bool(closing.faults)
    except (ReachError, BaseExceptionGroup) as error:
        if _was_asked_for(error):
            console.out("stopped")
            return INTERRUPTED
        return tell(error)
    if json_output:
        console.out(orjson.dumps(asdict(closing.figures)).decode())
    return TROUBLE if closing.faults else OK


@contextmanager
def _asked_to_stop() -> Iterator[asyncio.Event]:
    """Set by Ctrl-C and the like. They end the story; what cleans up after it goes on to its own end."""
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, asked.set)
    try:
        yield asked
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)


@asynccontextmanager
async def _swept(stage: Stage, keeping: Keeping, console: Console) -> AsyncIterator[None]:
    """Whatever happens, the run's queues are deleted, unless they are to be kept; a folder that stays is named."""
    keep = keeping.kept
    try:
        yield
    except BaseException as error:
        keeping.kept = stage.began() and (keep or not _was_asked_for(error))
        raise
    finally:
        if stage.began() and not keep:
            await _delete_queues(stage, console)
        if keeping.kept:
            console.out(f"the store and the logs of all processes are kept: {stage.root}")
            console.out(f"look into it: cd {stage.root} && reach explain TASK")


async def _delete_queues(stage: Stage, console: Console) -> None:
    try:
        await remove(wiring.bus_settings(stage.settings, "demo"), stage.topology())
    except OutsideWorld as error:
        console.out(f"queues {stage.names.prefix}.* may still be on the broker: {error}")


def _was_asked_for(error: BaseException) -> bool:
    """Nothing is wrong but that somebody stopped the run."""
    if isinstance(error, BaseExceptionGroup):
        return all(_was_asked_for(each) for each in error.exceptions)
    return isinstance(error, Interrupted)
