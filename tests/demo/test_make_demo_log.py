import runpy
from pathlib import Path
from typing import Any

import pytest

from reach_worker.demo.work.log_line import parse_log

SCRIPT = Path(__file__).parents[2] / "scripts" / "make_demo_log.py"
SHIPPED = Path(__file__).parents[2] / "reach_worker" / "demo" / "data" / "access.log"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


def test_the_defaults_make_the_shipped_file_byte_for_byte(script: dict[str, Any], tmp_path: Path) -> None:
    out = tmp_path / "access.log"
    script["main"](["--out", str(out)])
    assert out.read_bytes() == SHIPPED.read_bytes()
    assert script["DEFAULT_OUT"] == SHIPPED.resolve()


def test_another_seed_makes_another_log_of_the_asked_length(script: dict[str, Any], tmp_path: Path) -> None:
    texts = []
    for seed in ("1", "2"):
        out = tmp_path / seed
        script["main"](["--lines", "200", "--seed", seed, "--out", str(out)])
        texts.append(out.read_text(encoding="utf-8"))
    assert [text.count("\n") for text in texts] == [200, 200]
    assert texts[0] != texts[1]


def test_what_the_log_is_meant_to_hold(script: dict[str, Any]) -> None:
    log = parse_log(script["log_text"](lines=2000, seed=7).split("\n"))
    assert 0 < log.malformed < 40
    outage = [entry for entry in log.entries if entry.time.day == 5 and entry.time.hour == 14]
    errors = [entry for entry in log.entries if entry.status >= 500]
    assert sum(1 for entry in outage if entry.status >= 500) > 0.7 * len(errors)
    assert {entry.time.day for entry in log.entries} == {3, 4, 5, 6, 7}
    assert {"GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "-"} == {entry.method for entry in log.entries}
    assert any("bot" in entry.agent for entry in log.entries)
    assert any('"tablet"' in entry.agent for entry in log.entries)
