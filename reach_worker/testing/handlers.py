"""Running one handler of an agent for one task, without a router: by the worker that runs it in production."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from reach_worker.agent.agent import Agent
from reach_worker.agent.reception import worker_on
from reach_worker.agent.worker_policy import WorkerPolicy
from reach_worker.core.announcement import cancel_key
from reach_worker.core.dispatch import NOTES, OUTCOME, Dispatch, dispatch_from, outcome_from
from reach_worker.core.document import nearest
from reach_worker.core.envelope import ANONYMOUS, Envelope
from reach_worker.core.handoff import split
from reach_worker.core.manifest import Capability, payload_problem
from reach_worker.core.message import Delivery, Message
from reach_worker.core.outcome import Attempt, Outcome, OutcomeClass
from reach_worker.core.recovery import TimeoutPolicy
from reach_worker.core.tags import fold
from reach_worker.errors import BadInput, Problem
from reach_worker.services.router.messages import dispatch_message
from reach_worker.testing.broker import MemoryBroker
from reach_worker.testing.bus import MemoryBus
from reach_worker.testing.caller import Answer, Caller
from reach_worker.testing.clock import SteppedClock
from reach_worker.testing.others import Others, StandIn
from reach_worker.testing.virtual_time import VirtualTime, one_error

OWNER: Final = "tester"
BEYOND_S: Final = 60.0
"""After its time limit a run is over within this."""
REFUSED: Final = "payload_refused"
NOBODY: Final[Mapping[str, StandIn]] = {}


@dataclass(frozen=True, slots=True)
class Handled:
    """How a handler's run ended.

    ``outcome``: an outcome class (``succeeded``, ``failed``, ``timeout``, …), or ``payload_refused``: the payload breaks
    the input schema, and no router would have called the handler. ``result``: what it returned; where it handed on,
    the handoff as a mapping. ``error``: in words. ``said``: all that was streamed. ``asked``: what it called, and with
    which payload. ``seconds``: how long it ran.
    """

    outcome: str
    result: Any = None
    error: str = ""
    said: tuple[Mapping[str, Any], ...] = ()
    asked: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    retry_after_s: float | None = None
    seconds: float = 0.0
    cost: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0

    @property
    def succeeded(self) -> bool:
        """It returned a result."""
        return self.outcome == OutcomeClass.SUCCEEDED

    @property
    def chunks(self) -> list[Any]:
        """What it streamed."""
        return Answer({}, self.said).chunks

    @property
    def progress(self) -> list[float | None]:
        """How far it said that it is."""
        return Answer({}, self.said).progress


async def run_handler(  # noqa: PLR0913 - each says one thing of the attempt, by its name
    agent: Agent,
    capability: str,
    payload: Mapping[str, Any] | None = None,
    *,
    attempt: int = 1,
    timeout: float | None = None,
    cancel_after: float | None = None,
    caller: str = ANONYMOUS,
    others: Mapping[str, StandIn] = NOBODY,
    **task: Any,
) -> Handled:
    """Run one handler, as the worker does. Raises :class:`BadInput` for a capability that the agent has not.

    ``timeout``: seconds it may take, else what the capability declares. ``cancel_after``: seconds until it is cancelled.
    ``others``: stand-ins for the agents that the handler calls, by capability: the result as a function of the payload.
    ``task``: more of the task, as ``metadata``, ``session_id`` or ``stream=False``. Time is virtual: an
    ``asyncio.sleep(30)`` in the handler takes no time, see :mod:`.virtual_time`.
    """
    declared = _capability(agent, capability)
    data = {"capability": declared.id, "payload": dict(payload or {}), "stream": True, **task}
    problem = payload_problem(declared, data["payload"])
    if problem is not None:
        return Handled(REFUSED, error=f"{agent.manifest.id}: payload{problem[0]}: {problem[1]}")
    time = VirtualTime(SteppedClock())
    timeout_s = timeout or (declared.timeout_ms or TimeoutPolicy().attempt_ms) / 1000
    with time.installed(), one_error():
        async with _Bench(agent, time, others).working() as bench:
            dispatch = bench.send(data, attempt, timeout_s, caller)
            if cancel_after is not None:
                await bench.cancel(dispatch, cancel_after)
            delivery, outcome = await bench.outcome(timeout_s + BEYOND_S)
            said = tuple(bench.caller.of(dispatch.envelope.task_id).said)
            asked = tuple(bench.others.asked)
    return replace(_handled(delivery, outcome), said=said, asked=asked)


def run_handler_sync(
    agent: Agent, capability: str, payload: Mapping[str, Any] | None = None, **given: Any
) -> Handled:
    """As :func:`run_handler`, for tests that are plain functions."""
    return asyncio.run(run_handler(agent, capability, payload, **given))


class _Bench:
    """A worker on a broker in memory. Whoever holds it is the router and the caller."""

    def __init__(self, agent: Agent, time: VirtualTime, others: Mapping[str, StandIn]) -> None:
        self._time = time
        self._agent_id = agent.manifest.id
        self._broker = MemoryBroker(time.clock)
        self._names = self._broker.names
        self._broker.declare(self._names.agent(self._agent_id))
        self._broker.declare(self._names.outcomes(OWNER))
        self._bus = MemoryBus(self._broker)
        self._worker = worker_on(self._bus, agent, "tested", self._names, WorkerPolicy(), time.clock)
        self.caller = Caller(self._broker)
        self.others = Others(self._broker, others)

    @asynccontextmanager
    async def working(self) -> AsyncIterator["_Bench"]:
        async with self._bus.running(), asyncio.TaskGroup() as group:
            collecting = group.create_task(self.caller.collect(), name="the caller")
            answering = group.create_task(self.others.answer(), name="the other agents")
            up = asyncio.Event()
            work = group.create_task(self._worker.run(up.set), name="the worker")
            await self._time.until_really(lambda: up.is_set() or work.done(), step_s=1.0)
            try:
                yield self
            finally:
                self._worker.stop_asked.set()
                self._bus.inbox.arrived.set()
                await self._time.until(work.done, limit_s=BEYOND_S)
                for task in (work, answering, collecting):
                    task.cancel()

    def send(self, task: Mapping[str, Any], attempt: int, timeout_s: float, caller: str) -> Dispatch:
        now_us = self._broker.clock.utc_us()
        earlier = [
            Attempt(number, "another", f"d{number}", "", OutcomeClass.FAILED, "", now_us, now_us)
            for number in range(1, attempt)
        ]
        task_id = str(task.get("task_id", "task-1"))
        envelope = Envelope(
            task_id,
            str(task.get("flow_id", task_id)),
            str(task["capability"]),
            caller,
            now_us,
            attempts=tuple(earlier),
            reply_to=self.caller.address,
            correlation_id=task_id,
        )
        dispatch = Dispatch(
            envelope,
            f"{attempt:012x}".ljust(32, "0"),
            "",
            self._agent_id,
            OWNER,
            now_us,
            0,
            int(timeout_s * 1000),
        )
        self._broker.publish(dispatch_message(self._names, dispatch, orjson.dumps(dict(task)), BEYOND_S))
        return dispatch

    async def cancel(self, dispatch: Dispatch, after_s: float) -> None:
        await self._time.advance(after_s)
        key, body = cancel_key(self._agent_id), dispatch.dispatch_id.encode()
        self._broker.publish(Message(key, body, {}, self._names.events))

    async def outcome(self, limit_s: float) -> tuple[Delivery, Outcome]:
        if not await self._time.until(lambda: bool(self._ends()), limit_s=limit_s):
            raise TimeoutError(f"{limit_s:g} s have passed, and the worker has not said how the run ended")
        delivery = self._ends()[0]
        dispatch = dispatch_from(delivery.headers)
        assert isinstance(dispatch, Dispatch)  # noqa: S101 - a worker of ours wrote it
        outcome = outcome_from(delivery.headers, dispatch)
        assert isinstance(outcome, Outcome)  # noqa: S101 - and this
        return delivery, outcome

    def _ends(self) -> list[Delivery]:
        told = self._broker.messages(self._names.outcomes(OWNER))
        return [delivery for delivery in told if delivery.headers[OUTCOME] not in NOTES]


def _handled(delivery: Delivery, outcome: Outcome) -> Handled:
    succeeded = outcome.outcome is OutcomeClass.SUCCEEDED
    result = orjson.loads(delivery.body) if succeeded else None
    if outcome.outcome is OutcomeClass.HANDOFF:
        result = orjson.loads(split(delivery.headers, delivery.body)[0])
    return Handled(
        outcome.outcome.value,
        result,
        outcome.message,
        retry_after_s=None if outcome.retry_after_ms is None else outcome.retry_after_ms / 1000,
        seconds=(outcome.duration_ms or 0.0) / 1000,
        cost=outcome.cost,
        tokens_in=outcome.tokens_in,
        tokens_out=outcome.tokens_out,
    )


def _capability(agent: Agent, name: str) -> Capability:
    manifest = agent.manifest
    found = manifest.capability(fold(name))
    if found is None:
        known = [capability.id for capability in manifest.capabilities]
        close = nearest(fold(name), known)
        hint = f"did you mean {close!r}?" if close else f"it has {', '.join(known)}"
        raise BadInput(Problem(f"agent {manifest.id!r} has no capability {name!r}", hint=hint))
    return found
