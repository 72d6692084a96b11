"""Calling one handler for one dispatch, and what its ending means."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from concurrent.futures import Executor
from dataclasses import replace
from types import TracebackType
from typing import Any, Final

import orjson

from reach_worker.agent.agent import Handler
from reach_worker.agent.context import Context
from reach_worker.agent.generators import drained, is_generator, streamed
from reach_worker.agent.outcomes import AgentOutcome
from reach_worker.agent.plain_json import plain
from reach_worker.core.handoff import Handoff, said
from reach_worker.core.outcome import OutcomeClass, cut
from reach_worker.core.task import Task
from reach_worker.core.value import value

log = logging.getLogger(__name__)

SHORTER: Final = "its limit this time, by its usual time or a deadline; it declares {:g} s"
LOGGED: Final = {
    OutcomeClass.FAILED: logging.WARNING,
    OutcomeClass.TIMEOUT: logging.WARNING,
    OutcomeClass.UNAVAILABLE: logging.WARNING,
    OutcomeClass.RATE_LIMITED: logging.INFO,
    OutcomeClass.BAD_REQUEST: logging.INFO,
    OutcomeClass.REJECTED: logging.INFO,
}
ABOVE_HANDLERS: Final = ("reach_worker.agent.", "concurrent.futures.", "asyncio.")


@value(frozen=True, slots=True)
class Ending:
    """How a run ended.

    ``left_behind``: what still runs although nobody waits for it (a thread cannot be ended). ``raised``: what the handler
    did not mean to raise.
    """

    kind: OutcomeClass
    message: str = ""
    result: bytes = b""
    retry_after_ms: int | None = None
    left_behind: "asyncio.Future[Any] | None" = None
    raised: Exception | None = None


class _Exited(Exception):  # noqa: N818 - not an error of ours
    """A handler tried to end the process; raised in place of that, which would end the worker too."""


def within(ending: Ending, limit_s: float, declared_s: float) -> Ending:
    """An ending that says so where it had less time than its capability declares, seconds."""
    if ending.kind is not OutcomeClass.TIMEOUT or limit_s >= declared_s:
        return ending
    return replace(ending, message=f"{ending.message}, {SHORTER.format(declared_s)}")


def log_end(ending: Ending, context: Context) -> None:
    """One line for each end that is no success; with the handler's own part of the traceback where it has a mistake."""
    level = LOGGED.get(ending.kind)
    if level is None:
        return
    error = ending.raised
    shown = None if error is None else (type(error), error, _from_the_handler(error.__traceback__))
    line = "%s in %s (attempt %d of task %s, flow %s): %s"
    of = (ending.kind, context.capability, context.attempt, context.task_id, context.flow_id)
    log.log(level, line, *of, ending.message, exc_info=shown)


def _from_the_handler(trace: TracebackType | None) -> TracebackType | None:
    """Without the frames above the handler's, which are the same for all; whole if there are no others."""
    inner = trace
    while inner is not None and inner.tb_frame.f_globals.get("__name__", "").startswith(ABOVE_HANDLERS):
        inner = inner.tb_next
    return inner or trace


def in_thread(handler: Handler, task: Task, context: Context, threads: Executor) -> "asyncio.Future[Any]":
    """Call the handler in a thread; the future is what it returns."""

    def call() -> Any:
        result = handler.call(task.payload, context)
        return handler.checked(drained(result, context)) if is_generator(result) else result

    return asyncio.get_running_loop().run_in_executor(threads, call)


async def invoke(handler: Handler, task: Task, context: Context, thread: "asyncio.Future[Any] | None") -> Any:
    """Call the handler, or wait for the thread that does."""
    try:
        result = handler.call(task.payload, context) if thread is None else await asyncio.shield(thread)
        if isinstance(result, AsyncGenerator):
            return handler.checked(await streamed(result, context))
        return await result if asyncio.iscoroutine(result) else result
    except (SystemExit, KeyboardInterrupt) as error:
        raise _Exited(type(error).__name__) from error


def ending_of(work: "asyncio.Future[Any]", max_bytes: int) -> Ending:
    """How a handler ended that was left to itself. A result may have so many bytes."""
    if work.cancelled():
        return Ending(OutcomeClass.FAILED, "the handler cancelled itself")
    error = work.exception()
    match error:
        case None:
            return _result(work.result(), max_bytes)
        case AgentOutcome():
            after = error.retry_after_s
            return Ending(
                error.kind, _words(error), retry_after_ms=None if after is None else int(after * 1000)
            )
        case _Exited():
            return Ending(OutcomeClass.FAILED, f"{error} ended the handler")
        case Exception():
            return Ending(OutcomeClass.FAILED, f"{type(error).__name__}: {_words(error)}", raised=error)
        case _:
            return Ending(OutcomeClass.FAILED, f"{type(error).__name__} ended the handler")


def _result(value: object, max_bytes: int) -> Ending:
    if isinstance(value, Handoff):
        return _handed_on(value, max_bytes)
    try:
        result = orjson.dumps(value, default=plain)
    except TypeError as error:
        return Ending(OutcomeClass.FAILED, f"the handler's result is no JSON: {error}")
    if len(result) > max_bytes:
        return Ending(
            OutcomeClass.FAILED, f"the handler's result has {len(result)} bytes, the limit is {max_bytes}"
        )
    return Ending(OutcomeClass.SUCCEEDED, result=result)


def _handed_on(handoff: Handoff, max_bytes: int) -> Ending:
    try:
        text = said(handoff, plain)
    except (TypeError, ValueError) as error:
        return Ending(OutcomeClass.FAILED, f"the handoff cannot be written as JSON: {error}")
    if len(text) > max_bytes:
        return Ending(OutcomeClass.FAILED, f"the handoff has {len(text)} bytes, the limit is {max_bytes}")
    return Ending(OutcomeClass.HANDOFF, handoff.reason, result=text)


def _words(error: BaseException) -> str:
    return cut(str(error) or type(error).__name__)
