"""A handler at work on one dispatch: a task of its own, a time limit, and how it is ended before it ends by itself."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Final

from reach_worker.agent.agent import Handler
from reach_worker.agent.calls import AttemptCalls
from reach_worker.agent.context import Context
from reach_worker.agent.run import Ending, ending_of, in_thread, invoke
from reach_worker.agent.voice import Voice
from reach_worker.core.outcome import OutcomeClass
from reach_worker.core.task import Task

COOPERATIVE_S: Final = 1.0
"""After its time a handler sees ``cancelled`` and has so long to end by itself; then it is cancelled hard."""


@dataclass(slots=True)
class Attempt:
    """What an attempt has while its handler is at work. ``began_at``: monotonic seconds."""

    began_at: float
    context: Context
    voice: Voice
    calls: AttemptCalls


class AtWork:
    """A handler that has begun. ``over`` is called once: when it has ended, or was given up.

    As long as nothing is wrong it is one task of the loop and one timer. That task runs somebody else's code and may
    never end: so it belongs to no group, and what ends it is a task of ``group``.
    """

    def __init__(
        self,
        handler: Handler,
        task: Task,
        attempt: Attempt,
        *,
        threads: Executor,
        group: asyncio.TaskGroup,
        over: Callable[["AtWork"], None],
    ) -> None:
        context = attempt.context
        self.attempt = attempt
        self.group = group
        self._tell = over
        self._ended_as: OutcomeClass | None = None
        self._thread = None if handler.is_async else in_thread(handler, task, context, threads)
        loop = asyncio.get_running_loop()
        self._work = loop.create_task(
            invoke(handler, task, context, self._thread),
            name=f"the handler of {handler.capability_id} (task {context.task_id})",
        )
        self._work.add_done_callback(self._done)
        self._limit = loop.call_later(context.timeout_s, self._end_soon, OutcomeClass.TIMEOUT)

    def take_back(self) -> None:
        """Have it end now, and count as cancelled."""
        self._end_soon(OutcomeClass.CANCELLED)

    def leave(self) -> None:
        """Nobody looks after it any more: end it hard, wait for nothing, and say nothing."""
        self._ended_as = OutcomeClass.CANCELLED
        self._limit.cancel()
        self._work.cancel()
        self.attempt.calls.end()

    @property
    def left_behind(self) -> "asyncio.Future[Any] | None":
        """What still runs although nobody waits for it: a thread cannot be ended, a task need not obey."""
        return next((one for one in (self._thread, self._work) if one is not None and not one.done()), None)

    def ending(self, max_bytes: int) -> Ending:
        """How it ended. A result may have so many bytes."""
        if self._ended_as is None:
            return ending_of(self._work, max_bytes)
        if self._ended_as is OutcomeClass.CANCELLED:
            return Ending(OutcomeClass.CANCELLED, "taken back while it ran", left_behind=self.left_behind)
        if self._work.done() and not self._work.cancelled() and self._work.exception() is None:
            return ending_of(self._work, max_bytes)
        words = f"not done after {self.attempt.context.timeout_s:g} s"
        return Ending(OutcomeClass.TIMEOUT, words, left_behind=self.left_behind)

    # -- inside

    def _done(self, work: "asyncio.Future[Any]") -> None:
        if not work.cancelled():
            work.exception()  # after the attempt is over nobody's concern; asyncio would log it as never looked at
        if self._ended_as is None:
            self._over()

    def _over(self) -> None:
        self._limit.cancel()
        self._tell(self)

    def _end_soon(self, kind: OutcomeClass) -> None:
        if not self._work.done():
            self.group.create_task(self._end(kind), name=f"ending {self._work.get_name()}")

    async def _end(self, kind: OutcomeClass) -> None:
        """Ask it to end, then end it. A thread cannot be ended; only the waiting for it can."""
        if self._work.done() or self._ended_as is not None:
            return
        self._ended_as = kind
        self.attempt.context.cancel()
        await asyncio.wait({self._work}, timeout=min(COOPERATIVE_S, self.attempt.context.timeout_s))
        if not self._work.done():
            self._work.cancel()
            await asyncio.wait({self._work}, timeout=COOPERATIVE_S)
        self._over()
