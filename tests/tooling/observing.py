"""What these tests see of a script from outside: its processes, and when something has come true."""

import operator
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

ROOT = Path(__file__).parents[2]

needs_proc = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads /proc")


def need_rabbitmq() -> None:
    """Skips where a broker was brought (REACH_AMQP_URL) and none is installed; in CI that is a failure."""
    found = subprocess.run(
        ["bash", "-c", 'source "$0" && rabbitmq_folder', ROOT / "scripts" / "find-rabbitmq.sh"],
        stdout=subprocess.DEVNULL,
        check=False,
    )
    if found.returncode and "CI" not in os.environ:
        pytest.skip("no RabbitMQ on this machine to start nodes of")


def wait_until(met: Callable[[], bool], limit: float = 30) -> None:
    Retrying(stop=stop_after_delay(limit), wait=wait_fixed(0.05), retry=retry_if_result(operator.not_))(met)


def processes_mentioning(folder: Path) -> list[str]:
    """The command lines of processes with the folder in their arguments or environment. Zombies have none."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
            sight = command + (process / "environ").read_bytes()
        except OSError:  # gone meanwhile, or somebody else's
            continue
        if os.fsencode(folder) in sight:
            found.append(command.replace(b"\0", b" ").decode(errors="replace"))
    return found
