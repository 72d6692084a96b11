"""``reach store``: numbers that are true, prunes what it says, and errors for people."""

import asyncio
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from reach_worker.clock import SystemClock
from reach_worker.ports import Row
from reach_worker.store import SqliteStore
from reach_worker.store.pruner import DAY_US
from reach_worker.store.row_lines import to_line
from tests.cli.conftest import Call
from tests.store.sample import accepted, decided, dispatched, joined, seen, started, succeeded
from tests.store.trouble import count, damage, locked, spill_file

NOW = SystemClock().utc_us()


@pytest.fixture
def path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = folder / "reach.db"
    monkeypatch.setenv("REACH_STORE__PATH", str(path))
    return path


def whole(task_id: str, days: float) -> list[Row]:
    at = NOW - round(days * DAY_US)
    return [
        accepted(task_id, at=at),
        decided(task_id, at=at),
        dispatched(task_id, dispatch_id=f"d-{task_id}", at=at),
        started(f"d-{task_id}", at=at),
        seen(dispatch_id=f"d-{task_id}", task_id=task_id, at=at, duration_ms=1.0),
        succeeded(task_id, at=at),
        joined(task_id, at=at),
    ]


async def write(path: Path, rows: list[Row]) -> None:
    async with SqliteStore.open(path, clock=SystemClock(), wait_s=10) as store:
        assert await store.record(rows)


@pytest.fixture
def filled(path: Path) -> Path:
    rows = [row for number in range(5) for row in whole(f"old{number}", 100)]
    rows += [row for number in range(3) for row in whole(f"new{number}", 10)]
    asyncio.run(write(path, [*rows, accepted("open", at=NOW - 200 * DAY_US)]))
    return path


def of(call: Call, *arguments: str, status: int = 0) -> Any:
    done = call("store", *arguments, "--json")
    assert done.exit_code == status, done.stderr
    return json.loads(done.stdout)


def test_stats_count_what_is_there(call: Call, filled: Path) -> None:
    found = of(call, "stats")

    assert found["path"] == str(filled)
    assert (found["ended"], found["open"], found["beyond_retention"]) == (8, 1, 5)
    assert (found["oldest"], found["newest"]) == (NOW - 200 * DAY_US, NOW - 10 * DAY_US)
    assert found["file_bytes"] == filled.stat().st_size
    assert found["rows"]["tasks"] == 9
    assert found["rows"]["waiters"] == found["rows"]["outcomes"] == 8
    assert found["rows"]["success"] == 1
    assert (found["spilled_rows"], found["spilled_bytes"], found["check"]) == (0, 0, None)
    assert found["retention_days"] == 90


def test_stats_for_people(call: Call, filled: Path) -> None:
    done = call("store", "stats", "--check")

    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["STORE", str(filled)]
    assert "tasks        8 ended, 1 open" in lines
    assert "retention    90 days; 5 tasks are older: a router or `reach store prune` removes them" in lines
    assert "not written  nothing waits in the spill file" in lines
    assert "check        the file is sound" in lines
    assert any(line.split() == ["decisions", "8"] for line in lines)


def test_rows_in_the_spill_file_are_shown_and_are_not_as_it_should_be(call: Call, filled: Path) -> None:
    line = to_line(accepted("late"))
    spill_file(filled).write_bytes(line * 3)

    found = of(call, "stats", status=1)
    assert (found["spilled_rows"], found["spilled_bytes"]) == (3, 3 * len(line))
    assert found["spill_file"] == str(spill_file(filled))
    assert f"3 rows, {3 * len(line)} bytes, wait in {spill_file(filled)}" in call("store", "stats").stdout


def test_rows_in_the_spill_file_are_shown_while_there_is_no_store(call: Call, path: Path) -> None:
    line = to_line(accepted("late"))
    spill_file(path).write_bytes(line)

    done = call("store", "stats")
    assert done.exit_code == 1
    assert f"1 rows ({len(line)} bytes) wait in {spill_file(path)}" in done.stderr
    assert "there is no store yet" in done.stderr


def test_damage_is_found_on_demand(call: Call, filled: Path) -> None:
    with closing(sqlite3.connect(filled)) as connection:
        root = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'starts'").fetchone()[0]
    damage(filled, (root - 1) * 4096, 4096)

    done = call("store", "stats", "--check")
    assert done.exit_code == 1
    assert "the store is damaged: move it away" in done.stderr
    found = of(call, "stats", "--check", status=1)
    assert found["check"]["ok"] is False
    assert found["check"]["problems"]
    assert "malformed; it is damaged" in call("store", "stats").stderr


def test_a_dry_run_says_what_a_prune_then_removes(call: Call, filled: Path) -> None:
    asyncio.run(write(filled, [started("nobody's", at=NOW - 100 * DAY_US), joined("no task", at=0)]))
    dry = of(call, "prune", "--dry-run")
    assert count(filled, "tasks") == 9
    done = of(call, "prune")

    assert dry["would_remove"] == done["removed"]
    assert {table: rows for table, rows in done["removed"].items() if rows} == {
        "tasks": 5, "decisions": 5, "dispatches": 5, "outcomes": 5, "ends": 5, "starts": 6, "waiters": 6
    }  # fmt: skip
    assert (count(filled, "tasks"), count(filled, "waiters")) == (4, 3)
    assert of(call, "stats")["beyond_retention"] == 0
    assert "nothing is older than 90 d" in call("store", "prune").stderr


def test_how_old_is_too_old_can_be_said(call: Call, filled: Path) -> None:
    assert of(call, "prune", "--older-than", "9d")["removed"]["tasks"] == 8
    assert count(filled, "tasks") == 1


def test_the_settings_say_how_old_is_too_old(
    call: Call, filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REACH_STORE__RETENTION_DAYS", "5")
    assert of(call, "stats")["beyond_retention"] == 8
    assert of(call, "prune")["removed"]["tasks"] == 8
    assert count(filled, "tasks") == 1


def test_the_file_gets_smaller_only_when_that_is_asked_for(call: Call, path: Path) -> None:
    asyncio.run(write(path, [row for number in range(2000) for row in whole(f"old{number}", 100)]))
    size = path.stat().st_size

    pruned = of(call, "prune")
    assert pruned["removed"]["tasks"] == 2000
    assert pruned["file_bytes"] == size
    assert pruned["free_bytes"] > size / 2
    smaller = of(call, "prune", "--vacuum")
    assert smaller["file_bytes"] == path.stat().st_size < size / 2
    assert smaller["free_bytes"] == 0
    assert of(call, "stats", "--check")["check"] == {"ok": True, "problems": []}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["prune", "--older-than", "1h"], "--older-than: a day at least"),
        (["prune", "--older-than", "old"], "'old' is no duration"),
        (["prune", "--dry-run", "--vacuum"], "nothing to --vacuum"),
        (["backup"], "Missing argument 'FILE'"),
    ],
)
def test_wrong_usage(call: Call, filled: Path, arguments: list[str], words: str) -> None:
    done = call("store", *arguments)

    assert (done.exit_code, done.stdout) == (2, "")
    assert words in done.stderr
    assert count(filled, "tasks") == 9


def test_a_backup_is_made_and_told(call: Call, filled: Path, folder: Path) -> None:
    made = of(call, "backup", "copy.db")
    assert made["bytes"] == (folder / "copy.db").stat().st_size
    assert (made["tasks"], made["path"], made["of"]) == (9, "copy.db", str(filled))

    again = call("store", "backup", "copy.db")
    assert (again.exit_code, again.stdout) == (2, "")
    assert "copy.db is there already" in again.stderr
    forced = call("store", "backup", "copy.db", "--force")
    assert forced.exit_code == 0
    assert "copy.db: " in forced.stdout
    assert "9 tasks, schema" in forced.stdout


def test_a_backup_says_what_is_not_in_it(call: Call, filled: Path) -> None:
    spill_file(filled).write_bytes(to_line(accepted("late")))
    done = call("store", "backup", "copy.db")

    assert done.exit_code == 0
    assert "1 rows are not in it" in done.stderr


def nothing(_path: Path) -> None:
    pass


def letter(path: Path) -> None:
    path.write_text("Dear reader, " * 100)


def newer(path: Path) -> None:
    asyncio.run(write(path, [accepted()]))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 1234")


def damaged(path: Path) -> None:
    asyncio.run(write(path, [accepted()]))
    damage(path, 100, 4000)


def a_folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("command", [["stats"], ["stats", "--check"], ["prune"], ["backup", "copy.db"]])
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (nothing, "there is no store yet"),
        (letter, "is not an SQLite database"),
        (newer, "a newer version wrote it"),
        (damaged, "put a backup in its place"),
        (a_folder, "is a folder; set store.path to a file in it"),
    ],
)
def test_what_is_no_store_is_told(
    call: Call, path: Path, command: list[str], make: Callable[[Path], None], words: str
) -> None:
    make(path)
    before = path.read_bytes() if path.is_file() else None
    done = call("store", *command)

    assert (done.exit_code, done.stdout) == (1, "")
    assert f"Error: {path}" in done.stderr
    assert words in done.stderr
    assert (path.read_bytes() if path.is_file() else None) == before
    assert not Path("copy.db").exists()


def test_a_store_that_is_locked_can_be_looked_at_and_backed_up(call: Call, filled: Path) -> None:
    with locked(filled):
        assert of(call, "stats")["ended"] == 8
        assert of(call, "backup", "copy.db")["tasks"] == 9
