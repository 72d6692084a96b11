"""scripts/bench, in a checkout whose tools only say what they were asked."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
SCRIPT = SCRIPTS / "bench"
BROUGHT = {"REACH_AMQP_URL": "amqp://brought/"}

pytestmark = pytest.mark.system


def tool(path: Path, line: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def test_it_hands_its_arguments_on_and_keeps_the_status(tmp_path: Path) -> None:
    tool(tmp_path / "scripts" / "setup", "exit 0")
    tool(tmp_path / ".venv" / "bin" / "python", 'echo "$*"; exit 9')
    shutil.copy(SCRIPT, tmp_path / "scripts" / "bench")
    done = subprocess.run(
        [tmp_path / "scripts" / "bench", "routing", "--json"],
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "-m reach_worker.bench routing --json\n"
    assert done.returncode == 9


def checkout(folder: Path, python: str) -> Path:
    shutil.copytree(SCRIPTS, folder / "scripts")
    tool(folder / "scripts" / "setup", "exit 0")
    tool(
        folder / "scripts" / "broker",
        'case $1 in start) echo "amqp://own/" ;; *) echo "$1" >>"$0.log" ;; esac',
    )
    tool(folder / ".venv" / "bin" / "python", python)
    return folder


def call(folder: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    inherited = {k: v for k, v in os.environ.items() if k != "REACH_AMQP_URL"}
    return subprocess.run(
        [folder / "scripts" / arguments[0], *arguments[1:]],
        cwd="/",
        env={**inherited, **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def test_parts_are_measured_on_a_node_of_their_own_that_is_stopped(tmp_path: Path) -> None:
    folder = checkout(tmp_path, 'case "$1" in -c) exit 0 ;; *) echo "$REACH_AMQP_URL $*"; exit 9 ;; esac')
    done = call(folder, "bench", "route", "--json")
    assert done.stdout == "amqp://own/ -m reach_worker.bench route --json\n"
    assert done.returncode == 9
    assert (folder / "scripts" / "broker.log").read_text() == "stop\n"
    assert call(folder, "bench", **BROUGHT).stdout == "amqp://brought/ -m reach_worker.bench\n"


def test_aio_pika_is_installed_where_it_is_missing_and_not_needed(tmp_path: Path) -> None:
    folder = checkout(
        tmp_path, 'case "$1 $2" in "-c "*) exit 1 ;; "-m pip") echo "$*"; exit 1 ;; *) echo ran ;; esac'
    )
    done = call(folder, "bench", "route", **BROUGHT)
    assert done.stdout == "ran\n"
    assert "-c constraints.txt aio-pika" in done.stderr
    assert "nothing is compared with the bare forwarder" in done.stderr
    assert call(folder, "bench", "routing").stderr == ""


def test_a_profile_of_a_route_has_a_node_and_one_of_decisions_needs_none(tmp_path: Path) -> None:
    folder = checkout(tmp_path, 'echo "${REACH_AMQP_URL:-none} $*"')
    program = "-m reach_worker.bench.live.profile_program"
    assert call(folder, "profile", "route").stdout == f"amqp://own/ {program} route\n"
    assert call(folder, "profile", "decide", "--agents", "2").stdout == f"none {program} decide --agents 2\n"
