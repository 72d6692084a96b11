"""FastStream: its own loop and subscribers, confirmed publishes."""

import asyncio
from collections.abc import Mapping
from typing import Any

import uvloop
from faststream import AckPolicy, FastStream
from faststream.rabbit import Channel, RabbitBroker, RabbitQueue

from reach_worker.bench.peers.two_hops import BODY, BURST, PREFETCH, TwoHops, begin


async def serve(job: TwoHops) -> None:
    """Run one role."""
    broker = RabbitBroker(job.url, default_channel=Channel(prefetch_count=PREFETCH), logger=None)

    async def forward(body: dict[str, Any]) -> None:
        await broker.publish(body, queue=job.next_agent(), persist=True)

    async def work(body: dict[str, Any]) -> None:  # noqa: ARG001 - FastStream looks at the name
        job.tally.one()

    if job.role == "publish":
        await _publish(job, broker, BODY)
        return
    for name in job.mine:
        subscriber = broker.subscriber(RabbitQueue(name, durable=True), ack_policy=AckPolicy.ACK)
        subscriber(forward if job.role == "router" else work)
    await FastStream(broker, logger=None).run()


async def _publish(job: TwoHops, broker: Any, body: Mapping[str, Any]) -> None:
    await broker.connect()
    for name in (job.intake, *job.agents):
        await broker.declare_queue(RabbitQueue(name, durable=True))
    for start in range(0, job.tasks, BURST):
        burst = range(min(BURST, job.tasks - start))
        await asyncio.gather(*(broker.publish(body, queue=job.intake, persist=True) for _ in burst))
    await broker.stop()


if __name__ == "__main__":
    uvloop.run(serve(begin()))
