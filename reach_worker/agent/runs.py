"""Runs what a worker has in hand: each dispatch from its slot to its outcome."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from reach_worker.agent.agent import Agent
from reach_worker.agent.calls import AttemptCalls
from reach_worker.agent.context import context_of, with_calls
from reach_worker.agent.in_hand import InHand, Run
from reach_worker.agent.outbox import Finished, Outbox
from reach_worker.agent.run import Ending, run_handler
from reach_worker.agent.switchboard import Switchboard
from reach_worker.agent.voice import Speech, Voice
from reach_worker.agent.worker_policy import WorkerPolicy
from reach_worker.core import handoff
from reach_worker.core.dispatch import OUTCOME, STARTED_NOTE, outcome_headers
from reach_worker.core.message import Message
from reach_worker.core.names import Names
from reach_worker.core.outcome import OutcomeClass
from reach_worker.core.success import ServiceTimes
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

    ``hand``: what is here. ``board``: the calls that runs make. ``speech``: what they say. ``service``: how long they
    took. ``completed``: how many have ended. ``resources``: of the agent's lifespan. ``ended`` is told of each run.
    """

    def __init__(self, agent: Agent, at: Place, outbox: Outbox, ended: Callable[[Run], None]) -> None:
        capacity = agent.manifest.max_concurrency
        self.hand = InHand(capacity)
        self.board = Switchboard(at.bus, at.clock, at.names)
        self.speech = Speech(at.bus, at.clock)
        self.service = ServiceTimes()
        self.completed = 0
        self.resources: Any = None
        self._manifest = agent.manifest
        self._handlers = agent.handlers
        self._at = at
        self._outbox = outbox
        self._ended = ended
        self._threads = ThreadPoolExecutor(max_workers=capacity, thread_name_prefix="handler")

    def close(self) -> None:
        """Let go of the threads. One that cannot be ended goes on."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def cancel(self, dispatch_id: str) -> None:
        """Stop a run, or end one that has not begun."""
        run = self.hand.find(dispatch_id)
        if run is None:
            return
        run.stop.set()
        if dispatch_id not in self.hand.running:
            self.hand.ready.remove(run)
            self.finish(run, Ending(OutcomeClass.CANCELLED, "taken back before it ran"), None)

    def go(self, dispatch_id: str) -> None:
        """A leg of a race has won: what it says goes to the caller from now on."""
        run = self.hand.running.get(dispatch_id)
        if run is not None and run.voice is not None:
            run.voice.go()

    def start(self, group: asyncio.TaskGroup) -> None:
        """Begin what has a slot, each as a task of the group."""
        while (run := self.hand.start_next()) is not None:
            group.create_task(self._run(run), name=f"run {run.dispatch.dispatch_id}")

    def finish(self, run: Run, ending: Ending, seconds: float | None) -> None:
        """Queue the outcome of a run, once."""
        dispatch = run.dispatch
        outcome = run.outcome(ending, seconds, instance_id=self._at.instance_id)
        headers = outcome_headers(replace(dispatch, envelope=run.envelope()).headers(), outcome)
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

    async def _run(self, run: Run) -> None:
        try:
            if run.alone:
                log.warning(
                    "task %s was in a process that died: it runs alone", run.dispatch.envelope.task_id
                )
            says_so = run.alone or run.dispatch.envelope.side_effects
            if says_so and not await self._said_started(run):
                self.finish(run, Ending(OutcomeClass.RELEASED, "the broker did not take its start"), None)
                return
            began = self._at.clock.monotonic()
            run.voice = Voice(run.dispatch, run.task, self._at.names, self.speech, self._at.policy.streaming)
            run.context = context_of(
                run.dispatch, run.task, self._at.clock.monotonic, run.voice, self.resources
            )
            run.calls = self._calls_of(run, run.context.seconds_left)
            with_calls(run.context, run.calls)
            ending = await run_handler(
                self._handlers[run.dispatch.envelope.capability],
                run.task,
                run.context,
                threads=self._threads,
                stop=run.stop,
                max_bytes=self._at.policy.max_body_bytes,
                declared_s=self._declared_s(run.dispatch.envelope.capability),
            )
            if ending.left_behind is not None:
                self.hand.keep_slot(ending.left_behind)
            seconds = self._at.clock.monotonic() - began
            self.service.add(seconds)
            await run.voice.flush()
            run.voice.silence()
            self.finish(run, ending, seconds)
        finally:
            if run.calls is not None:
                run.calls.end()
            self.hand.running.pop(run.dispatch.dispatch_id, None)
            self._ended(run)
            self.completed += 1
            self._at.bus.inbox.arrived.set()

    def _declared_s(self, capability_id: str) -> float:
        declared = self._manifest.capability(capability_id)
        return (declared.timeout_ms or 0) / 1000 if declared else 0.0

    def _calls_of(self, run: Run, seconds_left: Callable[[], float]) -> AttemptCalls:
        policy, monotonic = self._at.policy.calls, self._at.clock.monotonic
        return AttemptCalls(run.dispatch, run.task, self.board, policy, monotonic, seconds_left)

    async def _said_started(self, run: Run) -> bool:
        headers = {**run.dispatch.headers(), OUTCOME: STARTED_NOTE}
        sent = await self._at.bus.publish(
            [Message(self._at.names.outcomes(run.dispatch.owner), b"", headers)]
        )
        return sent == [Sent.CONFIRMED]
