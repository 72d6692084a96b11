"""A store that is not ours, newer than us, locked, or gone: the router says so, or goes on without it."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from reach_worker.core.names import Names
from tests.system.books import assert_one_end_each, histories
from tests.system.caller import Caller
from tests.system.crew import ONLY
from tests.system.crew_at_work import CrewAtWork
from tests.system.processes import Processes
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
