"""Celery: its solo pool, late acknowledgement, confirmed publishes."""

from collections.abc import Mapping
from typing import Any

from celery import Celery
from kombu import Queue

from reach_worker.bench.peers.two_hops import BODY, PREFETCH, begin


def main() -> None:
    """Run one role."""
    job = begin()
    app = Celery("two-hops", broker=job.url)
    app.conf.update(
        task_acks_late=True,
        worker_prefetch_multiplier=PREFETCH,
        task_ignore_result=True,
        broker_transport_options={"confirm_publish": True},
        broker_connection_retry_on_startup=True,
        task_default_queue=job.intake,
        task_queues=[Queue(name) for name in (job.intake, *job.agents)],
        worker_send_task_events=False,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
    )

    def work(_body: Mapping[str, Any]) -> None:
        job.tally.one()

    agent = app.task(name="agent")(work)

    def forward(body: Mapping[str, Any]) -> None:
        agent.apply_async((body,), queue=job.next_agent())

    route = app.task(name="route")(forward)
    if job.role == "publish":
        for _ in range(job.tasks):
            route.apply_async((dict(BODY),), queue=job.intake)
        return
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "ERROR"]
    app.worker_main(["worker", "-Q", ",".join(job.mine), "-P", "solo", "-n", f"{job.role}@%h", *quiet])


if __name__ == "__main__":
    main()
