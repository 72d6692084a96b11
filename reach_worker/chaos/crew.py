"""The processes of a run, each behind a TCP proxy of its own. One that ends is started again, as a supervisor would."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from reach_worker.chaos.faults import Window
from reach_worker.chaos.scale import AGENTS, ROUTERS
from reach_worker.chaos.stage import URL, Stage
from reach_worker.errors import OutsideWorld
from reach_worker.ports import Clock
from reach_worker.testing.tcp_proxy import TcpProxy

AGAIN_S: Final = 0.3
"""Between the end of a process and its next start."""
UP_S: Final = 45.0
"""So long a process may take until it says that it is up, while the broker is there."""
GRACE_S: Final = 12.0
LOOK_S: Final = 0.1
_ACTIVE: Final = re.compile(rb"(\S+) instance \S+ is active")
_UP: Final = re.compile(rb"(router \S+|agent \S+ instance \S+) is up")


@dataclass(slots=True)
class Member:
    """One process, through all its lives. ``log_from``: where the log of this life begins; ``asked``: we ended it."""

    name: str
    arguments: tuple[str, ...]
    proxy: TcpProxy
    log: Path
    process: asyncio.subprocess.Process | None = None
    starts: int = 0
    log_from: int = 0
    asked: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def is_up(self) -> bool:
        """It said so in this life."""
        return _UP.search(self.said()) is not None

    def has_its_store(self) -> bool:
        """A router has not said that its store is away, or has said since that it is back."""
        with self.log.open("rb") as file:
            file.seek(self.log_from)
            log = file.read()
        return log.rfind(b"the store is back") >= log.rfind(b"the store is away")

    def said(self) -> bytes:
        """The beginning of its log of this life."""
        with self.log.open("rb") as file:
            file.seek(self.log_from)
            return file.read(200_000)


@dataclass(slots=True)
class Exit:
    """The end of a process that nobody had asked for."""

    name: str
    status: int
    at_us: int


class Crew:
    """Routers and agents. To be entered; when it is left, none of them runs."""

    def __init__(self, stage: Stage, broker_port: int, clock: Clock) -> None:
        self.members: dict[str, Member] = {}
        self.exits: list[Exit] = []
        self.windows: list[Window] = []
        self._stage = stage
        self._broker_port = broker_port
        self._clock = clock
        self._stack = AsyncExitStack()
        self._group = asyncio.TaskGroup()
        self._closing = False

    async def __aenter__(self) -> Self:
        for name in (*ROUTERS, *AGENTS):
            proxy = await self._stack.enter_async_context(TcpProxy("127.0.0.1", self._broker_port))
            config = str(self._stage.config)
            arguments = (
                ("router", config) if name in ROUTERS else ("agent", config, name, str(self._stage.ledgers))
            )
            self.members[name] = Member(name, arguments, proxy, self._stage.log(name))
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing = True
        for member in self.members.values():
            if member.process is not None and member.process.returncode is None:
                member.process.kill()
        try:
            await self._group.__aexit__(kind, error, trace)
        finally:
            await self._stack.aclose()

    async def start(self) -> None:
        """Start all, the routers first; back when all are up."""
        for names in (ROUTERS, AGENTS):
            for name in names:
                self._group.create_task(self._keep(self.members[name]), name=f"keep {name}")
            for name in names:
                await self.until_up(name)
        for router in ROUTERS:
            await self._until(partial(_knows_all, self.members[router]), f"{router} knows all agents")

    async def until_up(self, name: str, after: int = 0) -> None:
        """Wait until a process is up, in a life after so many others. Raises ``OutsideWorld`` if that takes too long."""
        member = self.members[name]
        await self._until(
            lambda: member.starts > after and self.pid(name) is not None and member.is_up(), f"{name} is up"
        )

    async def _until(self, met: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(UP_S):
                while not met():
                    await self._clock.sleep(LOOK_S)
        except TimeoutError:
            raise OutsideWorld(
                f"not within {UP_S:g} s: {what}; its log is in {self._stage.root}/logs"
            ) from None

    def pid(self, name: str) -> int | None:
        """The pid of a process, ``None`` while there is none."""
        process = self.members[name].process
        return process.pid if process is not None and process.returncode is None else None

    def send(self, name: str, number: signal.Signals) -> int:
        """Send a signal that ends it; how many lives it had by then."""
        member = self.members[name]
        if member.process is None or member.process.returncode is not None:
            raise OutsideWorld(f"{name} does not run just now")
        member.asked = True
        member.process.send_signal(number)
        return member.starts

    async def stop(self) -> list[str]:
        """Stop all in order, agents first; which of them did not end as they should."""
        self._closing = True
        wrong = []
        for names in (AGENTS, ROUTERS):
            processes = {
                name: process for name in names if (process := self.members[name].process) is not None
            }
            for process in processes.values():
                with suppress(ProcessLookupError):
                    process.terminate()
            with suppress(TimeoutError):
                async with asyncio.timeout(GRACE_S):
                    for process in processes.values():
                        await process.wait()
            for name, process in processes.items():
                if process.returncode is None:
                    process.kill()
                    wrong.append(f"{name} did not stop within {GRACE_S:g} s")
                elif process.returncode not in (0, -signal.SIGTERM):  # that one had only just begun
                    wrong.append(f"{name} stopped with status {process.returncode}")
        return wrong

    async def _keep(self, member: Member) -> None:
        """Start it again whenever it ends. An end that nobody asked for is a fault too, and is written down as one."""
        while not self._is_closing():
            process = member.process = await self._spawn(member)
            if self._is_closing():
                process.kill()
            status = await process.wait()
            ended_us = self._clock.utc_us()
            if not member.asked and not self._is_closing():
                self.exits.append(Exit(member.name, status, ended_us))
                window = Window("died", member.name, ended_us, ended_us, note=f"status {status}")
                self.windows.append(window)
            member.asked = False
            await self._clock.sleep(AGAIN_S)

    def _is_closing(self) -> bool:
        return self._closing

    async def _spawn(self, member: Member) -> asyncio.subprocess.Process:
        log = os.open(member.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            member.log_from = os.fstat(log).st_size
            member.starts += 1
            return await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "reach_worker.chaos.process",
                *member.arguments,
                stdin=asyncio.subprocess.PIPE,  # ends when we do, and the process with it
                stdout=log,
                stderr=log,
                env={
                    **self._stage.environ,
                    URL: f"amqp://guest:guest@127.0.0.1:{member.proxy.url_port}/",
                    "REACH_ROUTER__ID": member.name if member.name in ROUTERS else "none",
                },
                start_new_session=True,
            )
        finally:
            os.close(log)


def _knows_all(router: Member) -> bool:
    """It has heard all agents, so that none of their tasks is unmatched."""
    return set(_ACTIVE.findall(router.said())) >= {agent.encode() for agent in AGENTS}


async def freeze(pid: int, seconds: float) -> None:
    """SIGSTOP, and SIGCONT so much later, by a process of its own: it happens also if this one is gone by then."""
    process = await asyncio.create_subprocess_exec(
        "/bin/sh",
        "-c",
        f"kill -STOP {pid}; sleep {seconds:.3f}; kill -CONT {pid}",
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    await process.wait()
