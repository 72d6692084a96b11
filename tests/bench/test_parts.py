"""The parts, in numbers so small that only what is measured shows, not how fast it is."""

import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvloop
from click.testing import CliRunner

from reach_worker.bench.live import bare, decide, grow, latency, peers, replay, store
from reach_worker.bench.live.parts import PARTS
from reach_worker.bench.live.peers import PEERS, peer_run
from reach_worker.bench.live.scene import Place
from reach_worker.bench.live.sizes import SHORT, Sizes
from reach_worker.bench.program import bench
from reach_worker.clock import SystemClock
from tests.bus.wire import shared_broker
from tests.tooling.observing import needs_proc, processes_mentioning, wait_until

TINY = replace(
    SHORT,
    tasks=100,
    level_s=0.5,
    candidates=1_000,
    outcomes=(0, 300),
    agents=(3,),
    in_flight=40,
    waiting=800,
    rows_of=130,
    questions=10,
    letters=30,
)
Part = Callable[[Place, Sizes, Callable[[str], None]], Awaitable[Mapping[str, Any]]]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(shared_broker(), tmp_path, SystemClock().new_id)


def figures(part: Part, place: Place) -> Mapping[str, Any]:
    async def run() -> Mapping[str, Any]:
        return await part(place, TINY, lambda _text: None)

    return uvloop.run(run())


@pytest.mark.broker
@pytest.mark.system
def test_the_last_line_is_one_object_by_part() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "reach_worker.bench",
            "route",
            "replay",
            "--short",
            "--tasks",
            "100",
            "--json",
        ],
        env=os.environ | {"REACH_AMQP_URL": shared_broker()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert list(found) == ["environment", "route", "replay"]
    assert found["environment"]["rabbitmq"]
    route = found["route"]
    assert set(route) >= {
        "tasks_per_s", "cpu_us_per_task", "ratio_to_bare", "cpu_ratio_to_bare", "ratio_to_peers", "peak_mb",
    }  # fmt: skip
    assert route["tasks_per_s"] > 0
    assert route["cpu_us_per_task"] > 0
    assert 10 < route["peak_mb"] < 1_000
    assert (route["ratio_to_bare"] is not None) is bare.there()
    assert sorted([*route["ratio_to_peers"], *route["not_installed"]]) == sorted(PEERS)
    assert found["replay"]["letters"] == SHORT.letters


@pytest.mark.broker
@pytest.mark.system
@needs_proc
def test_nothing_is_left_of_a_bench_that_is_stopped(tmp_path: Path) -> None:
    stopped = subprocess.Popen(
        [sys.executable, "-m", "reach_worker.bench", "route", "--tasks", "2000"],
        env=os.environ | {"REACH_AMQP_URL": shared_broker(), "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_until(lambda: any("live.process" in line for line in processes_mentioning(tmp_path)), 60)
    stopped.terminate()
    assert stopped.wait(60) == 130
    assert list(tmp_path.iterdir()) == []
    wait_until(lambda: not processes_mentioning(tmp_path))


@pytest.mark.broker
@pytest.mark.system
def test_latency(place: Place) -> None:
    found = figures(latency.run, place)
    assert found["tasks_per_s"] > 0
    for level in ("at_10", "at_50", "at_80"):
        assert 0 < found[level]["p50_ms"] <= found[level]["p99_ms"] <= found[level]["p999_ms"]
        for ratio in ("p99_ratio_to_bare", "p99_ratio_to_bare_at_its_share"):
            assert (found[level][ratio] is not None) is bare.there()


@pytest.mark.broker
@pytest.mark.system
def test_grow(place: Place) -> None:
    found = figures(grow.run, place)
    assert list(found["outcomes"]) == ["0", "300"]
    for measured in found["outcomes"].values():
        assert measured["tasks_per_s"] > 0
        assert measured["start_s"] > 0
        assert measured["decide"]["cpu_us"] > 0
    assert found["agents"]["3"]["cpu_us_per_task"] > 0
    memory = found["memory"]
    assert memory["in_flight"]["idle_mb"] <= memory["in_flight"]["peak_mb"]
    assert 0 < memory["waiting"]["on_broker"] <= TINY.waiting


@pytest.mark.broker
@pytest.mark.system
def test_store_and_replay(place: Place) -> None:
    found = figures(store.run, place)
    assert found["rows_per_s"] > 0
    assert 0 < found["explain"]["p50_ms"] <= found["explain"]["p99_ms"]
    assert found["dlq_list"]["letters"] == TINY.letters
    assert figures(replay.run, place)["letters_per_s"] > 0


@pytest.mark.broker
@pytest.mark.system
@pytest.mark.parametrize("name", PEERS)
def test_a_peer_does_the_same_job(place: Place, name: str) -> None:
    if name not in peers.installed():
        pytest.skip(f"{name} is not installed")

    async def run() -> float:
        return (await peer_run(place, name, 100, limit_s=60.0)).tasks_per_s

    assert uvloop.run(run()) > 0


def test_decide_needs_no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REACH_AMQP_URL", raising=False)
    found = decide.run(TINY)
    assert [name for name in found if name.isdigit()] == ["5", "20", "200", "1000"]
    done = CliRunner().invoke(bench, ["route"])
    assert done.exit_code == 2
    assert "REACH_AMQP_URL is not set" in done.stderr


def test_help_names_the_parts() -> None:
    done = CliRunner().invoke(bench, ["--help"])
    assert done.exit_code == 0
    assert all(name in done.stdout for name in (*PARTS, "routing"))
    assert CliRunner().invoke(bench, ["rout"]).exit_code == 2
    assert CliRunner().invoke(bench, ["decide", "--runs", "0"]).exit_code == 2
