"""Opening the file: ours, somebody else's, newer, damaged, or none yet."""

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from reach_worker.clock import SystemClock
from reach_worker.errors import ReachError, StoreForeign, StoreNewer, StoreUnavailable
from reach_worker.store import SqliteStore, StoreReader
from reach_worker.store.database import APPLICATION_ID, migrations, schema_version, statements
from tests.store.sample import accepted
from tests.store.trouble import damage, recorded
from tests.store.unprivileged import unprivileged


def store_at(path: Path) -> SqliteStore:
    return SqliteStore.open(path, clock=SystemClock(), wait_s=10)


async def make_store(path: Path) -> None:
    async with store_at(path) as store:
        assert await store.record([accepted()])


async def error_of_opening(path: Path) -> ReachError:
    with pytest.raises(ReachError) as caught:
        async with store_at(path):
            pass
    return caught.value


async def error_of_reading(path: Path) -> ReachError:
    with pytest.raises(ReachError) as caught:
        async with StoreReader.open(path):
            pass
    return caught.value


def names_in(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir()]


def run(path: Path, script: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)


async def test_a_new_store_is_made_with_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "data" / "of" / "mine" / "reach.db"
    await make_store(path)

    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        assert connection.execute("PRAGMA user_version").fetchone() == (schema_version(),)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        strict = connection.execute("SELECT name FROM pragma_table_list WHERE type = 'table' AND NOT strict")
        assert {name for (name,) in strict} == {"sqlite_schema", "sqlite_temp_schema"}


async def test_what_was_written_is_there_after_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "reach.db"
    await make_store(path)
    async with store_at(path) as store:
        assert set(await store.known_tasks(["t1"])) == {"t1"}


async def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    path = tmp_path / "reach.db"
    path.touch()
    await make_store(path)


async def test_names_that_mean_something_in_an_address_are_only_names(tmp_path: Path) -> None:
    path = tmp_path / "file:a b?mode=ro#%41 ü.db"
    await make_store(path)

    assert path.exists()
    async with StoreReader.open(path) as reader:
        assert await reader.find("t") == ["t1"]


async def test_many_may_open_a_new_store_at_once(tmp_path: Path) -> None:
    path = tmp_path / "reach.db"

    async def write(number: int) -> None:
        async with store_at(path) as store:
            await recorded(store, accepted(f"t{number}"))

    await asyncio.gather(*(write(number) for number in range(8)))
    async with StoreReader.open(path) as reader:
        assert len(await reader.find("t")) == 8


@pytest.mark.parametrize(
    "script",
    [
        "CREATE TABLE notes (text)",
        "PRAGMA application_id = 42",
        "PRAGMA user_version = 1",
        f"CREATE TABLE notes (text); PRAGMA user_version = {schema_version()}",
    ],
)
async def test_another_programs_database_is_refused_and_not_touched(tmp_path: Path, script: str) -> None:
    path = tmp_path / "notes.db"
    run(path, script)
    before = path.read_bytes()

    for error in (await error_of_opening(path), await error_of_reading(path)):
        assert isinstance(error, StoreForeign)
        assert str(path) in str(error)
        assert "store.path" in str(error)
    assert path.read_bytes() == before
    assert names_in(tmp_path) == ["notes.db"]


async def test_a_file_that_is_no_database_is_refused_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("Dear reader, " * 100)

    for error in (await error_of_opening(path), await error_of_reading(path)):
        assert isinstance(error, StoreForeign)
        assert f"{path} is not an SQLite database" in str(error)
    assert path.read_text() == "Dear reader, " * 100


async def test_a_newer_store_is_refused_with_both_versions(tmp_path: Path) -> None:
    path = tmp_path / "reach.db"
    await make_store(path)
    run(path, "PRAGMA user_version = 1234")

    for error in (await error_of_opening(path), await error_of_reading(path)):
        assert isinstance(error, StoreNewer)
        assert str(path) in str(error)
        assert "1234" in str(error)
        assert f"knows {schema_version()}" in str(error)


async def test_a_reader_of_a_damaged_store_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "reach.db"
    await make_store(path)
    damage(path, 100)

    error = await error_of_reading(path)
    assert isinstance(error, StoreUnavailable)
    assert f"{path}: database disk image is malformed" in str(error)
    assert "put a backup in its place" in str(error)


async def test_a_path_that_cannot_be_a_file_is_an_error_for_a_person(tmp_path: Path) -> None:
    (tmp_path / "reach.db").mkdir()
    (tmp_path / "file").touch()

    for path in (tmp_path / "reach.db", tmp_path / "file" / "reach.db"):
        error = await error_of_opening(path)
        assert isinstance(error, StoreUnavailable)
        assert str(path) in str(error)


async def test_a_reader_of_a_missing_store_says_who_makes_it(tmp_path: Path) -> None:
    error = await error_of_reading(tmp_path / "reach.db")

    assert isinstance(error, StoreUnavailable)
    assert str(tmp_path / "reach.db") in str(error)
    assert "a router makes it" in str(error)
    assert names_in(tmp_path) == []


async def test_a_reader_of_an_empty_file_says_that_it_is_not_ready(tmp_path: Path) -> None:
    path = tmp_path / "reach.db"
    path.touch()
    error = await error_of_reading(path)

    assert isinstance(error, StoreUnavailable)
    assert f"schema 0, this version of reach_worker reads {schema_version()}" in str(error)


def test_a_folder_that_may_not_be_written_holds_no_store(closed_folder: Path) -> None:
    error = asyncio.run(error_of_opening(closed_folder / "reach.db"))

    assert isinstance(error, StoreUnavailable)
    assert str(closed_folder / "reach.db") in str(error)
    assert "see that its folder is there, and that this user may read and write both" in str(error)


def test_a_store_that_cannot_be_opened_leaves_no_thread(tmp_path: Path) -> None:
    """It would say into a loop that is closed by then that it ends, and print a traceback that it cannot."""
    before = threading.active_count()

    async def open_it() -> int:
        await error_of_opening(tmp_path)
        return sum("connection" in thread.name for thread in threading.enumerate())

    assert asyncio.run(open_it()) == 0
    assert threading.active_count() == before


@pytest.fixture
def closed_folder() -> Iterator[Path]:
    with unprivileged() as folder:
        folder.chmod(0o555)
        yield folder
        folder.chmod(0o777)


def test_migrations_are_numbered_without_a_gap() -> None:
    assert schema_version() == len(migrations()) >= 1


async def test_a_store_of_the_first_version_is_brought_up_to_date_with_what_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "reach.db"
    run(path, migrations()[0])
    run(path, "INSERT INTO feedback VALUES ('t1', 'grep', 'log.query', 'bad', 'other', 17)")
    run(path, f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = 1")
    assert "has schema 1" in str(await error_of_reading(path))
    await make_store(path)

    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (schema_version(),)
        found = connection.execute(
            "SELECT task_id, agent_id, capability, verdict, better_agent, at FROM feedback"
        )
        assert found.fetchall() == [("t1", "grep", "log.query", "bad", "other", 17)]
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_script_is_taken_apart_into_its_statements() -> None:
    script = "-- one; two\nCREATE TABLE a (x); -- a;\nCREATE TABLE b (\n  y -- ;\n);\n"

    parts = list(statements(script))

    assert [part.strip().splitlines()[-1] for part in parts[:2]] == ["CREATE TABLE a (x); -- a;", ");"]
    with closing(sqlite3.connect(":memory:")) as connection:
        for part in parts:
            connection.execute(part)
