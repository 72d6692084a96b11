"""What the spill file holds, for who only looks: no lock is taken, so no writer waits and none is kept out."""

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import IO, Final, Self

from reach_worker.ports import Row
from reach_worker.store.database import our_errors
from reach_worker.store.row_lines import from_line

AT_ONCE: Final = 500


class SpillCopy:
    """A copy of a spill file as it was at one moment. A last line that is not whole yet is left out.

    ``unreadable``: lines of the last walk that are no rows.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.unreadable = 0

    @classmethod
    async def of(cls, store: Path) -> Self:
        """The copy of what lies beside a store; empty where there is none. Raises ``StoreUnavailable``."""
        return cls(await asyncio.to_thread(_copy, store.with_name(store.name + ".spill")))

    def close(self) -> None:
        """Drop it."""
        self._file.close()

    def chunks(self) -> Iterator[list[Row]]:
        """All rows, in the order they came, some hundreds at a time. Reads a file: for a thread."""
        self._file.seek(0)
        self.unreadable = 0
        while lines := list(islice(self._file, AT_ONCE)):
            rows = [row for line in lines if (row := self._row(line)) is not None]
            yield rows

    def _row(self, line: bytes) -> Row | None:
        if line.endswith(b"\n"):
            with suppress(KeyError, TypeError, ValueError):
                return from_line(line)
            self.unreadable += 1
        return None


def _copy(path: Path) -> IO[bytes]:
    copy = tempfile.TemporaryFile()  # noqa: SIM115 - its owner closes it
    with our_errors(path), suppress(FileNotFoundError), path.open("rb") as spill:
        shutil.copyfileobj(spill, copy)
    return copy
