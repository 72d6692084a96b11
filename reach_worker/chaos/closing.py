"""The end of a run: everything is read and judged, and what is wrong is told with all the evidence."""

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import orjson

from reach_worker.chaos.board import Board
from reach_worker.chaos.books import read_remains
from reach_worker.chaos.faults import Window
from reach_worker.chaos.findings import Verdict
from reach_worker.chaos.ledger import Ledgers
from reach_worker.chaos.memory import Memory
from reach_worker.chaos.report import Figures, evidence, others, shown
from reach_worker.chaos.stage import URL, Stage
from reach_worker.chaos.sums import by_kind, longest_stall_s
from reach_worker.chaos.verdict import agrees, judge

Say = Callable[[str], None]
COMMAND_S: Final = 120.0


@dataclass(slots=True)
class Ran:
    """What a run left behind, before anybody has judged it."""

    board: Board
    windows: list[Window]
    memory: Memory
    exits: list[str]
    rest_s: float | None = None


async def conclude(stage: Stage, url: str, ran: Ran, seed: int, say: Say) -> Figures:
    """Read everything, judge it, and tell what is wrong with all the evidence."""
    board = ran.board
    settings = stage.settings(url)
    remains, doubled_ends = await read_remains(stage, settings, board)
    ledgers = Ledgers.read(stage.ledgers)
    (stage.root / "memory.json").write_bytes(orjson.dumps(list(ran.memory.samples.values())))
    verdict = judge(board, ledgers.runs, remains, ran.windows)
    audit, audit_status = await _audit(stage, url)
    await _tell(stage, url, verdict, ran, ledgers, say)
    done = [window for window in ran.windows if window.done and window.kind != "died"]
    ended = {name: at for name, (_, at) in remains.logged.items() if at is not None}
    return Figures(
        tasks=len(board.confirmed),
        faults=len(done),
        lost=len(verdict.lost),
        doubled=len(verdict.doubled),
        doubled_unexplained=len(verdict.unexplained),
        doubled_with_side_effects=len(verdict.repeated),
        garbled=len(verdict.garbled),
        stuck=len(verdict.stuck),
        longest_stall_s=round(longest_stall_s(board.confirmed, ended), 2),
        memory_slope_mb_per_min=round(ran.memory.slope_mb_per_min(), 3),
        seed=seed,
        good=verdict.good and agrees(audit, audit_status, verdict),
        rest_s=None if ran.rest_s is None else round(ran.rest_s, 1),
        faults_by_kind=by_kind(ran.windows, lambda window: window.done),
        failed_faults=sum(not window.done for window in ran.windows),
        ends=dict(sorted(verdict.ends.items())),
        published=board.published,
        unconfirmed=board.unconfirmed,
        answers=sum(len(each) for each in board.answers.values()),
        taken_back=len(board.taken_back),
        rerouted=sum(each.reroutings for each in board.listeners.values()),
        told_lost=sum(each.lost for each in board.listeners.values()),
        runs=sum(len(runs) for runs in ledgers.runs.values()),
        wrong_ends=len(verdict.wrong_ends),
        unanswered=len(verdict.unanswered),
        unrecorded=len(verdict.unrecorded),
        doubled_letters=len(verdict.doubled_letters),
        doubled_ends=doubled_ends,
        exits=ran.exits,
        audit=audit,
    )


async def _tell(stage: Stage, url: str, verdict: Verdict, ran: Ran, ledgers: Ledgers, say: Say) -> None:
    told = shown(verdict)
    for violation in told:
        for line in evidence(violation, ledgers.runs.get(violation.name, []), ran.windows):
            say(line)
        _, explained = await _reach(stage, url, "explain", violation.name)
        say("\n".join(f"    {line}" for line in explained.splitlines()))
    for line in others(verdict, told):
        say(line)
    for name, how in verdict.doubled.items():
        task = ran.board.tasks.get(name)
        again = " (published twice)" if task is not None and task.again_s else ""
        say(f"doubled: {name}{again}: {how}")


async def _audit(stage: Stage, url: str) -> tuple[Any, int]:
    """What ``reach audit`` says, ``None`` where there is no such command; its exit status."""
    status, out = await _reach(stage, url, "audit", "--json", "--patience", "10s")
    if status == 2 and "no command" in out:  # noqa: PLR2004 - a command that is not there
        return None, 0
    with suppress(orjson.JSONDecodeError):
        return orjson.loads(out), status
    return out.strip(), status or 1


async def _reach(stage: Stage, url: str, *arguments: str) -> tuple[int, str]:
    """Run a command of ``reach``; its exit status and what it wrote: its output, or else its errors."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "reach_worker",
        "--config",
        str(stage.config),
        *arguments,
        env={**stage.environ, URL: url},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(COMMAND_S):
        out, err = await process.communicate()
    return process.returncode or 0, (out or err).decode(errors="replace")
