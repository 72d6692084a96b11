"""Rows that are not in the database yet. What is read from there is completed by them."""

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from reach_worker.ports import Dispatched, Joined, OutcomeSeen, Row, Started
from reach_worker.store.facts import OfLife

RowT = TypeVar("RowT")

OfTask = OfLife | Joined
OfDispatch = Dispatched | Started | OutcomeSeen


@dataclass(slots=True, eq=False)
class Entry:
    """What one call of ``record`` brought. ``written``: whether it got into the database, once decided.

    ``kept``: it is in the spill file too, in case this process is killed before.
    """

    rows: tuple[Row, ...]
    written: asyncio.Future[bool]
    kept: bool = False

    def settle(self, *, written: bool) -> None:
        """Tell who waits; nobody may be there any more."""
        if not self.written.done():
            self.written.set_result(written)


class Unwritten:
    """Entries, oldest first. Those at the front that are on their way stay until it is clear how it went.

    Their rows are sorted by what they are about once somebody asks: most are written before.
    """

    def __init__(self) -> None:
        self.rows = 0
        self._entries: deque[Entry] = deque()
        self._taken = 0
        self._sorted = 0
        self._of_task: dict[str, list[OfTask]] = {}
        self._of_dispatch: dict[str, list[OfDispatch]] = {}

    def add(self, entry: Entry) -> None:
        """Put an entry at the end."""
        self._entries.append(entry)
        self.rows += len(entry.rows)

    def take(self, limit: int) -> list[Entry]:
        """The oldest entries, of ``limit`` rows together or one. They stay until :meth:`drop_taken`."""
        taken: list[Entry] = []
        rows = 0
        for entry in self._entries:
            rows += len(entry.rows)
            if taken and rows > limit:
                break
            taken.append(entry)
        self._taken = len(taken)
        return taken

    def put_back(self) -> None:
        """What was taken did not get through."""
        self._taken = 0

    def drop_taken(self) -> None:
        """What was taken is written."""
        for _ in range(self._taken):
            self._forget(self._entries.popleft(), at=0)
        self._taken = 0

    def drop_newest(self, bound: int) -> list[Entry]:
        """Give up the newest entries, until ``bound`` rows are left; never what is on its way."""
        dropped: list[Entry] = []
        while self.rows > bound and len(self._entries) > self._taken:
            dropped.append(self._entries.pop())
            self._forget(dropped[-1], at=len(self._entries))
        return dropped[::-1]

    def of_tasks(self, task_ids: Iterable[str]) -> list[OfTask]:
        """Rows about these tasks, those of a task in the order they came."""
        self._sort()
        return [row for task_id in task_ids for row in self._of_task.get(task_id, ())]

    def of_dispatches(self, dispatch_ids: Iterable[str]) -> list[OfDispatch]:
        """Rows about these dispatches, those of a dispatch in the order they came."""
        self._sort()
        return [row for dispatch_id in dispatch_ids for row in self._of_dispatch.get(dispatch_id, ())]

    def not_kept(self) -> list[Entry]:
        """Entries that are in memory alone, oldest first."""
        return [entry for entry in self._entries if not entry.kept]

    def all_rows(self) -> list[Row]:
        """Every row, in the order they came."""
        return [row for entry in self._entries for row in entry.rows]

    def _sort(self) -> None:
        for entry in islice(self._entries, self._sorted, None):
            for row in entry.rows:
                if isinstance(row, OfTask):
                    self._of_task.setdefault(row.task_id, []).append(row)
                if isinstance(row, OfDispatch):
                    self._of_dispatch.setdefault(row.dispatch_id, []).append(row)
        self._sorted = len(self._entries)

    def _forget(self, entry: Entry, *, at: int) -> None:
        """An entry that was in that place."""
        self.rows -= len(entry.rows)
        if at >= self._sorted:
            return
        self._sorted -= 1
        for row in entry.rows:
            if isinstance(row, OfTask):
                _take_out(self._of_task, row.task_id, row)
            if isinstance(row, OfDispatch):
                _take_out(self._of_dispatch, row.dispatch_id, row)


def _take_out(index: dict[str, list[RowT]], key: str, row: RowT) -> None:
    rest = index[key]
    rest.remove(row)
    if not rest:
        del index[key]
