"""``reach agent --reload``: a worker that is drained and started again when its source files change."""

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.machinery import PathFinder
from pathlib import Path

from reach_worker.cli.adapter_file import is_adapter_file
from reach_worker.cli.failures import OK
from reach_worker.cli.invocation import Invocation
from reach_worker.cli.output import say
from reach_worker.errors import BadInput, Problem
from reach_worker.settings.fleet import SUFFIXES


def serve_reloading(
    invocation: Invocation, place: str, manifest: Path | None, folders: Sequence[Path]
) -> int:
    """Run the worker in a process of its own, again and again, until SIGTERM or Ctrl-C.

    Raises:
        BadInput: the library that watches files is not there.
    """
    # Without bytecode files: two edits within a second and of one length would leave an old one in use.
    command = [sys.executable, "-B", "-m", "reach_worker"]
    command += [] if invocation.config is None else ["--config", str(invocation.config)]
    command += ["--verbose"] if invocation.verbose else []
    command += ["agent", place, "--with-parent"]
    command += [] if manifest is None else ["--manifest", str(manifest)]
    watched = list(folders) or [source_folder(place, Path.cwd())]
    changes = changed_files(watched, manifest)
    say(f"watching {', '.join(str(folder) for folder in watched)}")
    return asyncio.run(Reloading(command, say).run(changes))


def source_folder(place: str, here: Path) -> Path:
    """The folder of the package, of the module, or of the file that a place begins with; nothing is imported for that."""
    if is_adapter_file(place):
        return (here / place).parent
    top = place.partition(":")[0].partition(".")[0]
    spec = PathFinder.find_spec(top, [str(here), *sys.path])
    if spec is not None and spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)))
    return Path(spec.origin).parent if spec is not None and spec.origin else here


def changed_files(folders: Sequence[Path], file: Path | None) -> AsyncIterator[list[Path]]:
    """The source files in the folders that change, and one file elsewhere, a list each time. Raises ``BadInput``."""
    try:
        from watchfiles import PythonFilter, awatch  # noqa: PLC0415 - an extra, and only for this
    except ImportError:
        hint = "pip install 'reach-worker[reload]'"
        raise BadInput(Problem("--reload needs the library watchfiles", hint=hint)) from None
    is_source = PythonFilter(extra_extensions=SUFFIXES)  # manifests, beside Python's own
    named = None if file is None else file.resolve()
    roots = {folder.resolve() for folder in folders} | (set() if named is None else {named.parent})

    async def watch() -> AsyncIterator[list[Path]]:
        async for changes in awatch(*roots, watch_filter=is_source):
            found = sorted({Path(path) for _, path in changes})
            inside = [each for each in found if each == named or _is_in(each, folders)]
            if inside:
                yield inside

    return watch()


def _is_in(file: Path, folders: Sequence[Path]) -> bool:
    return any(file.is_relative_to(folder.resolve()) for folder in folders)


class Reloading:
    """Keeps one process of a command running. ``tell`` is told what happens, a line each time."""

    def __init__(self, command: Sequence[str], tell: Callable[[str], None]) -> None:
        self._command = command
        self._tell = tell
        self._news = asyncio.Event()
        self._changed = False
        self._stop = False
        self._process: Process | None = None

    async def run(self, changes: AsyncIterable[Sequence[Path]]) -> int:
        """Until a signal comes: the first one is passed on once, and so is the second. The exit status."""
        with self._heeding_signals():
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(self._watch(changes))
                while not self._stop:
                    await self._live(group)
                watching.cancel()
        return OK

    async def _live(self, group: asyncio.TaskGroup) -> None:
        """One process, from its start to its end and to the next change."""
        self._changed = False
        # In a session of its own, so that Ctrl-C reaches it once, through us; and with its input from us, so that it
        # does not outlive us.
        process = await asyncio.create_subprocess_exec(*self._command, stdin=PIPE, start_new_session=True)
        self._process = process
        ending = group.create_task(self._ended(process))
        await self._until(lambda: self._changed or self._stop or process.returncode is not None)
        if process.returncode is None:
            self._terminate()
        elif not (self._changed or self._stop):
            self._tell(f"the worker has ended with status {process.returncode}; waiting for a change")
            await self._until(lambda: self._changed or self._stop)
        await ending

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            await self._news.wait()
            self._news.clear()

    async def _ended(self, process: Process) -> None:
        await process.wait()
        self._news.set()

    async def _watch(self, changes: AsyncIterable[Sequence[Path]]) -> None:
        async for files in changes:
            self._tell(f"changed: {', '.join(str(file) for file in files)}; starting the worker again")
            self._changed = True
            self._news.set()

    def _terminate(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.terminate()

    def _signalled(self) -> None:
        if self._stop:
            self._terminate()
        self._stop = True
        self._news.set()

    @contextmanager
    def _heeding_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
