"""A process that writes to a store: ``python -m tests.store.writing_process PATH PREFIX COUNT``.

It says which task ids are committed, one a line. A count of 0 means for ever.
"""

import asyncio
import sys
from itertools import count
from pathlib import Path

from reach_worker.clock import SystemClock
from reach_worker.ports import Row
from reach_worker.store import SqliteStore
from tests.store.sample import accepted, decided, dispatched, seen, succeeded

TOGETHER = 5


def coming(ids: list[str]) -> list[Row]:
    rows: list[Row] = []
    for id_ in ids:
        rows += [accepted(id_), decided(id_), dispatched(id_, dispatch_id=f"d-{id_}")]
    return rows


def ending(ids: list[str]) -> list[Row]:
    rows: list[Row] = []
    for id_ in ids:
        rows += [seen(dispatch_id=f"d-{id_}", task_id=id_), succeeded(id_)]
    return rows


async def write(path: Path, prefix: str, limit: int) -> None:
    async with SqliteStore.open(path, clock=SystemClock(), wait_s=60) as store:
        for first in range(0, limit, TOGETHER) if limit else count(0, TOGETHER):
            ids = [f"{prefix}{number}" for number in range(first, first + TOGETHER)]
            for rows in (coming(ids), ending(ids)):
                if not await store.record(rows):
                    raise SystemExit("not committed within a minute")
            print(*ids, sep="\n", flush=True)  # noqa: T201 - this is how it tells


if __name__ == "__main__":
    asyncio.run(write(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
