"""What each process of the demo runs: ``python -m reach_worker.demo.process router CONFIG``, ``… agent CONFIG NAME``.

The same as ``reach router`` and ``reach agent``, but for one thing: it stops when its standard input ends, so it never
outlives the demo, however that ends.
"""

import sys
from collections.abc import Awaitable, Sequence
from pathlib import Path

from reach_worker import wiring
from reach_worker.demo.agents import AGENTS
from reach_worker.demo.guest import serve_while_wanted
from reach_worker.settings import Settings


def main(arguments: Sequence[str]) -> int:
    """Run a router or an agent to its end; its exit status."""
    kind, config, *name = arguments

    def serve(settings: Settings) -> Awaitable[int]:
        if kind == "router":
            return wiring.run_router(settings)
        return wiring.run_worker(settings, AGENTS[name[0]])

    return serve_while_wanted(Path(config), serve)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
