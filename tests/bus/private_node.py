"""A RabbitMQ node of a test's own: to stop, to kill, to starve, and to ask what it really holds."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reach_worker.chaos.node import KNOWS_ALL
from tests.tooling.observing import ROOT, need_rabbitmq

SCRIPT = ROOT / "scripts" / "broker"
OWNER = ("--owner-pid", str(os.getpid()))  # so that no node outlives a test run that is killed


@dataclass
class Node:
    """A node in a folder. A stop or a kill keeps its data and its port. Every method blocks."""

    folder: Path
    url: str = field(init=False, default="")

    def start(self) -> None:
        """Start it; back when it takes connections."""
        self.url = self._run("start", *OWNER)

    def stop(self) -> None:
        """Stop it in order."""
        self._run("stop")

    def kill(self) -> None:
        """SIGKILL it, as if it had run for a while.

        RabbitMQ 3.10 writes down what it knows of quorum queues every three minutes only. One that was declared
        later comes back without a leader and without its messages; that is no fault of who uses it.
        """
        self.ctl("eval", KNOWS_ALL)
        self._run("kill")

    def ctl(self, *arguments: str) -> str:
        """What rabbitmqctl says."""
        return self._run("ctl", "--quiet", *arguments)

    def table(self, *arguments: str) -> list[dict[str, Any]]:
        """The rows of one of rabbitmqctl's lists."""
        rows: list[dict[str, Any]] = json.loads(self.ctl("--formatter=json", *arguments))
        return rows

    def close_connections(self) -> None:
        """Close every connection from the broker's side."""
        self.ctl("close_all_connections", "a test does this")

    @contextmanager
    def memory_alarm(self) -> Iterator[None]:
        """Within the block the node is out of memory, as far as it knows: publishers are blocked."""
        self.ctl("set_vm_memory_high_watermark", "0.00001")
        try:
            yield
        finally:
            self.ctl("set_vm_memory_high_watermark", "absolute", "512MB")

    def _run(self, *arguments: str) -> str:
        done = subprocess.run(
            [SCRIPT, *arguments],
            env=os.environ | {"REACH_BROKER_DIR": str(self.folder), "REACH_BROKER_CONF": ""},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@contextmanager
def private_node(folder: Path) -> Iterator[Node]:
    """A node that runs within the block. Skips where there is no RabbitMQ to start."""
    need_rabbitmq()
    node = Node(folder)
    node.start()
    try:
        yield node
    finally:
        node.stop()
        shutil.rmtree(folder, ignore_errors=True)
