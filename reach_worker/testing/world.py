"""A whole small world in one process: real routers, real workers, real handlers, a broker in memory, and time to move."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from reach_worker.agent.agent import Agent
from reach_worker.core.breaker import Breaker
from reach_worker.core.dead_letter import DeadLetter, dead_letter_from
from reach_worker.core.document import Document, validate
from reach_worker.core.presence import PresenceState
from reach_worker.ports import Row
from reach_worker.settings import Settings
from reach_worker.store import MemoryStore
from reach_worker.testing.broker import MemoryBroker
from reach_worker.testing.caller import Answer, Caller
from reach_worker.testing.clock import SteppedClock
from reach_worker.testing.crew import Crew
from reach_worker.testing.history import Try, explained, tries, under_way
from reach_worker.testing.sqlite import SqliteBeside
from reach_worker.testing.virtual_time import VirtualTime, one_error

LIMIT_S: Final = 3600.0
"""What is waited for may take an hour, of the world's time."""


class World:
    """Routers and agents around one broker in memory, to be entered with ``async with``.

    ``agents``: each is started once. ``routers``: how many. ``store``: a path for a real store on SQLite, else one in
    memory. ``settings``: sections of ``config/reach.yaml``, as ``breaker={"streak": 2}``; with
    ``routing={"preset": "declared"}`` every choice follows from what the agents declare. Draws follow from ``seed``.

    Inside, time is the world's, and stands still but for :meth:`call`, :meth:`answer`, :meth:`until` and :meth:`advance`;
    also ``asyncio.sleep`` and ``asyncio.timeout`` go by it, in handlers and in the test. See :mod:`.virtual_time`.
    """

    def __init__(
        self,
        agents: Sequence[Agent] = (),
        *,
        routers: int = 1,
        store: Path | None = None,
        seed: int = 0,
        **settings: Mapping[str, Any],
    ) -> None:
        self.settings = validate(Settings, Document(settings, file="World"))
        self.clock = SteppedClock(seed=seed)
        self.time = VirtualTime(self.clock)
        self.broker = MemoryBroker(self.clock)
        self.names = self.broker.names
        self.faults = self.broker.faults
        self.store: MemoryStore | SqliteBeside = (
            MemoryStore() if store is None else SqliteBeside(store, self.time)
        )
        self._agents = list(agents)
        self._router_ids = [f"r{number}" for number in range(1, routers + 1)]
        self._caller = Caller(self.broker)
        self._stack = AsyncExitStack()
        self._group = asyncio.TaskGroup()
        self.crew = Crew(self.settings, self.broker, self.store, self._group)
        self.faults.on_death = self.crew.kill_owner

    # -- life

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            stack.enter_context(self.time.installed())
            stack.enter_context(one_error())
            if isinstance(self.store, SqliteBeside):
                await stack.enter_async_context(self.store)
            await stack.enter_async_context(self._group)
            collecting = self._group.create_task(self._caller.collect(), name="the caller")
            stack.callback(collecting.cancel)
            stack.callback(self._kill_all)
            for router_id in self._router_ids:
                self.crew.start_router(router_id)
            for agent in self._agents:
                self.crew.start_agent(agent)
            await self._all_up()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._stack.push_async_callback(self._stop_all)
        await self._stack.aclose()

    async def _all_up(self) -> None:
        """Everybody is there, and every router takes tasks."""
        beat_s = self.settings.presence.heartbeat_s
        if not await self.time.until_really(self.crew.complete, step_s=beat_s):
            raise TimeoutError(f"not every agent has come up\n{under_way(self.rows, self.broker)}")
        await self.advance(2 * beat_s)

    async def _stop_all(self) -> None:
        """All drain, agents before routers."""
        for kind in ("agent", "router"):
            processes = [process for process in self.crew.everybody() if process.kind == kind]
            for process in processes:
                process.stop()
            await asyncio.gather(*(self._stopped(process) for process in processes))

    async def _stopped(self, process: Any) -> None:
        await self.time.until(lambda: not process.alive, limit_s=2 * self.settings.router.grace_s + 60)

    def _kill_all(self) -> None:
        for process in self.crew.everybody():
            process.kill()

    # -- who is there

    async def start(self, agent: Agent) -> str:
        """Start one more instance of an agent, or an agent that was killed; the id of the instance."""
        instance_id = self.crew.start_agent(agent).instance_id
        await self._all_up()
        return instance_id

    async def start_router(self, router_id: str) -> None:
        """Start a router: one more, or again one that was killed."""
        self.crew.start_router(router_id)
        await self._all_up()

    async def kill(self, who: Agent | str) -> None:
        """Kill a process: an agent with all its instances, one instance by its id, or a router by its id.

        It says nothing any more, its connection breaks, and what it had not acknowledged goes back to its queue. Its
        threads cannot be ended: a plain handler goes on, and nobody hears of it.
        """
        for process in self.crew.find(who):
            process.kill()
        await self.settle()

    async def stop(self, who: Agent | str) -> None:
        """Let a process (named as for :meth:`kill`) drain and go, as a first SIGTERM does."""
        processes = self.crew.find(who)
        for process in processes:
            process.stop()
        await self.until(lambda: not any(process.alive for process in processes), f"{who!r} has stopped")

    # -- tasks

    async def call(self, capability: str, payload: Mapping[str, Any] | None = None, **task: Any) -> Answer:
        """Publish a task and let time pass until its answer is there. Takes what :meth:`publish` takes."""
        return await self.answer(self.publish(capability, payload, **task))

    def publish(
        self,
        capability: str,
        payload: Mapping[str, Any] | None = None,
        *,
        task_id: str | None = None,
        user: str | None = None,
        headers: Mapping[str, Any] | None = None,
        **task: Any,
    ) -> str:
        """Publish a task as any AMQP client would; its id. ``task``: fields of the task, as ``deadline_ms``.

        ``user``: the caller, for whom the broker would vouch. Anything else can be sent with ``world.broker.send_task``.
        """
        task_id = task_id or f"task-{self.clock.new_id()[6:12]}"
        body = {"capability": capability, "payload": dict(payload or {}), **task}
        self._caller.publish(body, task_id, user=user, headers=headers or {})
        return task_id

    async def answer(self, task_id: str, *, limit_s: float = LIMIT_S) -> Answer:
        """Let time pass until the task has its answer. Raises :class:`TimeoutError` with what is known of it."""
        found = self._caller.answer
        await self.until(
            lambda: found(task_id) is not None, f"task {task_id} has its answer", limit_s=limit_s
        )
        answer = found(task_id)
        assert answer is not None  # noqa: S101 - it was waited for
        return answer

    async def cancel(self, task_id: str, *, user: str | None = None) -> Mapping[str, Any]:
        """Cancel a task, as its caller does; what the router says: ``cancelled`` and ``state``."""
        mark = f"cancel {self.clock.new_id()}"
        self._caller.ask_to_cancel(task_id, mark, user=user)
        await self.until(lambda: bool(self._caller.of(mark).answers), f"cancelling {task_id} has its answer")
        return self._caller.of(mark).answers[0]

    def answers(self, task_id: str) -> list[Mapping[str, Any]]:
        """All answers that have come for a task: one, or its caller was told twice."""
        return list(self._caller.of(task_id).answers)

    def said(self, task_id: str) -> list[Mapping[str, Any]]:
        """What has been streamed for a task until now."""
        return list(self._caller.of(task_id).said)

    # -- time

    async def advance(self, seconds: float) -> None:
        """Let time pass, and everybody do what falls due."""
        await self.time.advance(seconds)

    async def settle(self) -> None:
        """Let everybody do what there is to do now."""
        await self.time.settle()

    async def until(
        self, holds: Callable[[], bool], what: str = "it holds", *, limit_s: float = LIMIT_S
    ) -> None:
        """Let time pass until it holds. Raises :class:`TimeoutError` with what is under way."""
        if not await self.time.until(holds, limit_s=limit_s):
            raise TimeoutError(
                f"{limit_s:g} s have passed, and not yet: {what}\n{under_way(self.rows, self.broker)}"
            )

    # -- what can be seen

    @property
    def rows(self) -> list[Row]:
        """All that was recorded, in order."""
        return self.store.rows

    def attempts(self, task_id: str) -> list[Try]:
        """Where a task (or each leg of a race or fan-out) was sent, and how each attempt ended."""
        return tries(self.rows, task_id)

    def breaker(self, agent: Agent | str, *, router: str = "") -> Breaker:
        """An agent's breaker at a router (the first one by default): its ``state``, ``streak``, ``open_until``."""
        return self.crew.known(agent, router).breaker

    def presence(self, agent: Agent | str, *, router: str = "") -> PresenceState:
        """What a router believes of an agent."""
        return self.crew.known(agent, router).roster.state()

    def dead_letters(self) -> list[DeadLetter]:
        """The dead letters, oldest first."""
        return [dead_letter_from(delivery) for delivery in self.broker.messages(self.names.dlq)]

    def unmatched(self) -> list[DeadLetter]:
        """The tasks that wait for a person, oldest first."""
        return [dead_letter_from(delivery) for delivery in self.broker.messages(self.names.unmatched)]

    async def explain(self, task_id: str) -> str:
        """What ``reach explain`` says of a task."""
        return await asyncio.to_thread(explained, list(self.rows), task_id)
