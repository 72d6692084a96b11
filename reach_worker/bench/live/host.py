"""Several agents in one process, as the peers have theirs. Each has a worker and connections of its own."""

import asyncio
from collections.abc import Callable, Sequence

from reach_worker import wiring
from reach_worker.agent.agent import Agent
from reach_worker.agent.worker import Worker
from reach_worker.agent.worker_policy import WorkerPolicy
from reach_worker.bus import topology
from reach_worker.bus.rabbit import RabbitBus
from reach_worker.bus.topology import Topology
from reach_worker.clock import SystemClock
from reach_worker.core.announcement import instance_keys
from reach_worker.core.names import Names
from reach_worker.services.lifecycle import stop_on_signals
from reach_worker.settings import Settings

AT_ONCE = 20
"""So many connect at a time: hundreds at once would meet the broker's time limits."""


async def host(settings: Settings, agents: Sequence[Agent], up: Callable[[], None]) -> None:
    """Run them until a signal, then to the end of their drains. ``up`` is called once all of them consume."""
    clock = SystemClock()
    stop = asyncio.Event()
    turnstile = asyncio.Semaphore(AT_ONCE)
    waited_for = len(agents)

    def one_up() -> None:
        nonlocal waited_for
        waited_for -= 1
        if not waited_for:
            up()

    with stop_on_signals(stop):
        async with asyncio.TaskGroup() as group:
            for agent in agents:
                group.create_task(_work(settings, agent, clock, stop, turnstile, one_up))


async def _work(
    settings: Settings,
    agent: Agent,
    clock: SystemClock,
    stop: asyncio.Event,
    turnstile: asyncio.Semaphore,
    up: Callable[[], None],
) -> None:
    names = Names(settings.broker.prefix)
    manifest = agent.manifest
    bus = RabbitBus(
        wiring.bus_settings(settings, f"agent {manifest.id}"), clock, _own_queue(names, manifest.id)
    )
    bus.subscribe("work", names.agent(manifest.id), manifest.max_concurrency, wanted=False)
    bus.subscribe_mailbox("instance", [(names.events, key) for key in instance_keys(manifest.id)])
    policy = WorkerPolicy(
        settings.presence.heartbeat_s, settings.router.grace_s, settings.intake.max_body_bytes, settings.slots
    )
    worker = Worker(agent, clock.new_id()[-8:], names, policy, bus, clock)
    await turnstile.acquire()
    entered = True

    def now_up() -> None:
        nonlocal entered
        if entered:
            entered = False
            turnstile.release()
        up()

    async with bus.running(), asyncio.TaskGroup() as group:
        waiting = group.create_task(_hand_on(stop, worker))
        await worker.run(now_up)
        waiting.cancel()


async def _hand_on(stop: asyncio.Event, worker: Worker) -> None:
    await stop.wait()
    worker.stop_asked.set()


def _own_queue(names: Names, agent_id: str) -> Topology:
    """The bench has declared all the rest: hundreds of agents would declare it hundreds of times."""
    return Topology((), (topology.agent_queue(names, agent_id),), ())
