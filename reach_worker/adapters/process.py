"""Running a program for one task, under a supervisor that lets nothing of it outlive the run."""

import asyncio
import errno
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from reach_worker.adapters import supervisor
from reach_worker.adapters.to_the_end import to_the_end

SUPERVISOR: Final = str(Path(supervisor.__file__))
CHUNK: Final = 65_536
SLACK_S: Final = 5.0
"""A supervisor that is not done so long after the grace period is killed."""


@dataclass(frozen=True, slots=True)
class Command:
    """What to run. ``folder`` is deleted after it; ``grace_s`` lies between SIGTERM and SIGKILL."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str | None
    folder: str
    grace_s: float


@dataclass(frozen=True, slots=True)
class ProgramEnd:
    """How it ended: with an exit status, by a signal, or not even begun (``errno``). All ``None``: nobody knows."""

    exit_code: int | None = None
    signal: int | None = None
    errno: int | None = None

    def words(self) -> str:
        """What to tell people."""
        match self:
            case ProgramEnd(exit_code=int(code)):
                return f"exit code {code}"
            case ProgramEnd(signal=int(number)):
                return f"killed by {_signal_name(number)}"
            case ProgramEnd(errno=errno.ENOENT):
                return "cannot be started: there is no such program in PATH, or its interpreter is missing"
            case ProgramEnd(errno=int(number)):
                return f"cannot be started: {os.strerror(number)}"
            case _:
                return "its supervisor was killed"


class Program:
    """A program that runs."""

    def __init__(
        self, process: asyncio.subprocess.Process, control: int, status: int, grace_s: float
    ) -> None:
        self._process = process
        self._control: int | None = control
        self._status = status
        self._grace_s = grace_s

    async def feed(self, data: bytes) -> None:
        """Write its standard input to the end. It may end without reading that."""
        stdin = self._process.stdin
        if stdin is None:
            return
        with suppress(BrokenPipeError, ConnectionResetError):
            stdin.write(data)
            await stdin.drain()
        stdin.close()

    async def output(self) -> AsyncIterator[bytes]:
        """Its standard output, as it comes."""
        async for chunk in _chunks(self._process.stdout):
            yield chunk

    async def error_tail(self, limit: int) -> bytes:
        """The last bytes of its standard error, read to the end."""
        tail = b""
        async for chunk in _chunks(self._process.stderr):
            tail = (tail + chunk)[-limit:]
        return tail

    def stop(self) -> None:
        """Have it end, with all that it started. Returns at once."""
        if self._control is not None:
            os.close(self._control)
            self._control = None

    async def ended(self) -> ProgramEnd:
        """Wait until all of it has ended. Its output has to be read to the end."""
        await self._process.wait()
        return _end(os.read(self._status, 64).decode("ascii", "replace"))

    async def see_off(self) -> None:
        """Have it end and wait for that, however often this is cancelled meanwhile. It takes no longer than its grace."""
        self.stop()
        try:
            await to_the_end(self._over())
        finally:
            os.close(self._status)

    async def _over(self) -> None:
        """It has ended, and its pipes are read to their ends: asyncio takes it for running as long as they are open.

        Should something that nobody could end hold them open, they are given up.
        """
        if self._process.stdin is not None:
            self._process.stdin.close()
        ends = (self._process.wait(), _drained(self._process.stdout), _drained(self._process.stderr))
        try:
            async with asyncio.timeout(self._grace_s + SLACK_S):
                await asyncio.gather(*ends)
        except TimeoutError:
            if self._process.returncode is None:
                self._process.kill()


@asynccontextmanager
async def running(command: Command, *, has_input: bool) -> AsyncIterator[Program]:
    """The program, within the block; after it nothing of it is left. Raises ``OSError`` if nothing can be started."""
    control_read, control_write = os.pipe()
    status_read, status_write = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-I", "-S", SUPERVISOR, str(control_read), str(status_write)),
            *(str(command.grace_s), command.folder, *command.argv),
            stdin=asyncio.subprocess.PIPE if has_input else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=dict(command.env),
            cwd=command.cwd,
            pass_fds=(control_read, status_write),
            start_new_session=True,
        )
    except BaseException:
        os.close(control_write)
        os.close(status_read)
        raise
    finally:
        os.close(control_read)
        os.close(status_write)
    program = Program(process, control_write, status_read, command.grace_s)
    try:
        yield program
    finally:
        await program.see_off()


async def _chunks(stream: asyncio.StreamReader | None) -> AsyncIterator[bytes]:
    while stream is not None and (chunk := await stream.read(CHUNK)):
        yield chunk


async def _drained(stream: asyncio.StreamReader | None) -> None:
    async for _ in _chunks(stream):
        pass


def _end(line: str) -> ProgramEnd:
    match line.split():
        case ["exit", code]:
            return ProgramEnd(exit_code=int(code))
        case ["signal", number]:
            return ProgramEnd(signal=int(number))
        case ["error", number]:
            return ProgramEnd(errno=int(number))
        case _:
            return ProgramEnd()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
