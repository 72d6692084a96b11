"""The proof by breaking it, in its short form, as people run it."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.processes import environment
from tests.tooling.observing import ROOT, need_rabbitmq, needs_proc, processes_mentioning, wait_until

pytestmark = [pytest.mark.system, pytest.mark.broker, needs_proc, pytest.mark.timeout(300)]
SEED = 4
MUST_BE_NOTHING = ("lost", "stuck", "garbled", "doubled_unexplained", "doubled_with_side_effects")


def test_nothing_is_lost_and_nothing_happens_twice_unseen(tmp_path: Path) -> None:
    need_rabbitmq()
    done = subprocess.run(
        [sys.executable, "-m", "reach_worker.chaos", "--short", "--json", "--seed", str(SEED)],
        cwd=ROOT,
        env=environment(TMPDIR=str(tmp_path)),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    figures = json.loads(done.stdout.splitlines()[-1])
    assert {name: figures[name] for name in MUST_BE_NOTHING} == dict.fromkeys(MUST_BE_NOTHING, 0), done.stderr
    assert done.returncode == 0, done.stderr
    assert figures["seed"] == SEED
    assert figures["tasks"] == 1000
    assert figures["faults"] >= 12
    assert {"router_kill", "agent_kill", "broker_kill", "store_locked"} <= figures["faults_by_kind"].keys()
    assert isinstance(figures["longest_stall_s"], float)
    assert isinstance(figures["memory_slope_mb_per_min"], float)
    assert processes_mentioning(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_is_stopped_leaves_nothing(tmp_path: Path) -> None:
    need_rabbitmq()
    with subprocess.Popen(
        [sys.executable, "-m", "reach_worker.chaos", "--short"],
        cwd=ROOT,
        env=environment(TMPDIR=str(tmp_path)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if "tasks and" in line:  # all processes are up, and the tasks begin to come
                process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130, "".join(said)
    assert "stopped" in said[-1]
    wait_until(lambda: processes_mentioning(tmp_path) == [])
    assert list(tmp_path.iterdir()) == []
