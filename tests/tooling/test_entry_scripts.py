"""scripts/setup, check and test, in a checkout whose tools are stand-ins that say what they were asked."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.tooling.observing import ROOT

pytestmark = pytest.mark.system
BROUGHT = {"REACH_AMQP_URL": "amqp://brought.invalid/"}  # so that no node is started


def tool(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    tool(tmp_path / "scripts" / "setup", "exit 0")
    for name in ("ruff", "mypy", "lint-imports"):
        tool(tmp_path / ".venv" / "bin" / name, f'echo "asked: {name} $1"')
    tool(tmp_path / ".venv" / "bin" / "python", 'echo "asked: $*"', "echo 5 passed")
    tool(tmp_path / ".venv" / "bin" / "reach", 'echo "asked: $*"', "exit 9")
    return tmp_path


def call(
    command: Path, *arguments: str, environment: dict[str, str] = BROUGHT
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [command, *arguments],
        cwd="/",
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def asked(output: str) -> Sequence[str]:
    return [line.removeprefix("asked: ") for line in output.splitlines() if line.startswith("asked: ")]


def test_check_runs_everything_and_names_what_failed(checkout: Path) -> None:
    tool(checkout / ".venv" / "bin" / "ruff", 'echo "asked: ruff $1"', '[ "$1" = format ]')
    tool(checkout / ".venv" / "bin" / "mypy", "exit 2")
    done = call(checkout / "scripts" / "check")
    assert asked(done.stdout) == ["ruff check", "ruff format", "lint-imports --no-logo"]
    assert done.stdout.splitlines()[-1] == "check: FAILED: ruff check, mypy"
    assert done.returncode == 1


def test_check_passes(checkout: Path) -> None:
    done = call(checkout / "scripts" / "check")
    assert done.stdout.splitlines()[-1] == "check: all passed"
    assert done.returncode == 0


@pytest.mark.parametrize(("mypy", "tests", "status"), [(0, 0, 0), (1, 0, 1), (0, 5, 5), (1, 2, 2)])
def test_test_is_about_checks_and_tests_and_ends_with_the_tests(
    checkout: Path, mypy: int, tests: int, status: int
) -> None:
    tool(checkout / ".venv" / "bin" / "mypy", f"exit {mypy}")
    tool(checkout / ".venv" / "bin" / "python", 'echo "asked: $*"', "echo 5 passed", f"exit {tests}")
    done = call(checkout / "scripts" / "test", "tests/core", "-k", "one thing")
    assert asked(done.stdout)[-1].startswith("-m pytest")
    assert asked(done.stdout)[-1].endswith("tests/core -k one thing")
    assert done.stdout.splitlines()[-1] == "5 passed"
    assert done.returncode == status


def test_ci_is_scripts_test(checkout: Path) -> None:
    done = call(checkout / ".ci" / "run")
    assert done.stdout.splitlines()[-1] == "5 passed"
    assert done.returncode == 0


def test_run_is_the_demo_and_keeps_its_status(checkout: Path) -> None:
    done = call(checkout / "scripts" / "run", "--tasks", "3")
    assert asked(done.stdout) == ["demo --tasks 3"]
    assert done.returncode == 9


def test_chaos_has_a_broker_of_its_own_and_keeps_the_status(checkout: Path) -> None:
    tool(
        checkout / ".venv" / "bin" / "python",
        'echo "asked: $* on ${REACH_AMQP_URL:-a broker of its own}"',
        "exit 1",
    )
    done = call(checkout / "scripts" / "chaos", "--short", "--seed", "7")
    assert asked(done.stdout) == ["-m reach_worker.chaos --short --seed 7 on a broker of its own"]
    assert done.returncode == 1


def test_setup_without_python_says_what_is_missing(checkout: Path) -> None:
    shutil.copy(ROOT / "scripts" / "setup", checkout / "scripts" / "setup")
    shutil.rmtree(checkout / ".venv")
    few = checkout / "bin"
    few.mkdir()
    for name in ("bash", "cat", "dirname", "flock", "id", "mkdir", "perl"):
        if found := shutil.which(name):
            (few / name).symlink_to(found)
    done = call(checkout / "scripts" / "setup", environment={"PATH": str(few)})
    assert "no Python 3.11 or later" in done.stdout
    assert done.returncode == 1


@pytest.mark.skipif(Path(sys.prefix) != ROOT / ".venv", reason="not run in the .venv that scripts/setup made")
def test_setup_is_silent_where_nothing_is_missing() -> None:
    done = call(ROOT / "scripts" / "setup")
    assert done.stdout == ""
    assert done.returncode == 0
