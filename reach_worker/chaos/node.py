"""The broker of a run: a node of its own, through ``scripts/broker``, to be killed and starved."""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from reach_worker.errors import BadInput, OutsideWorld, Problem

SCRIPT: Final = Path(__file__).parents[2] / "scripts" / "broker"
LIMIT_S: Final = 90.0
PLENTY: Final = ("absolute", "512MB")
"""The memory that ``scripts/broker`` gives a node."""
KNOWS_ALL: Final = "_ = (catch mnesia:sync_log()), [ok = dets:sync(Table) || Table <- dets:all()]."


@dataclass(slots=True)
class Node:
    """The node in a folder. A stop or a kill keeps its data and its port."""

    folder: Path
    environ: Mapping[str, str]
    url: str = ""

    @property
    def port(self) -> int:
        """Where it takes connections."""
        return urlsplit(self.url).port or 5672

    async def start(self) -> None:
        """Start it; back when it takes connections. It stops by itself soon after this process is gone."""
        self.url = (await self._run("start", "--owner-pid", str(os.getpid()))).strip()

    async def kill(self) -> None:
        """SIGKILL it, as if it had run for a while.

        RabbitMQ 3.10 writes down what it knows of quorum queues every three minutes only. One that was declared later
        comes back without a leader and its messages, which is no fault of who uses it: so all is written down first.
        """
        await self.ctl("eval", KNOWS_ALL)
        await self._run("kill")

    async def stop(self) -> None:
        """Stop it in order."""
        await self._run("stop")

    async def ctl(self, *arguments: str) -> str:
        """What rabbitmqctl says."""
        return await self._run("ctl", "--quiet", *arguments)

    async def _run(self, *arguments: str) -> str:
        words = f"scripts/broker {' '.join(arguments)}"
        try:
            done = await asyncio.to_thread(self._call, arguments)
        except subprocess.TimeoutExpired:
            raise OutsideWorld(f"{words}: not done after {LIMIT_S:g} s") from None
        if done.returncode != 0:
            raise OutsideWorld(f"{words}: exit status {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def _call(self, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(  # noqa: S603 - the project's own script
            [SCRIPT, *arguments],
            env={**self.environ, "REACH_BROKER_DIR": str(self.folder)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
            start_new_session=True,
        )


@asynccontextmanager
async def running_node(folder: Path, environ: Mapping[str, str]) -> AsyncIterator[Node]:
    """A node that runs within the block. Raises ``BadInput`` outside of a checkout."""
    if not SCRIPT.exists():
        raise BadInput(
            Problem(
                f"there is no {SCRIPT}",
                hint="the chaos run needs the checkout: git clone, then scripts/chaos",
            )
        )
    node = Node(folder, environ)
    try:
        await node.start()
        yield node
    finally:
        await asyncio.shield(node.stop())
