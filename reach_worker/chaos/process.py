"""What each process of a run is: ``python -m reach_worker.chaos.process router CONFIG``, ``… agent CONFIG NAME LEDGERS``.

The same as ``reach router`` and ``reach agent``, but that it stops when its standard input ends: it never outlives the
run, however that ends.
"""

import asyncio
import logging
import os
import resource
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from reach_worker import wiring
from reach_worker.chaos.agents import agent_of
from reach_worker.chaos.ledger import Ledger
from reach_worker.clock import SystemClock
from reach_worker.errors import ReachError
from reach_worker.settings import load_settings

log = logging.getLogger(__name__)


def main(arguments: Sequence[str]) -> int:
    """Run a router or an agent to its end; its exit status."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("aiormq").setLevel(logging.WARNING)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # some crash on purpose
    kind, config, *rest = arguments
    settings = load_settings(Path(config), os.environ)

    def serve() -> Awaitable[int]:
        if kind == "router":
            return wiring.run_router(settings)
        name, ledgers = rest
        clock = SystemClock()
        return wiring.run_worker(settings, agent_of(name, Ledger(Path(ledgers), name, clock), clock))

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
