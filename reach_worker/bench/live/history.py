"""A long history, made quickly: a few tasks are recorded as always, and SQL copies them a million times.

Copied column by column, whatever columns there are, with ids that look as random as real ones, so that indexes are hit
in random places, and times that lie in the past. One task in a hundred ends as a dead letter.
"""

import asyncio
import os
import sqlite3
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Final

from reach_worker.bench.live.known_fleet import CAPABILITIES
from reach_worker.bench.live.model_rows import AGENTS, model_tasks
from reach_worker.clock import SystemClock
from reach_worker.store.sqlite_store import SqliteStore

MODELS: Final = AGENTS * len(CAPABILITIES)
TABLES: Final = ("tasks", "decisions", "dispatches", "outcomes", "ends")
STEP_US: Final = 1_000_000
DAY_US: Final = 86_400_000_000
FAST: Final = ("journal_mode = OFF", "synchronous = OFF", "cache_size = -262144", "temp_store = MEMORY")
"""For a file that nobody needs if this fails half way."""

SCRAMBLE: Final = 2_654_435_761
BITS: Final = 0xFFFFFFFF


def task_id(number: int) -> str:
    """The id of a copied task, from :data:`MODELS` + 1 on."""
    return f"{number * SCRAMBLE & BITS:08x}{number:024x}"


async def made(path: Path, outcomes: int) -> Path:
    """The file with so many outcomes, made if it is not there; 0 is an empty store."""
    if await asyncio.to_thread(path.exists):
        return path
    clock = SystemClock()
    before_us = clock.utc_us() - DAY_US
    async with SqliteStore.open(path, clock=clock, wait_s=30.0) as store:
        if outcomes:
            for rows in islice(model_tasks(before_us), MODELS):
                await store.record(rows)
    if outcomes > MODELS:
        await asyncio.to_thread(_multiply, path, outcomes)
        await asyncio.to_thread(os.sync)  # or the disk is busy with it while the first one is measured
    return path


def _multiply(path: Path, outcomes: int) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for pragma in FAST:
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("BEGIN")
        connection.execute("CREATE TEMP TABLE numbers (n INTEGER PRIMARY KEY, model INTEGER NOT NULL)")
        connection.execute(
            "WITH RECURSIVE c (n) AS (SELECT ?1 + 1 UNION ALL SELECT n + 1 FROM c WHERE n < ?2) "
            "INSERT INTO numbers SELECT n, 1 + n % ?1 FROM c",
            (MODELS, outcomes),
        )
        for table in TABLES:
            connection.execute(_copying(connection, table, outcomes))
        connection.execute("COMMIT")
        connection.execute("PRAGMA journal_mode = WAL")


def _copying(connection: sqlite3.Connection, table: str, outcomes: int) -> str:
    columns = [
        name for _, name, *_, hidden in connection.execute(f"PRAGMA table_xinfo({table})") if not hidden
    ]
    made_of = ", ".join(_expression(table, name, outcomes) for name in columns)
    own = "m.id" if table == "tasks" else "m.task"
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) SELECT {made_of} "  # noqa: S608 - our names
        f"FROM numbers JOIN {table} AS m ON {own} = numbers.model ORDER BY n"
    )


def _expression(table: str, column: str, outcomes: int) -> str:
    died = "n % 100 = 0"
    match table, column:
        case _, "id" | "task":
            return "n"
        case _, "task_id" | "flow_id":
            return _scrambled(SCRAMBLE)
        case _, "dispatch_id":
            return _scrambled(SCRAMBLE + 2)
        case _, "decision_id":
            return _scrambled(SCRAMBLE + 4)
        case _, "at" | "first_seen" | "dispatched_at" | "ended_at" | "remember_until":
            return f"m.{column} - ({outcomes} - n) * {STEP_US}"
        case ("tasks", "ended") | ("ends", "state"):
            return f"CASE WHEN {died} THEN 'dead_letter' ELSE m.{column} END"
        case (("tasks" | "ends"), "reason"):
            return f"CASE WHEN {died} THEN 'attempts_exhausted' ELSE m.{column} END"
        case "outcomes", "outcome":
            return f"CASE WHEN {died} THEN 'failed' ELSE m.{column} END"
        case _:
            return f"m.{column}"


def _scrambled(factor: int) -> str:
    return f"printf('%08x%024x', n * {factor} & {BITS}, n)"
