"""The processes of a run: started, asked, and ended whatever happens."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

from reach_worker.bench.live.usage import Usage
from reach_worker.errors import OutsideWorld

GRACE_S: Final = 15.0
ANSWER_S: Final = 60.0
TAIL_LINES: Final = 15


@dataclass(slots=True)
class Child:
    """A process that talks in lines of JSON. ``at_start``: what it had used when it was up."""

    name: str
    process: asyncio.subprocess.Process
    log: Path
    at_start: Usage = field(default_factory=lambda: Usage(0.0, 0.0, 0.0))
    _heard: list[dict[str, Any]] = field(default_factory=list)

    async def event(self, name: str, limit_s: float) -> dict[str, Any]:
        """What it says under this name; what it says before that is kept. Raises ``OutsideWorld`` if it never does."""
        try:
            async with asyncio.timeout(limit_s):
                return await self._event(name)
        except TimeoutError:
            raise OutsideWorld(
                f"{self.name} did not say {name!r} within {limit_s:g} s; the end of its log:\n{tail(self.log)}"
            ) from None

    async def ask(self, order: str) -> None:
        """Give it an order."""
        assert self.process.stdin is not None  # noqa: S101 - it was started so
        self.process.stdin.write(f"{order}\n".encode())
        await self.process.stdin.drain()

    async def usage(self) -> Usage:
        """What it has used so far."""
        return Usage.read(await self.state())

    async def state(self) -> dict[str, Any]:
        """What it has used so far, and whatever else it tells then."""
        await self.ask("usage")
        return await self.event("usage", ANSWER_S)

    async def finished(self) -> None:
        """Wait until it has ended by itself. Raises ``OutsideWorld`` if it failed."""
        if await self.process.wait():
            raise OutsideWorld(f"{self.name} failed; the end of its log:\n{tail(self.log)}")

    async def end(self) -> None:
        """Ask it to stop; kill it where it does not."""
        if self.process.returncode is None:
            self.process.terminate()
            with suppress(TimeoutError):
                async with asyncio.timeout(GRACE_S):
                    await self.process.wait()
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    async def _event(self, name: str) -> dict[str, Any]:
        while True:
            for place, said in enumerate(self._heard):
                if said["event"] == name:
                    return self._heard.pop(place)
            assert self.process.stdout is not None  # noqa: S101 - it was started so
            line = await self.process.stdout.readline()
            if not line:
                raise OutsideWorld(f"{self.name} ended; the end of its log:\n{tail(self.log)}")
            if line.startswith(b"{"):  # a peer may have words of its own for people
                self._heard.append(orjson.loads(line))


@asynccontextmanager
async def child(
    name: str, arguments: list[str], log: Path, environ: Mapping[str, str] | None = None
) -> AsyncIterator[Child]:
    """A Python process that runs within the block."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *arguments,
            stdin=asyncio.subprocess.PIPE,  # ends when we do, and the process with it
            stdout=asyncio.subprocess.PIPE,
            stderr=descriptor,
            env=_without_settings(os.environ) | dict(environ or {}),
            start_new_session=True,
        )
    finally:
        os.close(descriptor)
    started = Child(name, process, log)
    try:
        yield started
    finally:
        await started.end()


def _without_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Of the caller's ``REACH_*`` variables none counts: they would change what is measured."""
    return {name: value for name, value in environ.items() if not name.startswith("REACH_")}


def tail(log: Path) -> str:
    """The last lines of a log."""
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "  (there is none)"
    return "\n".join(f"  {line}" for line in text.splitlines()[-TAIL_LINES:])
