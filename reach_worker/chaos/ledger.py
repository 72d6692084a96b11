"""The ledger: what really ran, written down by the handlers themselves, before and after each run.

Each agent process has a file of its own and adds one line at a time with one write, so that a line is whole or not there
however the process dies. Neither the broker nor the store has any part in it.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

import orjson

from reach_worker.agent.context import Context
from reach_worker.ports import Clock

OK: Final = "ok"
"""How a run ended that was a success."""
LATE: Final = "late"
"""It was done after its time; the handler raises then, so nobody takes that for a success."""


class OutOfTime(Exception):  # noqa: N818 - an ending
    """The handler was done after it had been told to stop."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a handler. Times are UTC microseconds; ``how`` is ``None`` where no end was written.

    ``flow_id``: the task that all of it is for: what ran may be a leg of it, or a call that was made for it. ``hop``: how
    often it had been handed on, or called for, before.
    """

    task_id: str
    attempt: int
    dispatch_id: str
    agent_id: str
    pid: int
    side_effects: bool
    began_us: int
    ended_us: int | None = None
    how: str | None = None
    flow_id: str = ""
    hop: int = 0

    def __str__(self) -> str:
        end = "no end" if self.ended_us is None else f"{self.how} at {self.ended_us}"
        return (
            f"{self.task_id} attempt {self.attempt} hop {self.hop} dispatch {self.dispatch_id} by {self.agent_id} "
            f"(pid {self.pid}): began {self.began_us}, {end}"
        )


class Ledger:
    """Writes the lines of one process."""

    def __init__(self, folder: Path, agent_id: str, clock: Clock) -> None:
        self._agent_id = agent_id
        self._clock = clock
        self._file = os.open(
            folder / f"{agent_id}-{os.getpid()}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600
        )

    @contextmanager
    def run(self, context: Context, *, side_effects: bool = False) -> Iterator[None]:
        """Within the block a handler runs."""
        line: dict[str, Any] = {
            "task": context.task_id,
            "attempt": context.attempt,
            "dispatch": context.dispatch_id,
            "agent": self._agent_id,
            "pid": os.getpid(),
            "effects": side_effects,
            "flow": context.flow_id,
            "hop": len(context.chain),
        }
        self._write({**line, "at": self._clock.utc_us()})
        try:
            yield
        except BaseException as error:
            self._end(line, type(error).__name__)
            raise
        if context.cancelled.is_set():
            self._end(line, LATE)
            raise OutOfTime
        self._end(line, OK)

    def close(self) -> None:
        """No more lines."""
        os.close(self._file)

    def _end(self, line: dict[str, Any], how: str) -> None:
        self._write({**line, "at": self._clock.utc_us(), "how": how})

    def _write(self, line: dict[str, Any]) -> None:
        os.write(self._file, orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))


@dataclass(frozen=True, slots=True)
class Ledgers:
    """All that was written down: the runs of each task, those of its legs and calls too, in the order of their starts."""

    runs: dict[str, list[Run]]
    unreadable: int

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The ledgers of all processes of a run."""
        return cls.of(
            line for file in sorted(folder.glob("*.jsonl")) for line in file.read_bytes().splitlines()
        )

    @classmethod
    def of(cls, lines: Iterable[bytes]) -> Self:
        """From lines, those of each process in their order."""
        open_runs: dict[tuple[int, str], list[Run]] = {}
        runs: list[Run] = []
        unreadable = 0
        for line in lines:
            try:
                read = orjson.loads(line)
            except orjson.JSONDecodeError:
                unreadable += 1
                continue
            begun = open_runs.setdefault((read["pid"], read["dispatch"]), [])
            if "how" not in read:
                begun.append(_begun(read))
            elif begun:
                runs.append(replace(begun.pop(0), ended_us=read["at"], how=read["how"]))
        runs += [run for begun in open_runs.values() for run in begun]
        by_task: dict[str, list[Run]] = {}
        for run in sorted(runs, key=lambda run: run.began_us):
            by_task.setdefault(run.flow_id, []).append(run)
        return cls(by_task, unreadable)


def _begun(read: dict[str, Any]) -> Run:
    return Run(
        read["task"],
        read["attempt"],
        read["dispatch"],
        read["agent"],
        read["pid"],
        read["effects"],
        read["at"],
        flow_id=read["flow"],
        hop=read["hop"],
    )
