"""What each process of a run is: ``python -m reach_worker.chaos.process router CONFIG``, ``… agent CONFIG NAME LEDGERS``.

The same as ``reach router`` and ``reach agent``, but that it stops when its standard input ends: it never outlives the
run, however that ends.
"""

import resource
import sys
from collections.abc import Awaitable, Sequence
from pathlib import Path

from reach_worker import wiring
from reach_worker.chaos.agents import agent_of
from reach_worker.chaos.ledger import Ledger
from reach_worker.clock import SystemClock
from reach_worker.demo.guest import serve_while_wanted
from reach_worker.settings import Settings


def main(arguments: Sequence[str]) -> int:
    """Run a router or an agent to its end; its exit status."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # some crash on purpose
    kind, config, *rest = arguments

    def serve(settings: Settings) -> Awaitable[int]:
        if kind == "router":
            return wiring.run_router(settings)
        name, ledgers = rest
        clock = SystemClock()
        return wiring.run_worker(settings, agent_of(name, Ledger(Path(ledgers), name, clock), clock))

    return serve_while_wanted(Path(config), serve)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
