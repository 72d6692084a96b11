"""A copy of the store while routers write: whole, of one moment, and checked before it gets its name.

SQLite's own backup, in steps. A read transaction holds the moment: without one, every write of another process would
make it begin again. What is written meanwhile gathers in the write-ahead log, which is cut back afterwards.
"""

import asyncio
import os
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiosqlite

from reach_worker.errors import BadInput, OutsideWorld, StoreUnavailable
from reach_worker.store.database import APPLICATION_ID, connect_to_read, schema_of
from reach_worker.store.survey import BUSY_S, CHECK, problems

STEP_PAGES: Final = 2000
"""8 MB: what is copied before progress is told, and a stop noticed."""


@dataclass(frozen=True, slots=True)
class Backup:
    """A finished copy. ``tasks``: lives of tasks in it."""

    path: Path
    bytes: int
    schema: int
    tasks: int


class _Stopped(Exception):  # noqa: N818 - it ends a copy, and is seen by nobody
    """Nobody waits for the copy any more."""


def _nobody(_copied: int, _all: int) -> None:
    pass


async def backup(
    path: Path,
    target: Path,
    *,
    replace: bool = False,
    told: Callable[[int, int], object] = _nobody,
    step_pages: int = STEP_PAGES,
) -> Backup:
    """Copy the store at ``path`` to ``target``.

    ``told`` hears after every step, in another thread, how many pages of all are copied.

    Raises:
        BadInput: the target is there already and is not to be replaced, or cannot be a file.
        OutsideWorld: the store cannot be read, or the target not be written (the disk is full).

    Whatever happens, ``target`` is a whole copy, or what it was before.
    """
    _refuse_a_bad_target(path, target, replace=replace)
    source = await connect_to_read(path, BUSY_S)
    try:
        schema = await schema_of(source)
        with _failing(target), _partial(path, target) as partial:
            await _copy(source, partial, told, step_pages)
            tasks = await asyncio.to_thread(_checked, path, partial, schema)
            await asyncio.to_thread(_name, partial, target, replace=replace)
            size = (await asyncio.to_thread(target.stat)).st_size
    finally:
        await source.close()
    return Backup(target, size, schema, tasks)


def _refuse_a_bad_target(path: Path, target: Path, *, replace: bool) -> None:
    if not target.parent.is_dir():
        raise BadInput(f"{target}: there is no folder {target.parent}")
    if target.is_dir():
        raise BadInput(f"{target} is a folder: name a file in it")
    if target.exists() and path.exists() and target.samefile(path):
        raise BadInput(f"{target} is the store itself")
    if os.path.lexists(target) and not replace:
        raise BadInput(f"{target} is there already; choose another name, or replace it with --force")


@contextmanager
def _failing(target: Path) -> Iterator[None]:
    """Foreign exceptions end here."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise OutsideWorld(f"{target}: the backup could not be made: {reason}") from error


@contextmanager
def _partial(path: Path, target: Path) -> Iterator[Path]:
    """A new file beside the target, for those who may read the store; gone at the end."""
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".partial", dir=target.parent)
    with open(handle, "rb"):  # noqa: PTH123 - a number, no path
        os.fchmod(handle, path.stat().st_mode & 0o777)
    partial = Path(name)
    try:
        yield partial
    finally:
        for end in ("", "-journal"):
            partial.with_name(partial.name + end).unlink(missing_ok=True)


async def _copy(
    source: aiosqlite.Connection, partial: Path, told: Callable[[int, int], object], step_pages: int
) -> None:
    stopped = threading.Event()

    def step(_status: int, left: int, pages: int) -> None:
        if stopped.is_set():
            raise _Stopped
        told(pages - left, pages)

    await source.execute_fetchall("BEGIN")
    await source.execute_fetchall("SELECT count(*) FROM sqlite_schema")
    with closing(
        sqlite3.connect(partial, check_same_thread=False)
    ) as copy:  # used by the source's thread alone
        running = asyncio.ensure_future(source.backup(copy, pages=step_pages, progress=step))  # noqa: TID251 - awaited
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            stopped.set()
            with suppress(_Stopped, sqlite3.Error):
                await running
            raise


def _checked(path: Path, partial: Path, schema: int) -> int:
    """Make it one plain file, and read it whole; how many tasks are in it."""
    with closing(sqlite3.connect(partial)) as copy:
        copy.execute("PRAGMA journal_mode = DELETE")
        found = _damage(copy)
        if found:
            raise StoreUnavailable(
                f"{path} is damaged, so a copy of it is no backup; keep your older ones: {'; '.join(found)}"
            )
        header = [copy.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
        if header != [APPLICATION_ID, schema]:
            raise StoreUnavailable(f"{partial}: the copy is not what {path} is: {header}")
        return int(copy.execute("SELECT count(*) FROM tasks").fetchone()[0])


def _damage(copy: sqlite3.Connection) -> list[str]:
    try:
        return problems(copy.execute(CHECK))
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_CORRUPT:
            raise
        return [str(error)]


def _name(partial: Path, target: Path, *, replace: bool) -> None:
    """Give the copy its name, on disk; one that came into being meanwhile is not overwritten."""
    if replace:
        partial.replace(target)
    else:
        try:
            os.link(partial, target)
        except OSError:  # some file systems know no links
            if os.path.lexists(target):
                raise BadInput(f"{target} is there by now; choose another name") from None
            partial.replace(target)
    with suppress(OSError):  # nor do all let a folder be synced
        _sync(target.parent)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
