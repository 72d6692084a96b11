"""scripts/bench, in a checkout whose tools only say what they were asked."""

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "bench"

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
