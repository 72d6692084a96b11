"""Running one handler for one dispatch: time limits, threads, and what its ending means."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from concurrent.futures import Executor
from dataclasses import dataclass, replace
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

log = logging.getLogger(__name__)

COOPERATIVE_S: Final = 1.0
"""After its time a handler sees ``cancelled`` and has so long to end by itself; then it is cancelled hard."""

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


@dataclass(frozen=True, slots=True)
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


async def run_handler(
    handler: Handler,
    task: Task,
    context: Context,
    *,
    threads: Executor,
    stop: asyncio.Event,
    max_bytes: int,
    declared_s: float = 0.0,
) -> Ending:
    """Run a handler to its end, at most for the context's time; ``stop`` ends it early. Logs an end that is bad.

    ``declared_s``: how long its capability says that it may take.
    """
    ending = await _run(handler, task, context, threads, stop, max_bytes)
    if ending.kind is OutcomeClass.TIMEOUT and context.timeout_s < declared_s:
        ending = replace(ending, message=f"{ending.message}, {SHORTER.format(declared_s)}")
    _log(ending, context)
    return ending


async def _run(
    handler: Handler,
    task: Task,
    context: Context,
    threads: Executor,
    stop: asyncio.Event,
    max_bytes: int,
) -> Ending:
    thread = None if handler.is_async else _in_thread(handler, task, context, threads)
    invoked = invoke(handler, task, context, thread)
    work = asyncio.ensure_future(invoked)  # noqa: TID251 - may have to be left behind
    work.add_done_callback(_looked_at)
    work.set_name(f"the handler of {handler.capability_id} (task {context.task_id})")
    stopped = asyncio.ensure_future(stop.wait())  # noqa: TID251 - ends with this function
    try:
        await asyncio.wait({work, stopped}, timeout=context.timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return _ending(work, max_bytes)
        taken_back = stopped.done()
        await _end(work, context)
    finally:
        stopped.cancel()
        if not work.done():
            work.cancel()
    left = next((one for one in (thread, work) if one is not None and not one.done()), None)
    if taken_back:
        return Ending(OutcomeClass.CANCELLED, "taken back while it ran", left_behind=left)
    if work.done() and not work.cancelled() and work.exception() is None:
        return _ending(work, max_bytes)
    return Ending(OutcomeClass.TIMEOUT, f"not done after {context.timeout_s:g} s", left_behind=left)


async def _end(work: "asyncio.Future[Any]", context: Context) -> None:
    """Ask it to end, then end it. A thread cannot be ended; only the waiting for it can."""
    context.cancel()
    await asyncio.wait({work}, timeout=min(COOPERATIVE_S, context.timeout_s))
    if not work.done():
        work.cancel()
        await asyncio.wait({work}, timeout=COOPERATIVE_S)


def _looked_at(work: "asyncio.Future[Any]") -> None:
    """What it raises after its attempt is over is nobody's concern; asyncio would log it as an error never looked at."""
    if not work.cancelled():
        work.exception()


def _log(ending: Ending, context: Context) -> None:
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


def _in_thread(handler: Handler, task: Task, context: Context, threads: Executor) -> "asyncio.Future[Any]":
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


def _ending(work: "asyncio.Future[Any]", max_bytes: int) -> Ending:
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
