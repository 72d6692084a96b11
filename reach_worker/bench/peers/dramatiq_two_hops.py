"""Dramatiq: eight threads, confirmed publishes."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker

from reach_worker.bench.peers.two_hops import BODY, THREADS, TwoHops, begin

Work = Callable[[Mapping[str, Any]], None]


def main() -> None:
    """Run one role."""
    job = begin()
    broker = RabbitmqBroker(url=job.url, confirm_delivery=True)
    dramatiq.set_broker(broker)
    agents = {name: _actor(_counting(job), name) for name in job.agents}

    def forward(body: Mapping[str, Any]) -> None:
        agents[job.next_agent()].send(body)

    route = _actor(forward, job.intake)
    if job.role == "publish":
        for _ in range(job.tasks):
            route.send(dict(BODY))
        return
    dramatiq.Worker(broker, queues=set(job.mine), worker_threads=THREADS).start()
    threading.Event().wait()


def _actor(work: Work, queue: str) -> Any:
    return dramatiq.actor(work, queue_name=queue, actor_name=queue)


def _counting(job: TwoHops) -> Work:
    def work(_body: Mapping[str, Any]) -> None:
        job.tally.one()

    return work


if __name__ == "__main__":
    main()
