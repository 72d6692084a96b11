"""scripts/private-node.sh: how scripts/run and scripts/test treat their command, folder, node and signals."""

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.tooling.observing import ROOT, need_rabbitmq, needs_proc, processes_mentioning, wait_until

pytestmark = pytest.mark.system

# A script like scripts/run. It says which folder is its own.
SCRIPT = """
set -euo pipefail
root=$0
source "$root/scripts/private-node.sh"
begin_run
echo "$run_folder"
forward "$@"
"""

# Says when it is ready, which signal came, and whether another one followed.
LISTENER = """
import signal, sys
heard = {signal.SIGINT, signal.SIGTERM}
signal.pthread_sigmask(signal.SIG_BLOCK, heard)
print("ready", flush=True)
first = signal.sigwait(heard)
print(first.name, "again" if signal.sigtimedwait(heard, 0.5) else "once", flush=True)
sys.exit(3)
"""
LISTEN = [sys.executable, "-c", LISTENER]

BROUGHT = os.environ | {"REACH_AMQP_URL": "amqp://brought.invalid/"}  # so that no node is started
OWN = {key: value for key, value in os.environ.items() if key != "REACH_AMQP_URL"}


@contextmanager
def running(*command: str, environment: dict[str, str] = BROUGHT) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        ["bash", "-c", SCRIPT, ROOT, *command],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as script:
        yield script


def line(script: subprocess.Popen[str]) -> str:
    assert script.stdout is not None
    return script.stdout.readline().strip()


def test_the_status_is_kept_and_the_folder_goes() -> None:
    with running("sh", "-c", "exit 7") as script:
        folder = Path(line(script))
    assert script.returncode == 7
    assert not folder.exists()


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("send", [os.kill, os.killpg], ids=["to the script", "to its group"])
def test_a_signal_reaches_the_command_once(name: str, send: Callable[[int, int], None]) -> None:
    with running(*LISTEN) as script:
        folder = Path(line(script))
        assert folder.is_dir()
        assert line(script) == "ready"
        send(script.pid, signal.Signals[name])
        assert line(script) == f"{name} once"
    assert script.returncode == 3
    assert not folder.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="setsid gives the script its terminal")
def test_at_a_terminal_control_c_reaches_the_command_once() -> None:
    keyboard, terminal = pty.openpty()
    with subprocess.Popen(
        ["setsid", "--ctty", "--wait", "bash", "-c", SCRIPT, ROOT, *LISTEN],
        env=BROUGHT,
        stdin=terminal,
        stdout=subprocess.PIPE,
        text=True,
    ) as script:
        folder = Path(line(script))
        assert line(script) == "ready"
        os.write(keyboard, b"\x03")
        assert line(script) == "SIGINT once"
    os.close(keyboard)
    os.close(terminal)
    assert script.returncode == 3
    assert not folder.exists()


@needs_proc
@pytest.mark.broker
def test_the_node_goes_with_the_script() -> None:
    need_rabbitmq()
    with running("sh", "-c", "echo $REACH_AMQP_URL", environment=OWN) as script:
        folder = Path(line(script))
        assert line(script).startswith("amqp://guest:guest@127.0.0.1:")
    assert script.returncode == 0
    assert not folder.exists()
    assert processes_mentioning(folder) == []


@needs_proc
@pytest.mark.broker
def test_a_killed_script_leaves_neither_node_nor_command() -> None:
    need_rabbitmq()
    with running("sh", "-c", "echo ready; exec sleep 600", environment=OWN) as script:
        folder = Path(line(script))
        assert line(script) == "ready"
        assert any("sleep 600" in command for command in processes_mentioning(folder))
        script.kill()
    wait_until(lambda: not processes_mentioning(folder))
    wait_until(lambda: not folder.exists())
