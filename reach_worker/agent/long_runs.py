"""Runs that last longer than the broker leaves a delivery unacknowledged: leases stand in for their deliveries."""

import logging
from collections.abc import Iterable

from reach_worker.agent.in_hand import Run
from reach_worker.agent.outbox import Outbox
from reach_worker.core.backoff import rung_ms
from reach_worker.core.dispatch import lease_headers
from reach_worker.core.long_run import LEASE_S
from reach_worker.core.message import Message
from reach_worker.core.names import Names
from reach_worker.ports import Bus, Clock, Sent

log = logging.getLogger(__name__)


class LongRuns:
    """Parks a copy of what has run for long, confirmed, and acknowledges the original. See :mod:`core.long_run`."""

    def __init__(self, bus: Bus, clock: Clock, names: Names, instance_id: str, limit_s: float) -> None:
        self._bus = bus
        self._clock = clock
        self._names = names
        self._instance_id = instance_id
        self.limit_s = limit_s
        self._ended: set[str] = set()

    def due(self, runs: Iterable[Run]) -> list[Run]:
        """Those whose delivery is not to be held any longer."""
        before = self._clock.monotonic() - self.limit_s
        return [run for run in runs if run.taken_at <= before and not run.leased]

    async def keep(self, runs: Iterable[Run]) -> bool:
        """See to it that none of these is taken away while it runs; returns whether any was parked now.

        What the broker does not take now is offered again the next time.
        """
        due = self.due(runs)
        if not due:
            return False
        results = await self._bus.publish([self._lease(run) for run in due])
        parked = [run for run, result in zip(due, results, strict=True) if result is Sent.CONFIRMED]
        for run in parked:
            run.leased = True
            log.info("task %s runs for long: a lease is parked", run.dispatch.envelope.task_id)
        await self._bus.ack([run.delivery for run in parked])
        return bool(parked)

    def ended(self, run: Run) -> None:
        """A run is over; while its outcome is not confirmed it counts as running all the same."""
        if run.leased:
            self._ended.add(run.dispatch.dispatch_id)

    def without_word(self, outbox: Outbox) -> tuple[str, ...]:
        """Runs with a lease that are over, of whose outcome the broker does not know yet."""
        self._ended = {dispatch_id for dispatch_id in self._ended if outbox.holds(dispatch_id)}
        return tuple(self._ended)

    def _lease(self, run: Run) -> Message:
        headers = lease_headers(run.dispatch.headers(), self._instance_id)
        rung = self._names.retry(rung_ms(LEASE_S))
        return Message(rung, run.delivery.body, headers, content_type=run.delivery.content_type)
