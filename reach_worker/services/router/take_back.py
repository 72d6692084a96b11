"""Dispatches that come back without an outcome: from the broker, or taken back from an agent that will not run them.

Leases of long runs are among them, which are no sign that anything is wrong.
"""

import logging
from collections.abc import Sequence
from typing import Final

from reach_worker.core.dispatch import LEASE, Dispatch, dispatch_from
from reach_worker.core.envelope import BadHeaders
from reach_worker.core.fleet import Agent
from reach_worker.core.foreign import is_foreign
from reach_worker.core.message import Delivery
from reach_worker.core.presence import PresencePolicy, PresenceState
from reach_worker.ports import ConsumingBus, Sent
from reach_worker.services.effects import Step
from reach_worker.services.router.admit import Admission
from reach_worker.services.router.desk import Desk
from reach_worker.services.router.long_runs import LongRuns
from reach_worker.services.router.settle import Settlement
from reach_worker.services.router.standby import Standby
from reach_worker.services.router.told import Told, came_back, forward, left_by_foreign

log = logging.getLogger(__name__)

TAKE_BACK: Final = 200


class TakeBack:
    """Only its owner binds a dispatch again. ``wanted``: agents whose queues are to be emptied."""

    def __init__(
        self,
        desk: Desk,
        bus: ConsumingBus,
        admission: Admission,
        settlement: Settlement,
        standby: Standby,
        presence: PresencePolicy,
    ) -> None:
        self._desk = desk
        self._bus = bus
        self._admission = admission
        self._settlement = settlement
        self._standby = standby
        self._long_runs = LongRuns(desk, settlement, presence)
        self.wanted: set[str] = set()
        self._unsent: list[Delivery] = []

    async def from_agents(self) -> list[Step]:
        """Empty the queues of agents that will not run what waits there."""
        self._offer_again()
        for agent in self._desk.fleet.agents.values():
            if self._desk.fleet.leases.held(agent.agent_id) and self._unable(agent):
                self.wanted.add(agent.agent_id)
        steps: list[Step] = []
        for agent_id in sorted(self.wanted):
            steps += await self._from_agent(agent_id)
        self.wanted.clear()
        return steps

    async def _from_agent(self, agent_id: str) -> list[Step]:
        """The queued backlog of an agent that died, stalled or is broken is routed again, by its owner."""
        agent = self._desk.fleet.agents.get(agent_id)
        if agent is None or not self._unable(agent):
            return []
        got, _ = await self._bus.get(self._desk.names.agent(agent_id), TAKE_BACK)
        if got:
            log.info("taken back from %s: %d of its dispatches", agent_id, len(got))
        return await self.came_back(got)

    async def came_back(self, deliveries: Sequence[Delivery]) -> list[Step]:
        """Dispatches without an outcome: ours are settled, another router's go to it."""
        steps: list[Step] = []
        own: list[Told] = []
        leases: list[tuple[Dispatch, Delivery]] = []
        for delivery in deliveries:
            dispatch = dispatch_from(delivery.headers)
            if isinstance(dispatch, BadHeaders):
                steps += await self._admission.returned([delivery])
            elif LEASE in delivery.headers:
                leases.append((dispatch, delivery))
            else:
                told = self._came_back(dispatch, delivery)
                if self._stands_in_for(dispatch.owner, ours=True):
                    own.append(told)
                else:
                    steps.append(self._forwarded(told))
        parked, given_up = await self._long_runs.came_back(leases)
        for told in given_up:
            if self._stands_in_for(told.dispatch.owner, ours=False):
                own.append(told)
            else:
                steps.append(self._forwarded(told))
        return [*steps, *parked, *await self._settlement.conclude(own)]

    def _stands_in_for(self, owner: str, *, ours: bool) -> bool:
        """It is for this router to settle now. ``ours``: its own too, without the way round by its queue.

        That way is for what may have an outcome: if it has, that is in the queue already, and is read first.
        """
        return owner in self._standby.orphans or (ours and owner == self._desk.router_id)

    def _unable(self, agent: Agent) -> bool:
        """Nobody will take what waits in its queue. Half-open is not open: what waits there is the probe."""
        return agent.roster.state() in (PresenceState.DEAD, PresenceState.STALLED) or agent.breaker.shut

    def _came_back(self, dispatch: Dispatch, delivery: Delivery) -> Told:
        """By what its instance said: in a heartbeat, or before it began."""
        flight = self._desk.hands.in_flight.get(dispatch.dispatch_id)
        agent = self._desk.fleet.agents.get(dispatch.agent_id)
        if agent is not None and is_foreign(agent.manifest):
            return left_by_foreign(dispatch, delivery)
        ran = agent is not None and dispatch.dispatch_id in agent.roster.last_running()
        return came_back(dispatch, delivery, ran=ran, said_so=flight is not None and flight.started)

    def _forwarded(self, told: Told) -> Step:
        owner = told.dispatch.owner
        step = forward(told, self._desk.names.outcomes(owner))

        def unsent(worst: Sent) -> None:
            if told.delivery is None:
                return
            if worst is Sent.UNROUTABLE and owner != self._desk.router_id:
                self._standby.orphans.add(owner)
                self._bus.inbox.put("returns", told.delivery)
            else:
                self._unsent.append(told.delivery)

        step.undo = unsent
        return step

    def _offer_again(self) -> None:
        """What the broker did not take for its owner is handled as if it had just come back."""
        unsent, self._unsent = self._unsent, []
        for delivery in unsent:
            if self._bus.current(delivery):
                self._bus.inbox.put("returns", delivery)
