"""The processes of a run: started, watched, killed on purpose, and stopped whatever happens."""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from reach_worker.demo.stage import Stage
from reach_worker.errors import OutsideWorld

ROUTER: Final = "router"
GRACE_S: Final = 6.0
"""So long a process may take to stop before it is killed."""
TAIL_LINES: Final = 15


class ProcessDied(OutsideWorld):
    """A process ended that should not have. The text has the end of its log."""

    def __init__(self, name: str, status: int, log: Path) -> None:
        self.name = name
        self.status = status
        self.log = log
        super().__init__(name, status, log)

    def __str__(self) -> str:
        how = f"signal {-self.status}" if self.status < 0 else f"exit status {self.status}"
        return f"{self.name} ended unexpectedly ({how}); the end of its log:\n{tail(self.log)}"


@dataclass(slots=True)
class Crew:
    """Every process runs in a session of its own, so that Ctrl-C reaches the demo alone, which then stops them."""

    stage: Stage
    watchers: asyncio.TaskGroup
    _processes: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)
    _dismissed: set[int] = field(default_factory=set)

    async def router(self) -> None:
        """Start the router."""
        await self._start(ROUTER, "router", str(self.stage.config))

    async def agent(self, agent_id: str) -> None:
        """Start an instance of an agent."""
        await self._start(agent_id, "agent", str(self.stage.config), agent_id)

    def freeze(self, name: str) -> None:
        """Hold a process still: what it has, it has."""
        self._processes[name].send_signal(signal.SIGSTOP)

    async def kill(self, name: str) -> None:
        """SIGKILL, as if its machine had died."""
        process = self._processes[name]
        self._dismissed.add(process.pid)
        process.kill()
        await process.wait()

    async def stop(self) -> list[str]:
        """Stop all in order, agents first, then the router; which of them did not end as they should."""
        self._dismissed |= {process.pid for process in self._processes.values()}
        agents = {name: process for name, process in self._processes.items() if name != ROUTER}
        router = {name: process for name, process in self._processes.items() if name == ROUTER}
        return [*await self._stop(agents), *await self._stop(router)]

    async def abandon(self) -> None:
        """Kill all that still run: the run is over, and nobody needs what they have in hand."""
        self._dismissed |= {process.pid for process in self._processes.values()}
        running = [process for process in self._processes.values() if process.returncode is None]
        for process in running:
            process.kill()
        for process in running:
            await process.wait()

    async def _start(self, name: str, *arguments: str) -> None:
        log = self.stage.log(name)
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "reach_worker.demo.process",
                *arguments,
                stdin=asyncio.subprocess.PIPE,  # ends when we do, and the process with it
                stdout=descriptor,
                stderr=descriptor,
                env=self.stage.environ,
                start_new_session=True,
            )
        finally:
            os.close(descriptor)
        self._processes[name] = process
        self.watchers.create_task(self._watch(name, process), name=f"watch {name}")

    async def _watch(self, name: str, process: asyncio.subprocess.Process) -> None:
        status = await process.wait()
        if process.pid not in self._dismissed:
            raise ProcessDied(name, status, self.stage.log(name))

    async def _stop(self, processes: Mapping[str, asyncio.subprocess.Process]) -> list[str]:
        for process in processes.values():
            process.terminate()
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_S):
                for process in processes.values():
                    await process.wait()
        ends = {name: process.returncode for name, process in processes.items()}
        return [
            f"{name} {'did not stop' if status is None else f'stopped with status {status}'}"
            for name, status in ends.items()
            if status != 0
        ]


def tail(log: Path) -> str:
    """The last lines of a log."""
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "  (there is none)"
    return "\n".join(f"  {line}" for line in text.splitlines()[-TAIL_LINES:])
