"""What each process of a run executes: ``python -m reach_worker.bench.live.process router|agents SCENE``.

It talks with the bench in lines of JSON. Said by itself: ``up``, and by agents ``done``. Asked on its standard input:
``usage``, and of agents ``go``. When its standard input ends it stops, so it never outlives the bench.

``REACH_BENCH_PROFILE`` names a file that a profile of its main thread, by CPU time, is written to.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from reach_worker import wiring
from reach_worker.bench.live.host import host
from reach_worker.bench.live.lines import listening, say
from reach_worker.bench.live.profiled import profiling_to
from reach_worker.bench.live.scene import Scene
from reach_worker.bench.live.usage import Usage

PROFILE = "REACH_BENCH_PROFILE"


def main(arguments: Sequence[str]) -> int:
    """Run a router or agents to their end; the exit status."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("aiormq").setLevel(logging.WARNING)
    kind, path = arguments
    scene = Scene.model_validate_json(Path(path).read_bytes())
    profile = os.environ.get(PROFILE)

    async def serve() -> int:
        with profiling_to(profile):
            if kind == "router":
                return await _router(scene)
            return await _Agents(scene).serve()

    return wiring.run(serve)


async def _router(scene: Scene) -> int:
    logging.getLogger(wiring.__name__).addHandler(_UpTold())
    with listening({"usage": _usage}):
        return await wiring.run_router(scene.settings)


class _UpTold(logging.Handler):
    """Hands on that the router is up, which it says in its log."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg.startswith("router %s is up"):
            say("up", **asdict(Usage.own()))


@dataclass(slots=True)
class _Agents:
    scene: Scene
    started: int = 0
    go: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self) -> int:
        if not self.scene.holds:
            self.go.set()
        with listening({"usage": self._usage, "go": self.go.set}):
            await host(self.scene.settings, self.scene.fleet(self._handle), lambda: say("up"))
        return 0

    async def _handle(self, _payload: Mapping[str, Any]) -> Mapping[str, Any]:
        self.started += 1
        if self.started == self.scene.expected:
            say("done")
        if not self.go.is_set():
            await self.go.wait()
        return {}

    def _usage(self) -> None:
        say("usage", **asdict(Usage.own()), started=self.started)


def _usage() -> None:
    say("usage", **asdict(Usage.own()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
