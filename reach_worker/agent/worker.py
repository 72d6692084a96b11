"""The worker: one process of an agent. It says that it is there, takes dispatches, runs handlers, returns outcomes.

Every dispatch it takes is acknowledged only after the broker has confirmed its outcome, or a lease in its place where
it runs for long, so nothing is lost if the process dies; it is delivered again then, and runs alone, so that a task that
kills its process takes no others along.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from statistics import median_low
from typing import Final

from reach_worker.agent.agent import Agent
from reach_worker.agent.announcer import Announcer
from reach_worker.agent.in_hand import Run, not_to_run, too_late
from reach_worker.agent.long_runs import LongRuns
from reach_worker.agent.outbox import Finished, Outbox
from reach_worker.agent.run import Ending
from reach_worker.agent.runs import Place, Runs
from reach_worker.agent.ticks import ticking
from reach_worker.agent.watchdog import Watchdog
from reach_worker.agent.worker_policy import WorkerPolicy
from reach_worker.core.announcement import PAUSE, RESUME, WHO, cancel_key, go_key
from reach_worker.core.dispatch import Dispatch, dispatch_from
from reach_worker.core.envelope import BadHeaders
from reach_worker.core.message import Delivery, Message
from reach_worker.core.names import Names
from reach_worker.core.outcome import OutcomeClass
from reach_worker.core.slots import head_start
from reach_worker.core.task import Refusal, Task, decode_task
from reach_worker.ports import Clock, ConsumingBus

log = logging.getLogger(__name__)

TICK_S: Final = 0.5
"""A turn comes so often at least: not all that it looks at tells that it has come."""
ADAPT_S: Final = 1.0
NO_SLOT: Final = "no slot became free for it"
LAST_WORDS_S: Final = 5.0
"""After the grace period outcomes have so long to reach the broker."""


class Worker:
    """Runs one agent."""

    def __init__(
        self,
        agent: Agent,
        instance_id: str,
        names: Names,
        policy: WorkerPolicy,
        bus: ConsumingBus,
        clock: Clock,
    ) -> None:
        self.manifest = agent.manifest
        self.stop_asked = asyncio.Event()
        self._handlers = agent.handlers
        self._life = agent.life
        self._names = names
        self._policy = policy
        self._bus = bus
        self._clock = clock
        self._capacity = self.manifest.max_concurrency
        self._outbox = Outbox(bus, clock, names.returns)
        self._announcer = Announcer(self.manifest, instance_id, names.events, bus, self._state)
        self._long_runs = LongRuns(bus, clock, names, instance_id, policy.consumer_timeout_s / 2)
        at = Place(instance_id, names, policy, bus, clock)
        self._runs = Runs(agent, at, self._outbox, self._long_runs.ended)
        self._hand = self._runs.hand
        self._board = self._runs.board
        self._paused_at: int | None = None
        self._adapted_at = clock.monotonic()

    # -- life

    async def run(self, up: Callable[[], None] = lambda: None) -> None:
        """Heartbeat, manifest, consume; until asked to stop, then drain. ``up`` is called once it consumes.

        All that within the agent's lifespan. Raises :class:`StartupFailed` if that does not begin.
        """
        async with self._life.lived(self.stop_asked) as alive:
            if alive is not None:
                self._runs.resources = alive.resources
                try:
                    with Watchdog(self._clock).watching(), ticking(self._bus.inbox.arrived.set, TICK_S):
                        await self._live(up)
                finally:
                    self._runs.close()

    async def _live(self, up: Callable[[], None]) -> None:
        async with asyncio.TaskGroup() as group:
            beats = group.create_task(
                self._announcer.beat_forever(self._clock, self._policy.heartbeat_s), name="heartbeats"
            )
            sender = group.create_task(self._outbox.run(), name="outcomes")
            board = group.create_task(self._board.run(), name="calls")
            speaker = group.create_task(self._runs.speech.run(), name="chunks")
            await self._announcer.introduce()
            await self._bus.want("work", wanted=True)
            up()
            while not self.stop_asked.is_set():
                await self._wait()
                await self._turn(group)
            await self._drain()
            beats.cancel()
            sender.cancel()
            board.cancel()
            speaker.cancel()

    @property
    def left_behind(self) -> int:
        """Runs that could not be ended (plain functions that do not look at ``cancelled``): their threads still run."""
        return len(self._hand.stuck)

    async def _turn(self, group: asyncio.TaskGroup) -> None:
        self._runs.look()
        for delivery in self._bus.inbox.take("work"):
            self._take(delivery)
        if mail := self._bus.inbox.take("instance"):
            await self._mail(mail)
        self._board.look()
        await self._while_paused()
        await self._not_for_long()
        self._runs.start(group)
        await self._adapt()

    async def _adapt(self) -> None:
        """Prefetch what the slots take, and ahead of them only what is done while a message travels.

        A dispatch that waits here could have gone to another instance: nothing waits behind slow work. Nor beside one
        that may have killed its process before.
        """
        now = self._clock.monotonic()
        if now - self._adapted_at < ADAPT_S:
            return
        self._adapted_at = now
        usual_s = median_low(self._runs.service) if self._runs.service else None
        ahead = head_start(self._capacity, usual_s, self._policy.slots)
        leased = sum(run.leased for run in self._hand.running.values())
        await self._bus.set_prefetch("work", max(1, self._capacity + ahead - leased))
        if not self._hand.alone():
            await self._bus.trust("work")

    async def _wait(self) -> None:
        arrived = self._bus.inbox.arrived
        if not arrived.is_set():
            await arrived.wait()
        arrived.clear()

    async def _drain(self) -> None:
        """Take no more; hand back what has not begun; let what runs finish, then take it back too."""
        await self._bus.want("work", wanted=False)
        await self._announcer.beat(stopping=True)
        self._hand_back()
        deadline = self._clock.monotonic() + self._policy.grace_s
        while self._busy() and self._clock.monotonic() < deadline:
            for delivery in self._bus.inbox.take("work"):
                self._take(delivery)
            self._hand_back()
            await self._answers(self._bus.inbox.take("instance"))
            await self._long_runs.keep(self._hand.running.values())
            await self._wait()
        for run in list(self._hand.running.values()):
            ran_s = None if run.work is None else self._clock.monotonic() - run.work.attempt.began_at
            self._runs.finish(
                run, Ending(OutcomeClass.RELEASED, "the worker stopped before it was done"), ran_s
            )
            if run.work is not None:
                run.work.attempt.calls.leave_open()
            run.take_back()
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_S):
                await self._outbox.idle.wait()
                await self._announcer.beat(stopping=True)

    def _busy(self) -> bool:
        self._runs.look()
        return bool(self._hand.running) or not self._outbox.idle.is_set()

    def _hand_back(self, why: str = "the worker stops") -> None:
        for dispatch_id in list(self._hand.ready):
            self._runs.give_up(dispatch_id, Ending(OutcomeClass.RELEASED, why))

    async def _consume(self, *, wanted: bool) -> None:
        """A router saw that nothing gets done here, or that it does again: take no more meanwhile, or go on."""
        if (self._paused_at is None) is wanted:
            return
        self._paused_at = None if wanted else self._runs.completed
        log.warning("taking tasks again" if wanted else "told to take no more: nothing gets done here")
        await self._bus.want("work", wanted=wanted)

    async def _while_paused(self) -> None:
        """Nothing waits behind what does not end. It goes on by itself too: the router that said so may be gone."""
        if self._paused_at is None:
            return
        self._hand_back("this instance is stalled")
        if self._runs.completed > self._paused_at or not self._hand.running:
            await self._consume(wanted=True)

    async def _not_for_long(self) -> None:
        """What has not begun goes back before it is too late for it; leases stand in for what runs for long."""
        ready, utc_us = self._hand.ready.values(), self._clock.utc_us()
        too_long = self._long_runs.due(ready)
        for run in [run for run in ready if run in too_long or too_late(run.dispatch, utc_us)]:
            self._runs.give_up(run.dispatch.dispatch_id, Ending(OutcomeClass.RELEASED, NO_SLOT))
        await self._long_runs.keep(self._hand.running.values())

    # -- taking

    def _take(self, delivery: Delivery) -> None:
        dispatch = dispatch_from(delivery.headers)
        if isinstance(dispatch, BadHeaders):
            self._refuse_foreign(delivery, dispatch.error)
            return
        now = self._clock.monotonic()
        held = self._hand.find(dispatch.dispatch_id)
        if held is not None:
            held.delivery, held.taken_at = delivery, now
            if held.leased:
                self._outbox.let_go(delivery)
            return
        if self._outbox.came_again(dispatch.dispatch_id, delivery):
            return
        task = decode_task(delivery.body, max_bytes=self._policy.max_body_bytes * 2)
        ending = self._not_to_run(dispatch, delivery, task)
        if ending is not None or isinstance(task, Refusal):
            stub = Run(dispatch, delivery, Task(capability="none"), now)
            self._runs.finish(stub, ending or Ending(OutcomeClass.BAD_REQUEST, "not a task"), None)
            return
        alone = delivery.redelivered or dispatch.envelope.crashes > 0
        self._hand.ready[dispatch.dispatch_id] = Run(dispatch, delivery, task, now, alone=alone)

    def _not_to_run(self, dispatch: Dispatch, delivery: Delivery, task: Task | Refusal) -> Ending | None:
        if self.stop_asked.is_set():
            return Ending(OutcomeClass.RELEASED, "the worker stops")
        return not_to_run(dispatch, delivery, task, handled=self._handlers, utc_us=self._clock.utc_us())

    def _refuse_foreign(self, delivery: Delivery, error: str) -> None:
        """Something that no router sent: to the routers, who put it in the dead letters with the reason."""
        log.warning("a message in our queue is no dispatch: %s", error)
        message = Message(self._names.returns, delivery.body, {})
        self._outbox.put(Finished(self._clock.new_id(), message, delivery))

    # -- presence

    def _state(self) -> tuple[int, tuple[str, ...], int]:
        """Slots on offer, the dispatches that run, how many have ended."""
        running = (*self._hand.running, *self._long_runs.without_word(self._outbox))
        return self._hand.slots(), running, self._runs.completed

    async def _mail(self, deliveries: Sequence[Delivery]) -> None:
        """Questions, probes, cancels; to take no more, and to go on."""
        others = self._board.take(deliveries)
        if not others:
            await self._bus.ack(deliveries)
            return
        keys = {delivery.routing_key for delivery in others}
        if WHO in keys:
            await self._announcer.introduce()
        elif self._bus.mailbox in keys:
            await self._announcer.beat()
        for delivery in others:
            if delivery.body in (PAUSE, RESUME) and delivery.routing_key == self._bus.mailbox:
                await self._consume(wanted=delivery.body == RESUME)
            if delivery.routing_key == cancel_key(self.manifest.id):
                self._runs.cancel(delivery.body.decode("utf-8", "replace"))
            if delivery.routing_key == go_key(self.manifest.id):
                self._runs.go(delivery.body.decode("utf-8", "replace"))
        await self._bus.ack(deliveries)

    async def _answers(self, deliveries: Sequence[Delivery]) -> None:
        """While it drains: the answers that what runs still waits for."""
        self._board.take(deliveries)
        self._board.look()
        await self._bus.ack(deliveries)
