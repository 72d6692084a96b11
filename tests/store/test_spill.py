"""What finds no room in memory goes to a file, and comes back."""

import asyncio
import fcntl
from contextlib import suppress
from pathlib import Path

import pytest

from reach_worker.clock import SystemClock
from reach_worker.core.outcome import OutcomeClass
from reach_worker.errors import StoreUnavailable
from reach_worker.ports import AnswerLost, BreakerMoved, Row
from reach_worker.store import SqliteStore, StoreReader
from reach_worker.store.row_lines import from_line, to_line
from reach_worker.store.spill import Spill
from reach_worker.store.writer import RECHECK_S
from tests.store.sample import (
    NOON,
    accepted,
    dead,
    decided,
    dispatched,
    joined,
    manifest,
    parked,
    seen,
    started,
    succeeded,
)
from tests.store.trouble import LIMIT_S, count, full_disk, locked, recorded, spill_file, spilled

EVERY_KIND: list[Row] = [
    accepted(), decided(), dispatched(), started(), seen(OutcomeClass.FAILED, duration_ms=1.5), parked(), dead(),
    succeeded(answer=b"\xff\x00"), succeeded(answer=None), joined(correlation_id=None), joined(),
    AnswerLost("t1", "q1", NOON), BreakerMoved("grep", "r1", "open", NOON, "5 in a row"), manifest(),
]  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "reach.db"


def opened(path: Path, *, wait_s: float = 0.2, memory_rows: int = 10) -> SqliteStore:
    return SqliteStore.open(path, clock=SystemClock(), wait_s=wait_s, memory_rows=memory_rows)


async def recovered(store: SqliteStore, rows: int = 0) -> None:
    """Until so many rows, and all that were spilled, came back. Each record is a step of the writer."""
    async with asyncio.timeout(LIMIT_S):
        while (stats := store.stats()).recovered < max(rows, stats.spilled) or stats.waiting or stats.away:
            await store.record([BreakerMoved("grep", "r1", "open", NOON, "")])


@pytest.mark.parametrize("row", EVERY_KIND, ids=lambda row: type(row).__name__)
def test_a_row_survives_as_a_line(row: Row) -> None:
    line = to_line(row)

    assert from_line(line) == row
    assert line.count(b"\n") == 1


async def test_rows_beyond_the_bound_go_to_the_file_and_come_back(path: Path) -> None:
    async with opened(path) as store:
        await recorded(store, accepted("t0"))
        with locked(path):
            for number in range(1, 41):
                assert not await store.record([accepted(f"t{number}")])
            away = store.stats()
        await recovered(store)

        assert away.spilled == 40, "also what waits in memory: the process may be killed"
        assert store.stats().spilled >= 30
        assert store.stats().lost == 0
        assert len(await store.known_tasks([f"t{number}" for number in range(41)])) == 41
    assert spilled(path) == 0


async def test_one_big_call_may_be_larger_than_the_bound(path: Path) -> None:
    async with opened(path, wait_s=10, memory_rows=5) as store:
        assert await store.record([accepted(f"t{number}") for number in range(100)])
        await recorded(store, accepted("t100"))

    assert count(path, "tasks") == 101


async def test_leaving_a_locked_database_spills_what_is_left(path: Path) -> None:
    async with opened(path, memory_rows=1000) as store:
        await recorded(store, accepted("t0"))
        with locked(path):
            await store.record(EVERY_KIND)
            await store.__aexit__(None, None, None)
            assert not await store.record([accepted("t2")])
    assert spilled(path) == len(EVERY_KIND) + 1

    async with opened(path) as store:
        await recovered(store, len(EVERY_KIND) + 1)
        assert set(await store.known_tasks(["t0", "t1", "t2"])) == {"t0", "t1", "t2"}
    assert spilled(path) == 0
    async with StoreReader.open(path) as reader:
        history = await reader.task("t1")
    assert history is not None
    assert [len(part) for part in (history.decisions, history.outcomes, history.ends)] == [1, 1, 2]


async def test_what_an_earlier_process_left_is_read_at_once(path: Path) -> None:
    spill_file(path).write_bytes(to_line(accepted("t1")))
    async with opened(path) as store, asyncio.timeout(RECHECK_S / 2):
        while not await store.known_tasks(["t1"]):
            pass
    assert spilled(path) == 0


async def test_a_file_that_was_read_but_not_emptied_changes_nothing(path: Path) -> None:
    spill_file(path).write_bytes(b"".join(map(to_line, EVERY_KIND)) * 3)

    async with opened(path) as store:
        await recovered(store, 3 * len(EVERY_KIND))
        track = (await store.track_record()).of("grep", "log.query")

    assert track is not None
    assert track.slow.tries == 1.0
    assert count(path, "ends") == 2


async def test_lines_that_are_none_are_counted_and_left_out(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = [
        to_line(accepted("t1")),
        b"{}\n",
        b'{"row": "Gone", "of": {}}\n',
        b"\xff\n",
        to_line(accepted("t2"))[:-30],
    ]
    spill_file(path).write_bytes(b"".join(lines))

    async with opened(path) as store:
        await recovered(store, 1)
        await recorded(store, accepted("t3"))
        assert set(await store.known_tasks(["t1", "t2", "t3"])) == {"t1", "t3"}
        assert store.stats().refused == 4
    assert "not a row" in caplog.text


async def test_a_line_that_a_crash_cut_spoils_no_other(path: Path) -> None:
    spill_file(path).write_bytes(to_line(accepted("t1")) + to_line(accepted("cut"))[:20])
    await Spill(spill_file(path)).append(to_line(accepted("t2")))
    async with opened(path) as store:
        await recovered(store, 2)

        assert set(await store.known_tasks(["t1", "cut", "t2"])) == {"t1", "t2"}
        assert store.stats().refused == 1


async def test_a_database_that_is_locked_while_the_file_is_read_changes_nothing(path: Path) -> None:
    async with opened(path) as store:
        await recorded(store, accepted("t0"))
    spill_file(path).write_bytes(b"".join(to_line(accepted(f"t{number}")) for number in range(1, 2000)))

    with locked(path):
        async with opened(path, memory_rows=100) as store:
            assert not await store.record([accepted("t2000")])
            assert store.stats().recovered == 0
    async with opened(path) as store:
        await recovered(store, 2000)

    assert count(path, "tasks") == 2001
    assert spilled(path) == 0


async def test_a_row_that_no_line_can_hold_is_left_out(path: Path) -> None:
    async with opened(path) as store:
        await recorded(store, accepted("t0"))
    with locked(path):
        async with opened(path) as store:
            await store.record([accepted("t1"), accepted("\ud800"), accepted("t2")])
    stats = store.stats()

    assert (stats.refused, stats.spilled, stats.lost, stats.waiting) == (1, 2, 0, 0)


async def test_a_file_that_another_process_reads_is_left_to_it(path: Path) -> None:
    spill_file(path).write_bytes(to_line(accepted("t1")))
    with spill_file(path).open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        async with opened(path) as store:
            await recorded(store, accepted("t2"))
            await recorded(store, accepted("t3"))

            assert set(await store.known_tasks(["t1", "t2", "t3"])) == {"t2", "t3"}
    assert spilled(path) == 1


async def test_a_spill_file_that_cannot_be_written_loses_rows_and_says_so(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spill_file(path).mkdir()
    async with opened(path) as store:
        await recorded(store, accepted("t0"))
        with locked(path):
            for number in range(1, 31):
                assert not await store.record([accepted(f"t{number}")])
        await recorded(store, accepted("t31"))
        missing = 32 - len(await store.known_tasks([f"t{number}" for number in range(32)]))

        assert 0 < missing <= 20
        assert store.stats().lost >= missing
        assert store.stats().waiting == 0
    assert caplog.text.count("are lost") < 20


async def test_a_full_disk_leaves_no_half_row_in_the_file(path: Path) -> None:
    spill, line = Spill(path), to_line(accepted("t1"))
    await spill.append(line)
    with full_disk(len(line) + 10), pytest.raises(StoreUnavailable):
        await spill.append(line)

    assert bytes_of(path) == line
    await spill.append(line)
    assert bytes_of(path) == line * 2


async def test_lines_that_wait_for_a_reader_keep_no_thread_from_it(path: Path) -> None:
    """Nor from anybody else: a reader needs threads too, and waited for ever when all of them waited for it."""
    spill = Spill(spill_file(path))
    await spill.append(to_line(accepted("t0")))

    async def added_in_time(number: int) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(0.01):
                await spill.append(to_line(accepted(f"t{number}")))
                return True
        return False

    async with asyncio.timeout(LIMIT_S):
        async with spill.reading() as lines:
            assert lines is not None
            assert not any([await added_in_time(number) for number in range(1, 60)])
            assert await lines.next(10) == [accepted("t0")]
            await lines.clear()
        await spill.append(to_line(accepted("t60")))
    assert spilled(path) == 1


async def test_nobody_waits_for_a_reader_of_another_process(path: Path) -> None:
    spill = Spill(spill_file(path))
    await spill.append(to_line(accepted("t0")))
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
        with spill_file(path).open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            for number in range(1, 60):
                group.create_task(spill.append(to_line(accepted(f"t{number}"))))
            assert await asyncio.to_thread(spill_file(path).exists)
            async with spill.reading() as lines:
                assert lines is None
            assert spill.pending
    assert spilled(path) == 60


def bytes_of(path: Path) -> bytes:
    return path.read_bytes()
