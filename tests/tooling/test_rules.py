"""The rules in pyproject.toml do fire: a rule that never fires protects nobody."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tooling.observing import ROOT

TOOLS = Path(sys.executable).parent
FOLDERS = [".", "agent", "bus", "cli", "core", "services", "store"]
MODULES = [
    "__init__",
    "__main__",
    "client",
    "clock",
    "demo",
    "errors",
    "ports",
    "settings",
    "testing",
    "wiring",
]


@pytest.mark.parametrize(
    ("code", "rule"),
    [
        ("import time\n\nNOW = time.time()\n", "TID251"),
        ("import time\n\nNOW = time.monotonic()\n", "TID251"),
        ("from random import uniform\n\nDRAW = uniform(0, 1)\n", "TID251"),
        ("from datetime import UTC, datetime\n\nNOW = datetime.now(UTC)\n", "TID251"),
        ("import asyncio\n\n\nasync def later() -> None:\n    await asyncio.sleep(1)\n", "TID251"),
        ("import asyncio\n\nspawn = asyncio.create_task\n", "TID251"),
        ("from unittest import mock\n\nfake = mock.Mock()\n", "TID251"),
        ("try:\n    import yaml\nexcept Exception:\n    yaml = None\n", "BLE001"),
    ],
)
@pytest.mark.parametrize("name", ["reach_worker/services/x.py", "tests/services/test_x.py"])
def test_what_is_banned_is_found(code: str, rule: str, name: str) -> None:
    found = subprocess.run(
        [TOOLS / "ruff", "check", "--no-cache", "--output-format=concise", "--stdin-filename", name, "-"],
        input=code,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert rule in found.stdout


@pytest.mark.parametrize(
    ("importer", "imported", "broken"),
    [
        ("core/task", "asyncio", "The core is pure: no I/O, no clock, no chance"),
        ("core/task", "logging", "The core is pure: no I/O, no clock, no chance"),
        ("store/outcomes", "aio_pika", "Only the bus knows AMQP"),
        ("services/fleet", "sqlite3", "Only the store knows SQL"),
        ("store/outcomes", "reach_worker.bus", "Imports run downwards only"),
        ("client", "reach_worker.services", "Imports run downwards only"),
        ("core/task", "reach_worker.settings", "Imports run downwards only"),
        ("plugins", "json", "Imports run downwards only"),  # a module that no layer names
        ("cli/run", "reach_worker.demo", None),
        ("cli/run", "reach_worker.testing", "Production knows no testing kit"),
        ("bus/session", "aio_pika", None),
        ("store/outcomes", "aiosqlite", None),
        ("demo", "reach_worker.cli", None),
        ("testing", "reach_worker.cli", None),
    ],
)
def test_layers(tmp_path: Path, importer: str, imported: str, broken: str | None) -> None:
    package = tmp_path / "reach_worker"
    for folder in FOLDERS:
        (package / folder).mkdir(parents=True, exist_ok=True)
        (package / folder / "__init__.py").touch()
    for module in MODULES:
        (package / f"{module}.py").touch()
    (package / f"{importer}.py").write_text(f"import {imported}\n")
    done = subprocess.run(
        [TOOLS / "lint-imports", "--no-cache", ROOT / "pyproject.toml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    verdicts = dict(re.findall(r"^(.+) (KEPT|BROKEN)\b", done.stdout, re.MULTILINE))
    assert len(verdicts) == 5, done.stdout + done.stderr
    assert [name for name, verdict in verdicts.items() if verdict == "BROKEN"] == ([broken] if broken else [])
    assert done.returncode == (1 if broken else 0)
