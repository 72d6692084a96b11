"""Calling other agents in the middle of one's own work.

A call is a task of its own in the same flow, with an id that follows from the attempt and what is asked: so the same
call is made once, also where it is sent again because the session ended, or where the attempt begins anew because its
process died or was stopped. A retry is another attempt, and calls again.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final

import orjson

from reach_worker.agent.outcomes import Cancelled
from reach_worker.agent.plain_json import plain
from reach_worker.agent.switchboard import OpenCall, Switchboard
from reach_worker.core.call_limits import CallPolicy
from reach_worker.core.dispatch import Dispatch
from reach_worker.core.envelope import Envelope
from reach_worker.core.tags import fold
from reach_worker.core.task import OURS, Task
from reach_worker.core.task_errors import CallTimeout, result_of
from reach_worker.core.visits import Visit, work_name
from reach_worker.errors import ReachError

log = logging.getLogger("reach.agent")

GIVEN_UP: Final = "the task that called for it is over"


class CallLimit(ReachError):  # noqa: N818 - named for what was reached
    """A handler has asked too much of other agents: one more call, or more time, than one task may use."""


@dataclass(frozen=True, slots=True)
class Made:
    """A call that was made. ``repeated``: it asked for the same as one before, whose answer it got."""

    task_id: str
    capability: str
    repeated: bool = False


@dataclass(slots=True)
class _Spent:
    """Seconds in which at least one call was open."""

    seconds: float = 0.0
    open: int = 0
    since: float = 0.0

    def begin(self, now: float) -> None:
        self.since = self.since if self.open else now
        self.open += 1

    def end(self, now: float) -> None:
        self.open -= 1
        if not self.open:
            self.seconds += now - self.since

    def by(self, now: float) -> float:
        return self.seconds + (now - self.since if self.open else 0.0)


@dataclass(slots=True)
class AttemptCalls:
    """The calls of one attempt. ``ends_at``: monotonic seconds. All of it runs in the worker's own loop."""

    dispatch: Dispatch
    task: Task
    board: Switchboard
    policy: CallPolicy
    monotonic: Callable[[], float]
    ends_at: float
    made: list[Made] = field(default_factory=list)
    _calls: dict[str, OpenCall] = field(default_factory=dict)
    _spent: _Spent = field(default_factory=_Spent)
    _over: bool = False
    _left_open: bool = False

    async def call(self, capability: str, payload: Mapping[str, Any], timeout: float | None = None) -> Any:
        """The result of the other agent's work.

        Raises :class:`CallLimit`, a :class:`~reach_worker.core.task_errors.TaskError` where there is no result,
        :class:`Cancelled` once the attempt is cancelled, and ``ValueError`` for a payload that is no JSON object.
        """
        capability, payload = fold(capability), _as_sent(payload)
        name = work_name(capability, payload)
        call = self._calls.get(name)
        if call is None:
            call = self._calls[name] = self._begin(name, capability, payload, timeout)
            self.made.append(Made(call.task_id, capability))
        else:
            self.made.append(Made(call.task_id, capability, repeated=True))
            words = "[flow %s task %s] the call of %s repeats one of this task: it is answered from that, %s"
            log.info(words, call.envelope.flow_id, self.dispatch.envelope.task_id, capability, call.task_id)
        return result_of(await self._answer(call), call.task_id)

    def leave_open(self) -> None:
        """The attempt begins anew elsewhere, and makes the same calls: none of them is cancelled."""
        self._left_open = True

    def end(self) -> None:
        """The attempt is over, or is to stop: what is open is cancelled."""
        self._over = True
        for call in self._calls.values():
            self._fail(call, Cancelled(GIVEN_UP))

    # -- inside

    def _begin(
        self, name: str, capability: str, payload: Mapping[str, Any], timeout: float | None
    ) -> OpenCall:
        if self._over:
            raise Cancelled(GIVEN_UP)
        now = self.monotonic()
        budget_s = self.policy.seconds - self._spent.by(now)
        if len(self._calls) >= self.policy.max:
            raise CallLimit(
                f"{len(self._calls)} calls to other agents are the most of one attempt (calls.max); "
                f"this would be one more, of {capability}"
            )
        if budget_s <= 0:
            raise CallLimit(self._too_long())
        limit_s = min(budget_s, max(0.0, self.ends_at - now), float("inf") if timeout is None else timeout)
        call = OpenCall(self._envelope(name, capability), self._body(capability, payload), now + limit_s)
        self._spent.begin(now)
        call.answer.add_done_callback(lambda _: self._spent.end(self.monotonic()))
        over: Exception = CallLimit(self._too_long())
        if limit_s < budget_s:
            over = CallTimeout(
                call.task_id, call.envelope.flow_id, why=f"no answer of {capability} in {limit_s:.3g} s"
            )
        timer = asyncio.get_running_loop().call_later(max(0.0, limit_s), self._fail, call, over)
        call.answer.add_done_callback(lambda _: timer.cancel())
        self.board.open(call)
        return call

    def _too_long(self) -> str:
        return f"{self.policy.seconds:g} s in calls to other agents are the most of one task (calls.seconds)"

    async def _answer(self, call: OpenCall) -> Mapping[str, Any]:
        call.waiting += 1
        try:
            return await asyncio.shield(call.answer)
        finally:
            call.waiting -= 1
            if not call.waiting:  # whoever asked has gone without waiting for it
                why = "its handler did not wait for the answer"
                self._fail(call, CallTimeout(call.task_id, call.envelope.flow_id, why=why))

    def _fail(self, call: OpenCall, why: Exception) -> None:
        if not call.answer.done():
            call.answer.set_exception(why)
            call.answer.exception()  # seen: nobody may be waiting any more
            self.board.close(call, cancel=not self._left_open)

    def _envelope(self, name: str, capability: str) -> Envelope:
        mine, agent_id = self.dispatch.envelope, self.dispatch.agent_id
        attempt = f"{mine.task_id} {mine.life} {mine.next_attempt} {name}"
        task_id = OURS + blake2b(attempt.encode(), digest_size=16).hexdigest()
        had = work_name(mine.capability, self.task.payload)
        return Envelope(
            task_id=task_id,
            flow_id=mine.flow_id,
            capability=capability,
            caller=agent_id,
            first_seen=mine.first_seen,
            correlation_id=task_id,
            passed_on=mine.passed_on,
            from_agent=agent_id,
            hops=mine.hops + 1,
            visited=(*mine.visited, Visit(agent_id, had)),
        )

    def _body(self, capability: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        """The task, but for its deadline, which counts from each sending."""
        kept = {
            "domain": self.task.domain,
            "session_id": self.task.session_id,
            "metadata": self.task.metadata,
        }
        given = {name: value for name, value in kept.items() if value}
        return {"capability": capability, "payload": payload, **given}


def _as_sent(payload: Mapping[str, Any]) -> dict[str, Any]:
    """The payload as the other agent will read it. Raises ``ValueError`` where it is no JSON object."""
    try:
        read = orjson.loads(orjson.dumps(payload, default=plain))
    except TypeError as error:
        raise ValueError(f"the payload of a call cannot be written as JSON: {error}") from error
    match read:
        case dict():
            return read
        case _:
            raise ValueError("the payload of a call must be an object")
