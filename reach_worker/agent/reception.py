"""Putting a worker on a bus: what it consumes, what it hears, and the worker itself."""

from reach_worker.agent.agent import Agent
from reach_worker.agent.worker import Worker
from reach_worker.agent.worker_policy import WorkerPolicy
from reach_worker.core.announcement import instance_keys
from reach_worker.core.names import Names
from reach_worker.ports import Clock, SubscribingBus


def worker_on(
    bus: SubscribingBus, agent: Agent, instance_id: str, names: Names, policy: WorkerPolicy, clock: Clock
) -> Worker:
    """A worker on a bus that is not running yet."""
    worker = Worker(agent, instance_id, names, policy, bus, clock)
    agent_id = worker.manifest.id
    bus.subscribe("work", names.agent(agent_id), worker.manifest.max_concurrency, wanted=False)
    bus.subscribe_mailbox("instance", [(names.events, key) for key in instance_keys(agent_id)])
    return worker
