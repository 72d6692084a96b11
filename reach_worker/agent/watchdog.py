"""Noticing a handler that blocks the event loop: nothing else runs meanwhile, no heartbeat, no acknowledgement."""

import asyncio
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from reach_worker.agent.run import invoke
from reach_worker.ports import Clock

log = logging.getLogger(__name__)

LOOK_S: Final = 1.0
"""So often the loop is asked for a sign of life."""
BLOCKED_S: Final = 1.0
"""It is called blocked when it gives none for so long."""
OUR_OWN: Final = "the worker itself"


class Watchdog:
    """Asks the loop from a thread of its own, and names in the log what keeps it from answering, and where.

    A coroutine's name is the name of its task.
    """

    def __init__(self, clock: Clock, *, look_s: float = LOOK_S, blocked_s: float = BLOCKED_S) -> None:
        self._clock = clock
        self._look_s = look_s
        self._blocked_s = blocked_s
        self._over = threading.Event()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the running loop, and this thread, within the block."""
        loop, thread = asyncio.get_running_loop(), threading.get_ident()
        watcher = threading.Thread(target=self._watch, args=(loop, thread), name="watchdog", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            self._over.set()

    def _watch(self, loop: asyncio.AbstractEventLoop, thread: int) -> None:
        while not self._over.wait(self._look_s):
            answered = threading.Event()
            asked_at = self._clock.monotonic()
            try:
                loop.call_soon_threadsafe(answered.set)
            except RuntimeError:  # the loop is closed
                return
            patience, who = self._blocked_s, ""
            while not answered.wait(patience):
                if self._over.is_set():
                    return
                who = self._tell(loop, thread, self._clock.monotonic() - asked_at)
                patience *= 2
            if who:
                log.warning("%s let go after %.1f s", who, self._clock.monotonic() - asked_at)

    def _tell(self, loop: asyncio.AbstractEventLoop, thread: int, seconds: float) -> str:
        task = asyncio.current_task(loop)
        who = OUR_OWN if task is None else task.get_name()
        frame = sys._current_frames().get(thread)  # noqa: SLF001 - the documented way to see another thread's stack
        log.warning(
            "%s blocks the event loop, for %.1f s now, at %s: no heartbeat and no other task gets on. "
            "It should be a plain function, which gets a thread, or await what takes long",
            who,
            seconds,
            _place(frame),
        )
        return who


def _place(frame: FrameType | None) -> str:
    """The line of the handler that is being run, and what that line is in."""
    if frame is None:
        return "an unknown place"
    innermost = caller = frame
    handlers = None
    while caller.f_code is not invoke.__code__:
        handlers = handlers if _is_ours(caller) else caller
        if caller.f_back is None:
            return _line(innermost)
        caller = caller.f_back
    if handlers is None or handlers is innermost:
        return _line(innermost)
    return f"{_line(handlers)} ({_line(innermost)})"


def _is_ours(frame: FrameType) -> bool:
    """It stands between us and the handler, or the handler has called it."""
    return str(frame.f_globals.get("__name__")).startswith(f"{__package__}.")


def _line(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
