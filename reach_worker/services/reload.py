"""The router's files are looked at while it runs: what is new in them is taken, and what is wrong is said once."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NoReturn

from reach_worker.core.fresh_files import Changed, Known, Reading, take_up
from reach_worker.core.tags import TagTable
from reach_worker.errors import Problem
from reach_worker.ports import Clock

log = logging.getLogger(__name__)

POLL_S: Final = 1.0
"""The files are looked at so often. They are read once two looks in a row find the same: nobody writes any more."""

Stamps = Mapping[str, tuple[int, ...]]
"""By file: what becomes another when it is written. A file that is not there has no stamp."""


@dataclass(frozen=True, slots=True)
class Files:
    """How the files are looked at, and how they are read: with the tags that count where their own table is broken.

    Both run in a thread, so a slow disk holds nobody up. Neither raises: what is wrong is in the reading.
    """

    look: Callable[[], Stamps]
    read: Callable[[TagTable], Reading]


class Reload:
    """Looks at the files. ``take`` is handed what changed; ``known``: what was taken from them at the start."""

    def __init__(
        self,
        files: Files,
        known: Known,
        take: Callable[[Changed], None],
        clock: Clock,
        warned: tuple[Problem, ...] = (),
    ) -> None:
        self._files = files
        self._known = known
        self._take = take
        self._clock = clock
        self._seen: Stamps | None = None
        self._read: Stamps | None = None
        self._told: dict[Problem, tuple[int, ...] | None] = {}
        self._warned = warned
        self._later: tuple[str, ...] = ()

    async def run(self) -> NoReturn:
        """Look for ever."""
        while True:
            await self._clock.sleep(POLL_S)
            await self.look()

    async def look(self) -> None:
        """Look once; read what has been written and is still the same as at the last look."""
        stamps = await asyncio.to_thread(self._files.look)
        settled = stamps == self._seen
        self._seen = stamps
        if not settled or stamps == self._read:
            return
        self._read = stamps
        reading = await asyncio.to_thread(self._files.read, self._known.tags)
        self._tell(reading, stamps)
        self._known, changed = take_up(self._known, reading)
        if changed:
            self._take(changed)

    def _tell(self, reading: Reading, stamps: Stamps) -> None:
        """What is wrong, once for each change of its file."""
        gone = [reading.gone] if reading.gone is not None and self._known.manifests else []
        wrong = {problem: stamps.get(problem.file or "") for problem in (*reading.problems, *gone)}
        for problem, stamp in wrong.items():
            if self._told.get(problem, ()) != stamp:
                log.error("not taken, what was known stays: %s", problem.render())
        if self._told and not wrong:
            log.info("nothing is wrong in the files any more")
        self._told = wrong
        for warning in reading.warnings:
            if warning not in self._warned:
                log.warning("%s", warning.render())
        self._warned = reading.warnings
        if reading.later and reading.later != self._later:
            log.warning("changed, and taken at the next start only: %s", ", ".join(reading.later))
        self._later = reading.later
