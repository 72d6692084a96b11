"""Leases of long runs, as they come back to the routers: let go, parked again, or given up."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from reach_worker.core.dispatch import DOUBTS, LEASE, Dispatch
from reach_worker.core.envelope import number, text
from reach_worker.core.long_run import DOUBT_S, GiveUp, Park, Sight, after, lost, sight_of
from reach_worker.core.message import Delivery
from reach_worker.core.outcome import OutcomeClass
from reach_worker.core.presence import PresencePolicy
from reach_worker.services.effects import Step
from reach_worker.services.router.desk import Desk
from reach_worker.services.router.messages import lease_message
from reach_worker.services.router.settle import Settlement
from reach_worker.services.router.told import Told, found_out

log = logging.getLogger(__name__)

WHY: Final = {
    Sight.GONE: "its instance {instance} of {agent} died while it ran",
    Sight.UNKNOWN: "nobody has heard of the instance {instance} of {agent} that ran it",
    Sight.ENDED: "its instance {instance} of {agent} runs it no more, and no outcome came",
}


class LongRuns:
    """Any router judges any lease: all hear all heartbeats. What it gives up is for the owner to settle."""

    def __init__(self, desk: Desk, settlement: Settlement, presence: PresencePolicy) -> None:
        self._desk = desk
        self._settlement = settlement
        self._presence = presence

    async def came_back(self, leases: Sequence[tuple[Dispatch, Delivery]]) -> tuple[list[Step], list[Told]]:
        """What is to be done with the leases, and of which runs no outcome will come."""
        if not leases:
            return [], []
        over = await self._settlement.over([dispatch for dispatch, _ in leases])
        steps: list[Step] = []
        given_up: list[Told] = []
        for dispatch, delivery in leases:
            if dispatch.dispatch_id in self._desk.hands.settling:
                steps.append(self._park(delivery, Park(DOUBT_S, 0)))  # it may still be undone
            elif dispatch.dispatch_id in over:
                log.debug("lease of dispatch %s: %s", dispatch.dispatch_id, over[dispatch.dispatch_id])
                steps.append(Step([delivery]))
            else:
                found = self._judged(dispatch, delivery)
                if isinstance(found, Told):
                    given_up.append(found)
                else:
                    steps.append(found)
        return steps, given_up

    def _judged(self, dispatch: Dispatch, delivery: Delivery) -> Step | Told:
        agent = self._desk.fleet.agents.get(dispatch.agent_id)
        roster, instance_id = None if agent is None else agent.roster, _instance(delivery)
        now = self._desk.clock.monotonic()
        sight = sight_of(roster, instance_id, dispatch.dispatch_id, now, self._presence)
        match after(sight, number(delivery.headers, DOUBTS) or 0, self._presence):
            case Park() as park:
                return self._park(delivery, park)
            case GiveUp(crashed):
                error = WHY[sight].format(instance=instance_id, agent=dispatch.agent_id)
                log.warning("dispatch %s of a long task is given up: %s", dispatch.dispatch_id, error)
                if crashed:
                    dispatch = replace(dispatch, envelope=lost(dispatch.envelope))
                outcome = found_out(dispatch, OutcomeClass.UNAVAILABLE, error, started=True, crashed=crashed)
                return Told(dispatch, replace(outcome, instance_id=instance_id), delivery)

    def _park(self, delivery: Delivery, park: Park) -> Step:
        message = lease_message(self._desk.names, delivery, _instance(delivery), park.delay_s, park.doubts)
        return Step([delivery], send=[message])


def _instance(delivery: Delivery) -> str:
    return text(delivery.headers, LEASE) or ""
