"""Taskiq with its aio-pika broker."""

import asyncio
from typing import Any

import uvloop
from taskiq.api import run_receiver_task
from taskiq_aio_pika import AioPikaBroker, Exchange, Queue

from reach_worker.bench.peers.two_hops import BODY, BURST, PREFETCH, TwoHops, begin


async def serve(job: TwoHops) -> None:
    """Run one role. Its four agents share a queue: it has one broker for each."""
    intake, agents = _broker(job, job.intake), _broker(job, f"{job.prefix}.agent-0")

    async def work(body: dict[str, Any]) -> None:  # noqa: ARG001 - Taskiq looks at the name
        job.tally.one()

    agent = agents.register_task(work, task_name="agent")

    async def forward(body: dict[str, Any]) -> None:
        await agent.kiq(body)

    route = intake.register_task(forward, task_name="route")
    if job.role == "agents":
        await run_receiver_task(agents, max_async_tasks=PREFETCH, run_startup=True)
        return
    await agents.startup()
    if job.role == "router":
        await run_receiver_task(intake, max_async_tasks=PREFETCH, run_startup=True)
        return
    await intake.startup()
    for start in range(0, job.tasks, BURST):
        burst = range(min(BURST, job.tasks - start))
        await asyncio.gather(*(route.kiq(dict(BODY)) for _ in burst))
    await intake.shutdown()
    await agents.shutdown()


def _broker(job: TwoHops, name: str) -> Any:
    queue = Queue(name=name, routing_key=name)
    return AioPikaBroker(job.url, qos=PREFETCH, exchange=Exchange(name=name), task_queues=[queue])


if __name__ == "__main__":
    uvloop.run(serve(begin()))
