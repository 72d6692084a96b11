"""Runs what a worker has in hand: each dispatch from its slot to its outcome."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from reach_worker.agent.agent import Agent
from reach_worker.agent.at_work import Attempt, AtWork
from reach_worker.agent.calls import AttemptCalls
from reach_worker.agent.context import context_of
from reach_worker.agent.in_hand import InHand, Run
from reach_worker.agent.outbox import Finished, Outbox
from reach_worker.agent.run import Ending, log_end, within
from reach_worker.agent.switchboard import Switchboard
from reach_worker.agent.voice import Speech, Voice
from reach_worker.agent.worker_policy import WorkerPolicy
from reach_worker.core import handoff
from reach_worker.core.dispatch import OUTCOME, STARTED_NOTE, outcome_headers
from reach_worker.core.message import Message
from reach_worker.core.names import Names
from reach_worker.core.outcome import OutcomeClass
from reach_worker.core.success import WINDOW
from reach_worker.ports import Clock, ConsumingBus, Sent

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a worker is: what all its parts need."""

    instance_id: str
    names: Names
    policy: WorkerPolicy
    bus: ConsumingBus
    clock: Clock


class Runs:
    """All runs of a worker.

    ``hand``: what is here. ``board``: the calls that runs make. ``speech``: what they say. ``service``: how many seconds
    the last ones took. ``completed``: how many have ended. ``resources``: of the agent's lifespan. ``ended`` is told of
    each run.
    """

    def __init__(self, agent: Agent, at: Place, outbox: Outbox, ended: Callable[[Run], None]) -> None:
        capacity = agent.manifest.max_concurrency
        self.hand = InHand(capacity)
        self.board = Switchboard(at.bus, at.clock, at.names)
        self.speech = Speech(at.bus, at.clock)
        self.service: deque[float] = deque(maxlen=WINDOW)
        self.completed = 0
        self.resources: Any = None
        self._manifest = agent.manifest
        self._handlers = agent.handlers
        self._at = at
        self._outbox = outbox
        self._ended = ended
        self._mistake: BaseException | None = None
        self._threads = ThreadPoolExecutor(max_workers=capacity, thread_name_prefix="handler")

    def close(self) -> None:
        """Let go of what is still at work, and of the threads. What cannot be ended goes on."""
        for run in self.hand.running.values():
            if run.work is not None:
                run.work.leave()
                self._keep_slot(run.work.left_behind)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def cancel(self, dispatch_id: str) -> None:
        """Stop a run, or end one that has not begun."""
        run = self.hand.running.get(dispatch_id)
        if run is not None:
            run.take_back()
        elif dispatch_id in self.hand.ready:
            self.give_up(dispatch_id, Ending(OutcomeClass.CANCELLED, "taken back before it ran"))

    def give_up(self, dispatch_id: str, ending: Ending) -> None:
        """End one that has not begun."""
        self.finish(self.hand.ready.pop(dispatch_id), ending, None)

    def go(self, dispatch_id: str) -> None:
        """A leg of a race has won: what it says goes to the caller from now on."""
        run = self.hand.running.get(dispatch_id)
        if run is not None and run.work is not None:
            run.work.attempt.voice.go()

    def start(self, group: asyncio.TaskGroup) -> None:
        """Begin what has a slot. What has to be waited for on the way is a task of the group."""
        while (run := self.hand.start_next()) is not None:
            if run.alone:
                log.warning(
                    "task %s was in a process that died: it runs alone", run.dispatch.envelope.task_id
                )
            if run.alone or run.dispatch.envelope.side_effects:
                group.create_task(self._announced(run, group), name=f"start {run.dispatch.dispatch_id}")
            else:
                self._begin(run, group)

    def look(self) -> None:
        """Raise what went wrong where it could not be raised: a mistake of ours ends the worker, wherever it shows."""
        if self._mistake is not None:
            raise self._mistake

    def finish(self, run: Run, ending: Ending, seconds: float | None) -> None:
        """Queue the outcome of a run, once."""
        dispatch = run.dispatch
        outcome = run.outcome(ending, seconds, instance_id=self._at.instance_id)
        headers = outcome_headers(run.headers(), outcome)
        body = ending.result if ending.kind is OutcomeClass.SUCCEEDED else run.delivery.body
        if ending.kind is OutcomeClass.HANDOFF:
            body = handoff.outcome_body(headers, ending.result, body)
        message = Message(
            self._at.names.outcomes(dispatch.owner),
            body,
            headers,
            correlation_id=dispatch.dispatch_id,
        )
        self._outbox.put(Finished(dispatch.dispatch_id, message, run.delivery))

    async def _announced(self, run: Run, group: asyncio.TaskGroup) -> None:
        """Begin it once the broker has its start."""
        said = await self._said_started(run)
        if said and not run.taken_back:
            self._begin(run, group)
            return
        if said:
            ending = Ending(OutcomeClass.CANCELLED, "taken back before it ran")
        else:
            ending = Ending(OutcomeClass.RELEASED, "the broker did not take its start")
        self.finish(run, ending, None)
        self._let_go(run)

    def _begin(self, run: Run, group: asyncio.TaskGroup) -> None:
        at, dispatch, task = self._at, run.dispatch, run.task
        began_at = at.clock.monotonic()
        ends_at = began_at + dispatch.timeout_ms / 1000
        voice = Voice(dispatch, task, at.names, self.speech, at.policy.streaming)
        calls = AttemptCalls(dispatch, task, self.board, at.policy.calls, at.clock.monotonic, ends_at)
        context = context_of(dispatch, task, at.clock.monotonic, ends_at, voice, calls, self.resources)
        run.work = AtWork(
            self._handlers[dispatch.envelope.capability],
            task,
            Attempt(began_at, context, voice, calls),
            threads=self._threads,
            group=group,
            over=self._is_over,
        )

    def _is_over(self, work: AtWork) -> None:
        try:
            self._settle(self.hand.running[work.attempt.context.dispatch_id], work)
        except BaseException as mistake:
            self._mistake = mistake
            self._at.bus.inbox.arrived.set()
            raise

    def _settle(self, run: Run, work: AtWork) -> None:
        ending, attempt = work.ending(self._at.policy.max_body_bytes), work.attempt
        if ending.kind is not OutcomeClass.SUCCEEDED:
            ending = within(ending, attempt.context.timeout_s, self._declared_s(attempt.context.capability))
            log_end(ending, attempt.context)
            self._keep_slot(ending.left_behind)
        seconds = self._at.clock.monotonic() - attempt.began_at
        self.service.append(seconds)
        if attempt.voice.unsent:
            name = f"last words {run.dispatch.dispatch_id}"
            work.group.create_task(self._spoken(run, attempt, ending, seconds), name=name)
        else:
            self._done(run, attempt, ending, seconds)

    async def _spoken(self, run: Run, attempt: Attempt, ending: Ending, seconds: float) -> None:
        """Its outcome goes out after what it has said."""
        await attempt.voice.flush()
        self._done(run, attempt, ending, seconds)

    def _done(self, run: Run, attempt: Attempt, ending: Ending, seconds: float) -> None:
        attempt.voice.silence()
        attempt.calls.end()
        self.finish(run, ending, seconds)
        self._let_go(run)

    def _let_go(self, run: Run) -> None:
        self.hand.running.pop(run.dispatch.dispatch_id, None)
        self._ended(run)
        self.completed += 1
        if self.hand.ready:
            self._at.bus.inbox.arrived.set()

    def _keep_slot(self, left_behind: "asyncio.Future[Any] | None") -> None:
        if left_behind is not None:
            self.hand.keep_slot(left_behind)

    def _declared_s(self, capability_id: str) -> float:
        declared = self._manifest.capability(capability_id)
        return (declared.timeout_ms or 0) / 1000 if declared else 0.0

    async def _said_started(self, run: Run) -> bool:
        headers = {**run.dispatch.headers(), OUTCOME: STARTED_NOTE}
        sent = await self._at.bus.publish(
            [Message(self._at.names.outcomes(run.dispatch.owner), b"", headers)]
        )
        return sent == [Sent.CONFIRMED]
