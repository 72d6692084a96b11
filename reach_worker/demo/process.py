"""What each process of the demo runs: ``python -m reach_worker.demo.process router CONFIG``, ``… agent CONFIG NAME``.

The same as ``reach router`` and ``reach agent``, but for one thing: it stops when its standard input ends, so it never
outlives the demo, however that ends.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from reach_worker import wiring
from reach_worker.demo.agents import AGENTS
from reach_worker.errors import ReachError
from reach_worker.settings import load_settings

log = logging.getLogger(__name__)


def main(arguments: Sequence[str]) -> int:
    """Run a router or an agent to its end; its exit status."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("aiormq").setLevel(logging.WARNING)
    kind, config, *name = arguments
    settings = load_settings(Path(config), os.environ)

    def serve() -> Awaitable[int]:
        if kind == "router":
            return wiring.run_router(settings)
        return wiring.run_worker(settings, AGENTS[name[0]])

    try:
        return wiring.run(lambda: _while_wanted(serve))
    except ReachError as error:
        log.critical("%s", error)
        return 1


async def _while_wanted(serve: Callable[[], Awaitable[int]]) -> int:
    loop = asyncio.get_running_loop()
    wanted = sys.stdin.fileno()

    def no_longer() -> None:
        loop.remove_reader(wanted)
        os.kill(os.getpid(), signal.SIGTERM)

    loop.add_reader(wanted, no_longer)
    try:
        return await serve()
    finally:
        loop.remove_reader(wanted)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
