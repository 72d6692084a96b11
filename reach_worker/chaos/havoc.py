"""Brings the planned faults about, each at its time, and writes down when each was at work."""

import asyncio
import resource
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from reach_worker.chaos.books import under_way_since
from reach_worker.chaos.crew import Crew, freeze
from reach_worker.chaos.faults import BROKER, STORE, Fault, FaultKind, Window
from reach_worker.chaos.node import PLENTY, Node
from reach_worker.chaos.scale import ROUTERS
from reach_worker.chaos.stage import Stage
from reach_worker.errors import OutsideWorld
from reach_worker.ports import Clock

Say = Callable[[str], None]
STUTTER_S: Final = 0.25
PASSWORD: Final = "guest"  # noqa: S105 - of a node on loopback, and for this run only
WRITTEN_S: Final = 10.0
MISSING_S: Final = 40.0
LOOK_S: Final = 0.5
NO_ROOM: Final = 4096
STARTS_AGAIN: Final = 3
"""A node that was killed gets so many tries to come back: its ports may be slow to become free."""


class Havoc:
    """Does it."""

    def __init__(self, stage: Stage, node: Node, crew: Crew, clock: Clock, say: Say) -> None:
        self.windows: list[Window] = []
        self._stage = stage
        self._node = node
        self._crew = crew
        self._clock = clock
        self._say = say
        self._deleted_us = 0
        self._locks = {BROKER: asyncio.Lock(), STORE: asyncio.Lock()}

    async def wreak(self, faults: Sequence[Fault], began: float) -> None:
        """All faults, each at its time after ``began`` (monotonic); back when the last is over."""
        async with asyncio.TaskGroup() as group:
            for fault in faults:
                group.create_task(self._one(fault, began), name=f"fault {fault.number}")

    async def _one(self, fault: Fault, began: float) -> None:
        await self._clock.sleep(max(0.0, began + fault.at_s - self._clock.monotonic()))
        if fault.kind in _ROUTERS_GO:
            await self._until_nothing_is_missing()
        async with self._held(fault):
            from_us = self._clock.utc_us()
            note, done = "", True
            try:
                note = await self._ACTIONS[fault.kind](self, fault) or ""
            except OutsideWorld as error:
                note, done = str(error), False
            if fault.target == STORE:
                await self._until_routers_write()
            to_us = self._clock.utc_us()
        window = Window(fault.kind.value, fault.target, from_us, to_us, done, note)
        self.windows.append(window)
        lasted = (to_us - from_us) / 1e6
        failed = "" if done else f": could not be done, {note}"
        self._say(f"fault {fault.number + 1}: {fault.kind.value} of {fault.target}, {lasted:.1f} s{failed}")

    @asynccontextmanager
    async def _held(self, fault: Fault) -> AsyncIterator[None]:
        """What may not happen at the same time waits for its turn. Taken in one order, so that nobody waits for ever.

        A router does not go while it can write nowhere, nor in the seconds after that in which it writes it all down:
        that is the only record of what was done meanwhile.
        """
        names = [fault.target] if fault.target in self._crew.members else []
        if fault.kind in _ROUTERS_GO or fault.target == STORE:
            names.append(STORE)
        if fault.target == BROKER or fault.kind is FaultKind.QUEUE_DELETED:
            names.append(BROKER)
        async with AsyncExitStack() as stack:
            for name in names:
                lock = self._locks[name] if name in self._locks else self._crew.members[name].lock
                await stack.enter_async_context(lock)
            yield

    # -- processes

    async def _kill(self, fault: Fault) -> None:
        await self._end(fault.target, signal.SIGKILL)

    async def _stop(self, fault: Fault) -> None:
        await self._end(fault.target, signal.SIGTERM)

    async def _end(self, name: str, number: signal.Signals) -> None:
        await self._crew.until_up(name)
        lives = self._crew.send(name, number)
        await self._crew.until_up(name, lives)

    async def _until_nothing_is_missing(self) -> None:
        """Wait until what was under way when a queue was deleted has ended.

        What was in that queue only the routers have, in their memory: one that goes then loses it, as it would lose
        what somebody purged. That would be our doing, and say nothing.
        """
        with suppress(TimeoutError):  # then something is missing for another reason
            async with asyncio.timeout(MISSING_S):
                while self._deleted_us and await under_way_since(self._stage, self._deleted_us):
                    await self._clock.sleep(LOOK_S)

    async def _freeze(self, fault: Fault) -> None:
        await self._crew.until_up(fault.target)
        pid = self._crew.pid(fault.target)
        if pid is None:
            raise OutsideWorld(f"{fault.target} does not run just now")
        await freeze(pid, fault.lasts_s)

    # -- connections

    async def _cut(self, fault: Fault) -> None:
        await self._crew.members[fault.target].proxy.cut()

    async def _black_hole(self, fault: Fault) -> None:
        proxy = self._crew.members[fault.target].proxy
        proxy.blackhole()
        try:
            await self._clock.sleep(fault.lasts_s)
        finally:
            proxy.resume()

    async def _slow(self, fault: Fault) -> None:
        proxy = self._crew.members[fault.target].proxy
        ends = self._clock.monotonic() + fault.lasts_s
        try:
            while self._clock.monotonic() < ends:
                proxy.stall()
                await self._clock.sleep(STUTTER_S)
                proxy.resume()
                await self._clock.sleep(STUTTER_S / 5)
        finally:
            proxy.resume()

    # -- the broker

    async def _kill_broker(self, _fault: Fault) -> str:
        await self._node.kill()
        for again in range(STARTS_AGAIN):
            try:
                await self._node.start()
            except OutsideWorld:
                if again == STARTS_AGAIN - 1:
                    raise
            else:
                return f"came back at start {again + 1}"
        raise AssertionError("the last try raises")

    async def _restart_broker(self, _fault: Fault) -> None:
        await self._node.stop()
        await self._node.start()

    async def _close_connections(self, _fault: Fault) -> None:
        await self._node.ctl("close_all_connections", "a fault of the chaos run")

    async def _memory_alarm(self, fault: Fault) -> None:
        await self._node.ctl("set_vm_memory_high_watermark", "0.00001")
        try:
            await self._clock.sleep(fault.lasts_s)
        finally:
            await self._node.ctl("set_vm_memory_high_watermark", *PLENTY)

    async def _wrong_password(self, fault: Fault) -> None:
        await self._node.ctl("change_password", "guest", "another")
        try:
            await self._node.ctl("close_all_connections", "a fault of the chaos run")
            await self._clock.sleep(fault.lasts_s)
        finally:
            await self._node.ctl("change_password", "guest", PASSWORD)

    async def _delete_queue(self, fault: Fault) -> None:
        await self._node.ctl("delete_queue", self._stage.names.agent(fault.target))
        self._deleted_us = self._clock.utc_us()

    # -- the store

    async def _until_routers_write(self) -> None:
        """A store fault is over when the routers have the store back: they look only now and then."""
        with suppress(TimeoutError):
            async with asyncio.timeout(WRITTEN_S):
                while not all(self._crew.members[name].has_its_store() for name in ROUTERS):
                    await self._clock.sleep(LOOK_S)

    async def _lock_store(self, fault: Fault) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "reach_worker.chaos.store_holder",
            str(self._stage.data / "reach.db"),
            f"{fault.lasts_s:.3f}",
            env=dict(self._stage.environ),
            stderr=asyncio.subprocess.PIPE,
        )
        _, err = await process.communicate()
        if process.returncode:
            raise OutsideWorld(f"the store could not be locked: {err.decode().strip().splitlines()[-1:]}")

    async def _move_store(self, fault: Fault) -> None:
        """The folder, with all of SQLite's files; a file in its place, so that nobody makes a new one meanwhile."""
        data, away = self._stage.data, self._stage.root / "data-moved-away"
        data.rename(away)
        data.write_bytes(b"")
        try:
            await self._clock.sleep(fault.lasts_s)
        finally:
            _back(data, away)

    async def _fill_disk(self, fault: Fault) -> None:
        """For the routers, as far as they can tell: no file of theirs may grow."""
        pids = [pid for name in ROUTERS if (pid := self._crew.pid(name)) is not None]
        try:
            for pid in pids:
                _let_files_grow(pid, NO_ROOM)
            await self._clock.sleep(fault.lasts_s)
        finally:
            for pid in pids:
                with suppress(OutsideWorld):  # that process is gone, and its limit with it
                    _let_files_grow(pid, resource.RLIM_INFINITY)

    _ACTIONS: Final[dict[FaultKind, Callable[["Havoc", Fault], Awaitable[str | None]]]] = {
        FaultKind.ROUTER_KILL: _kill,
        FaultKind.ROUTER_STOP: _stop,
        FaultKind.ROUTER_FREEZE: _freeze,
        FaultKind.ROUTER_CUT: _cut,
        FaultKind.ROUTER_BLACK_HOLE: _black_hole,
        FaultKind.ROUTER_SLOW: _slow,
        FaultKind.AGENT_KILL: _kill,
        FaultKind.AGENT_STOP: _stop,
        FaultKind.AGENT_FREEZE: _freeze,
        FaultKind.AGENT_CUT: _cut,
        FaultKind.AGENT_BLACK_HOLE: _black_hole,
        FaultKind.AGENT_SLOW: _slow,
        FaultKind.BROKER_KILL: _kill_broker,
        FaultKind.BROKER_RESTART: _restart_broker,
        FaultKind.CONNECTIONS_CLOSED: _close_connections,
        FaultKind.MEMORY_ALARM: _memory_alarm,
        FaultKind.WRONG_PASSWORD: _wrong_password,
        FaultKind.QUEUE_DELETED: _delete_queue,
        FaultKind.STORE_LOCKED: _lock_store,
        FaultKind.STORE_AWAY: _move_store,
        FaultKind.DISK_FULL: _fill_disk,
    }


_ROUTERS_GO: Final = frozenset({FaultKind.ROUTER_KILL, FaultKind.ROUTER_STOP})


def _let_files_grow(pid: int, limit: int) -> None:
    """Up to so many bytes. What a process writes beyond that fails, as on a full disk."""
    if sys.platform != "linux":
        raise OutsideWorld("only Linux lets the limits of another process be set")
    try:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    except OSError as error:
        raise OutsideWorld(f"the limits of process {pid} cannot be set: {error}") from None


def _back(data: Path, away: Path) -> None:
    data.unlink()
    away.rename(data)
