"""A store that is not ours, newer than us, locked, damaged, full or gone: the router says so, or goes on without it."""

import asyncio
import resource
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from reach_worker.clock import SystemClock
from reach_worker.core.names import Names
from reach_worker.store import SqliteStore
from reach_worker.store.pruner import DAY_US
from tests.store.sample import accepted, succeeded
from tests.store.trouble import damage, damage_live, move_away, spilled
from tests.system.books import assert_one_end_each, histories
from tests.system.caller import Caller
from tests.system.crew import ONLY
from tests.system.crew_at_work import CrewAtWork
from tests.system.processes import Processes, Running
from tests.tooling.observing import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.system]

WITHOUT_S = 10.0
"""Tasks that have to do without the store are slower: it is given a second, and then a tenth of one."""


def _text(path: Path) -> None:
    path.write_text("these are my notes\n")


def _another_programs(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
        connection.commit()


def _newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA application_id = {0x52454143}")
        connection.execute("PRAGMA user_version = 999")
        connection.commit()


def _folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (_text, "is not an SQLite database"),
        (_another_programs, "is another program's SQLite database"),
        (_newer, "a newer version wrote it"),
        (_folder, "is a folder; set store.path to a file in it"),
    ],
)
def test_a_store_that_is_not_ours_is_told_and_not_touched(
    processes: Processes, make: Callable[[Path], None], words: str
) -> None:
    store = Path(processes.environment["REACH_STORE__PATH"])
    make(store)
    before = store.read_bytes() if store.is_file() else None
    done = processes.reach("router")
    assert done.status == 1
    assert words in done.err
    assert str(store) in done.err
    assert (store.read_bytes() if store.is_file() else None) == before
    assert [each.name for each in store.parent.iterdir() if each.name.startswith(f"{store.name}-")] == []


@contextmanager
def locked(store: Path) -> Iterator[None]:
    """Nobody else can write within the block."""
    with closing(sqlite3.connect(store, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


@pytest.fixture
def caller(broker_url: str, names: Names) -> Iterator[Caller]:
    with Caller(broker_url, names.tasks) as caller:
        yield caller


def test_while_the_store_is_locked_tasks_go_on_and_their_rows_arrive_afterwards(
    processes: Processes, caller: Caller
) -> None:
    fleet = CrewAtWork(processes, ["crew-1"])
    before, meanwhile, after = ({f"{when}-{n}": {"capability": ONLY} for n in range(20)} for when in "abc")
    caller.publish(before)
    caller.until_answered(before)
    with locked(fleet.store):
        caller.publish(meanwhile)
        caller.until_answered(meanwhile, WITHOUT_S)
        fleet.router.wait_for("the store is away, rows are kept")
        assert not meanwhile.keys() & histories(fleet.store).keys()
    caller.publish(after)
    caller.until_answered(after)
    fleet.router.wait_for("the store is back")
    every = [*before, *meanwhile, *after]
    wait_until(
        lambda: len(ended := histories(fleet.store)) == 60 and all(each.ends for each in ended.values())
    )
    assert_one_end_each(histories(fleet.store), every)
    assert {caller.final(task_id)["status"] for task_id in every} == {"succeeded"}
    fleet.stop()


def test_a_router_that_starts_while_the_store_is_locked_takes_tasks(
    processes: Processes, caller: Caller
) -> None:
    first = CrewAtWork(processes, ["crew-1"])
    first.router.stop()
    tasks = {f"t-{n}": {"capability": ONLY} for n in range(5)}
    with locked(first.store):
        first.router = processes.router()
        caller.publish(tasks)
        caller.until_answered(tasks)
    wait_until(lambda: all(each.ends for each in histories(first.store).values()))
    first.stop()
    assert_one_end_each(histories(first.store), tasks)


def test_what_could_not_be_written_until_the_end_is_kept_for_the_next_start(
    processes: Processes, caller: Caller
) -> None:
    fleet = CrewAtWork(processes, ["crew-1"])
    tasks = {f"t-{n}": {"capability": ONLY} for n in range(20)}
    with locked(fleet.store):
        caller.publish(tasks)
        caller.until_answered(tasks, WITHOUT_S)
        assert fleet.router.stop() == 0
        assert histories(fleet.store) == {}
    fleet.router = processes.router()
    wait_until(lambda: len(histories(fleet.store)) == 20)
    fleet.stop()
    assert_one_end_each(histories(fleet.store), tasks)


Tasks = Mapping[str, Mapping[str, Any]]


def ended_in(store: Path) -> set[str]:
    """Tasks that have ended, as the store has it."""
    return {task_id for task_id, history in histories(store).items() if history.ends}


def some(when: str) -> Tasks:
    return {f"{when}-{number}": {"capability": ONLY} for number in range(10)}


def done(caller: Caller, tasks: Tasks, limit: float = WITHOUT_S) -> None:
    """These tasks are done, whatever the store is."""
    caller.publish(tasks)
    caller.until_answered(tasks, limit)
    assert {caller.final(task_id)["status"] for task_id in tasks} == {"succeeded"}


def all_ended(store: Path, tasks: Tasks) -> bool:
    found = histories(store)
    return tasks.keys() <= found.keys() and all(found[task_id].ends for task_id in tasks)


def remove(store: Path) -> None:
    for end in ("", "-wal", "-shm"):
        store.with_name(store.name + end).unlink()


def test_while_the_file_is_gone_tasks_go_on_and_a_new_one_is_made(
    processes: Processes, caller: Caller
) -> None:
    fleet = CrewAtWork(processes, ["crew-1"])
    before, after = some("before"), some("after")
    done(caller, before)
    remove(fleet.store)
    done(caller, after)
    fleet.stop()
    found = histories(fleet.store)
    late = {
        task_id for task_id in before if task_id in found
    }  # answered before, written when the file was gone
    assert_one_end_each({task_id: found[task_id] for task_id in found.keys() - late}, after)


def test_a_store_damaged_while_it_is_used_is_told_and_what_was_not_written_goes_into_the_next_one(
    processes: Processes, caller: Caller
) -> None:
    fleet = CrewAtWork(processes, ["crew-1"])
    before = some("before")
    done(caller, before)
    caller.until(
        lambda: ended_in(fleet.store) >= set(before)
    )  # an answer is there a moment before its record
    damage_live(fleet.store)
    meanwhile, after = some("meanwhile"), some("after")
    done(caller, meanwhile)
    fleet.router.wait_for("the store is away.*malformed; it is damaged: move it away")
    looked = processes.reach("store", "stats", "--check")
    assert looked.status == 1
    assert "damaged" in looked.err
    assert processes.reach("store", "backup", "copy.db").status == 1
    move_away(fleet.store)
    fleet.router.wait_for(r"the store is back after \d+ s: \d+ rows written")
    done(caller, after)
    fleet.stop()
    assert_one_end_each(histories(fleet.store), [*meanwhile, *after])


def test_a_router_that_starts_with_a_damaged_store_takes_tasks_and_keeps_their_rows(
    processes: Processes, caller: Caller
) -> None:
    fleet = CrewAtWork(processes, ["crew-1"])
    done(caller, some("before"))
    fleet.router.stop()
    damage(fleet.store, 100)
    fleet.router = processes.router()
    fleet.router.wait_for("the store is away.*malformed; it is damaged: move it away")
    meanwhile = some("meanwhile")
    done(caller, meanwhile, 20)
    fleet.stop()
    fleet.router.wait_for(r"\d+ bytes wait in it for the next start; 0 refused, 0 lost")
    assert spilled(fleet.store) > 0
    move_away(fleet.store)
    looked = processes.reach("store", "stats")
    assert looked.status == 1
    assert f"{spilled(fleet.store)} rows" in looked.err
    fleet.router = processes.router()
    wait_until(lambda: fleet.store.exists() and all_ended(fleet.store, meanwhile))
    fleet.router.stop()
    assert_one_end_each(histories(fleet.store), meanwhile)
    assert processes.reach("store", "stats", "--check").status == 0


@contextmanager
def full_for(process: Running, size: int) -> Iterator[None]:
    """No file of that process may grow beyond ``size`` bytes."""
    pid = process.process.pid
    soft, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))
    yield
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))


def test_while_the_disk_is_full_tasks_go_on_and_their_rows_arrive_afterwards(
    processes: Processes, caller: Caller
) -> None:
    fleet = CrewAtWork(processes, ["crew-1"])
    before, meanwhile, after = some("before"), some("meanwhile"), some("after")
    done(caller, before)
    largest = max(file.stat().st_size for file in fleet.store.parent.glob("reach.db*"))
    with full_for(fleet.router, largest):
        done(caller, meanwhile)
        fleet.router.wait_for("the store is away, rows are kept")
        assert not all_ended(fleet.store, meanwhile)
    done(caller, after)
    fleet.router.wait_for("the store is back after")
    fleet.stop()
    assert_one_end_each(histories(fleet.store), [*before, *meanwhile, *after])


def test_a_router_prunes_by_itself_and_a_backup_is_made_while_it_works(
    processes: Processes, caller: Caller
) -> None:
    store = Path(processes.environment["REACH_STORE__PATH"])
    asyncio.run(_fill(store))
    fleet = CrewAtWork(processes, ["crew-1"])
    tasks = some("now")
    caller.publish(tasks)
    made = processes.reach("store", "backup", "copy.db", "--json")
    caller.until_answered(tasks)
    assert made.status == 0, made.err
    assert made.json()["tasks"] >= 100
    fleet.router.wait_for("pruned what is older than 90 days: 100 tasks, 100 ends")
    fleet.stop()
    assert_one_end_each(histories(store), tasks)


async def _fill(path: Path) -> None:
    at = SystemClock().utc_us() - 91 * DAY_US
    async with SqliteStore.open(path, clock=SystemClock(), wait_s=10) as store:
        rows = [
            (accepted(f"old-{number}", at=at), succeeded(f"old-{number}", at=at)) for number in range(100)
        ]
        assert await store.record([row for pair in rows for row in pair])
