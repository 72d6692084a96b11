"""Processes of a run: what they say, and that none is left."""

from pathlib import Path

import pytest

from reach_worker.bench.live.children import child
from reach_worker.errors import OutsideWorld

SAYS = 'import sys; print(\'{"event": "up", "n": 1}\', flush=True); sys.stdin.read()'
STUBBORN = (
    "import signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    'print(\'{"event": "up"}\', flush=True); sys.stdin.read()'
)

pytestmark = pytest.mark.system


async def test_it_is_heard_and_ended(tmp_path: Path) -> None:
    async with child("one", ["-c", SAYS], tmp_path / "log") as started:
        assert (await started.event("up", 30.0))["n"] == 1
        assert started.process.returncode is None
    assert started.process.returncode is not None


async def test_words_for_people_are_passed_over(tmp_path: Path) -> None:
    code = 'print(\'welcome\'); print(\'{"event": "other"}\'); print(\'{"event": "up"}\', flush=True)'
    async with child("one", ["-c", code], tmp_path / "log") as started:
        await started.event("up", 30.0)
        await started.event("other", 30.0)


async def test_one_that_dies_shows_its_last_words(tmp_path: Path) -> None:
    async with child("one", ["-c", "raise SystemExit('no such broker')"], tmp_path / "log") as started:
        with pytest.raises(OutsideWorld, match=r"one ended[\s\S]*no such broker"):
            await started.event("up", 30.0)


async def test_one_that_says_nothing_is_not_waited_for(tmp_path: Path) -> None:
    async with child("one", ["-c", SAYS], tmp_path / "log") as started:
        with pytest.raises(OutsideWorld, match=r"did not say 'done' within 0\.2 s"):
            await started.event("done", 0.2)


async def test_the_callers_settings_do_not_reach_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REACH_RETRY__MAX_RETRIES", "0")
    code = "import json, os; print(json.dumps({'event': 'up', 'seen': [n for n in os.environ if n[:6] == 'REACH_']}))"
    async with child("one", ["-c", code], tmp_path / "log", {"REACH_BENCH_PROFILE": "x"}) as started:
        assert (await started.event("up", 30.0))["seen"] == ["REACH_BENCH_PROFILE"]
