"""One time for everything: a stepped clock, and asyncio's own timers by it.

Within :meth:`VirtualTime.installed` the running loop takes its time from the clock, so ``asyncio.sleep``,
``asyncio.timeout`` and every other timer (a handler's too) wait for the clock to be moved, and for nothing else. Time is
moved by :meth:`advance` and :meth:`until`, from one timer to the next, and only while nobody has anything to do.

Threads, sockets and processes live in real time. A plain handler's thread is given a moment to get done before time moves
on; one that waits for time to pass (for its cancellation, say) is then no longer waited for. While a handler has sockets
or pipes open, each step of time leaves them ten real milliseconds.
"""

import asyncio
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from reach_worker.errors import BadInput, Problem
from reach_worker.testing.clock import SteppedClock

T = TypeVar("T")

PATIENCE_S: Final = 0.25
"""Real seconds that a thread is given before time moves on."""
GIVEN_UP_S: Final = 0.005
"""And at each later step, once that was not enough."""
PAUSE_S: Final = 0.01
"""Real seconds that sockets, pipes and processes are given at each step."""
MOST_TURNS: Final = 50_000
FEW_TURNS: Final = 500
"""Turns of the loop at one moment. Who is not done then never waits, and time moves on all the same."""
PAUSES: Final = 500
OUR_OWN: Final = 1
"""What a loop without any of those listens to: its own wake-up."""
TICK_S: Final = 1e-6
"""Sums of seconds are not exact: a timer that was missed by a hair is met so much later."""


class VirtualTime:
    """Moves a clock and the loop's timers together. ``patience_s``: what a thread is given."""

    def __init__(self, clock: SteppedClock, *, patience_s: float = PATIENCE_S) -> None:
        self.clock = clock
        self._patience_s = patience_s
        self._threads: dict[Future[Any], float] = {}
        self._of_threads = threading.Lock()
        self._moved = threading.Event()
        self._watching = ThreadPoolExecutor(1, thread_name_prefix="virtual-time")
        self._default = ThreadPoolExecutor(thread_name_prefix="in-virtual-time")
        self._driving = asyncio.Lock()
        self._ahead = 0.0
        self._turns = MOST_TURNS

    @contextmanager
    def installed(self) -> Iterator[None]:
        """The running loop goes by this time within the block.

        Raises :class:`BadInput` on a loop that is not asyncio's own.
        """
        loop = asyncio.get_running_loop()
        if not isinstance(loop, asyncio.BaseEventLoop):
            hint = "run the test on asyncio's own event loop"
            raise BadInput(Problem(f"virtual time does not work on {type(loop).__module__}", hint=hint))
        self._ahead = loop.time() - self.clock.monotonic()
        replaced: dict[str, Any] = {"time": self._loop_time, "run_in_executor": self._run_in_executor}
        vars(loop).update(replaced)
        try:
            yield
        finally:
            for name in replaced:
                delattr(loop, name)
            self._watching.shutdown(wait=False)
            self._default.shutdown(wait=False)

    async def settle(self) -> None:
        """Let everybody do what there is to do, without any time passing."""
        async with self._driving:
            await self._settle()

    async def advance(self, seconds: float) -> None:
        """Let time pass. What falls due on the way happens in order, each at its own time."""
        await self.until(lambda: False, limit_s=seconds)

    async def until(self, holds: Callable[[], bool], *, limit_s: float) -> bool:
        """Let time pass from one timer to the next until it holds; ``False`` if it does not within the limit."""
        end = self.clock.monotonic() + limit_s
        await self.settle()
        while not holds():
            if not await self._step(end):
                if holds():  # somebody else has moved it meanwhile
                    return True
                self.clock.advance(max(0.0, end - self.clock.monotonic()))
                await self.settle()
                return holds()
        return True

    async def pause(self) -> None:
        """A moment of real time, in which none of the clock's passes: for threads that nobody knows of."""
        await asyncio.wrap_future(self._watching.submit(threading.Event().wait, PAUSE_S))
        await self.settle()

    async def until_really(self, holds: Callable[[], bool], *, step_s: float) -> bool:
        """As :meth:`until`, for what needs real time too: a pause after each ``step_s`` seconds, five seconds in all."""
        for _ in range(PAUSES):
            if await self.until(holds, limit_s=step_s):
                return True
            await self.pause()
        return False

    def watch(self, work: "Future[T]", patience_s: float) -> "Future[T]":
        """Wait for work in another thread before time moves on, so many real seconds at most."""
        with self._of_threads:
            self._threads[work] = patience_s
        work.add_done_callback(self._thread_done)
        return work

    # -- inside

    def _loop_time(self) -> float:
        return self.clock.monotonic() + self._ahead

    def _run_in_executor(
        self, executor: Executor | None, function: Callable[..., T], *arguments: object
    ) -> "asyncio.Future[T]":
        work = (executor or self._default).submit(function, *arguments)
        done = asyncio.wrap_future(work)  # first, so that the loop knows before it is no longer waited for
        self.watch(work, self._patience_s)
        return done

    def _thread_done(self, work: Future[Any]) -> None:
        with self._of_threads:
            self._threads.pop(work, None)
        self._moved.set()

    async def _step(self, end: float) -> bool:
        """To the next timer, and what follows from it; ``False`` if there is none until then."""
        async with self._driving:
            due = self._next()
            if due is None or due > end:
                return False
            ahead = due - self.clock.monotonic()
            self.clock.advance(ahead if ahead > 0 else TICK_S)
            await self._settle()
            return True

    def _next(self) -> float | None:
        """When the next timer of the clock or of the loop is due."""
        loop: Any = asyncio.get_running_loop()
        timers = [one.when() - self._ahead for one in loop._scheduled if not one.cancelled()]  # noqa: SLF001 - no other way to see them
        calls = self.clock.next_call()
        return min([*timers, *([] if calls is None else [calls])], default=None)

    async def _settle(self) -> None:
        loop: Any = asyncio.get_running_loop()
        patient = False
        for _ in range(self._turns):
            await _Turn()
            if loop._ready:  # noqa: SLF001 - no other way to see that nobody has anything to do
                continue
            self._turns = MOST_TURNS
            if self._threads:
                if not await self._threads_got_on():
                    return
            elif patient or not (len(loop._selector.get_map()) > OUR_OWN or _child_runs()):  # noqa: SLF001 - nor this
                return
            else:
                patient = True
                await asyncio.wrap_future(self._watching.submit(threading.Event().wait, PAUSE_S))
        self._turns = FEW_TURNS

    async def _threads_got_on(self) -> bool:
        """Wait for threads in real time; whether one of them got done."""
        self._moved.clear()
        with self._of_threads:
            waited_for = dict(self._threads)
        if not waited_for:
            return True
        await asyncio.wrap_future(self._watching.submit(self._moved.wait, max(waited_for.values())))
        if self._moved.is_set():
            return True
        with self._of_threads:
            for work in waited_for.keys() & self._threads.keys():
                self._threads[work] = min(GIVEN_UP_S, self._threads[work])
        return False


@contextmanager
def one_error() -> Iterator[None]:
    """What a task group raises comes out as itself where it is alone."""
    try:
        yield
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        raise error  # noqa: B904 - it holds its own causes


def _child_runs() -> bool:
    """A child process is waited for, where asyncio does that in a thread."""
    return any("waitpid-" in thread.name for thread in threading.enumerate())


class _Turn:
    """Awaiting it lets everybody else have one turn."""

    def __await__(self) -> Generator[None, None, None]:
        yield
