"""The profile finds what uses the processor, not what waits."""

from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner

from reach_worker.bench.live.profile_program import profile
from reach_worker.bench.live.profiled import profiling_to


def busy() -> int:
    return sum(number * number for number in range(3_000_000))


@pytest.mark.system
def test_own_and_whole_time(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    with profiling_to(str(path)):
        busy()
    found = orjson.loads(path.read_bytes())
    inner, outer = (
        next((s for name, s in found[kind].items() if name.endswith(suffix)), 0.0)
        for kind, suffix in (("own", "busy.<locals>.<genexpr>"), ("whole", ":busy"))
    )
    assert 0 < inner <= outer <= found["main_s"]
    assert outer > found["main_s"] / 2
    assert found["others_s"] < found["main_s"]


def test_without_a_file_nothing_is_sampled() -> None:
    with profiling_to(None):
        busy()


@pytest.mark.system
def test_the_command_shows_microseconds_per_decision(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    arguments = ["decide", "--tasks", "500", "--lines", "500", "--file", str(kept)]
    done = CliRunner().invoke(profile, arguments)
    assert done.exit_code == 0
    assert "µs per decision" in done.stderr
    assert "routing.py:plan" in done.stdout
    assert kept.exists()
