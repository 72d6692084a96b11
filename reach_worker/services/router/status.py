"""How the router is, told to whoever asks on the events exchange. While nobody asks this does nothing."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Final

from reach_worker.core.breaker import BreakerState, Refuses
from reach_worker.core.envelope import Envelope
from reach_worker.core.fleet import Agent
from reach_worker.core.message import Delivery, Message
from reach_worker.core.presence import PresenceState
from reach_worker.core.recovery import MICROSECONDS
from reach_worker.core.routing import Wait, plan, why_none_is_free
from reach_worker.core.status import AgentNow, Health, Report, Waits, may_be_told, report_body
from reach_worker.services.fleet_watch import FleetWatch
from reach_worker.services.router.desk import Desk
from reach_worker.services.router.hands import Waiting
from reach_worker.services.router.lanes import Lanes
from reach_worker.services.router.sources import Sources

log = logging.getLogger(__name__)

AT_ONCE: Final = 10
"""So many are answered in one turn; whoever asks more often asks in vain."""


class Status:
    """Reports. ``health``: the store's figures now, as plain data."""

    def __init__(
        self, desk: Desk, watch: FleetWatch, lanes: Lanes, sources: Sources, health: Callable[[], Health]
    ) -> None:
        self._desk = desk
        self._watch = watch
        self._lanes = lanes
        self._sources = sources
        self._health = health
        self._since_us = desk.clock.utc_us()
        self._askers: dict[str, str | None] = {}

    def hear(self, questions: Sequence[Delivery]) -> None:
        """Remember who asks, until the end of this turn."""
        for question in questions:
            asker = question.reply_to
            if asker is None or not may_be_told(asker, self._desk.names):
                log.debug("a question for the status names no private queue: %.80r", asker)
            elif len(self._askers) < AT_ONCE:
                self._askers[asker] = question.correlation_id

    def answers(self) -> list[Message]:
        """The report, for each who asked in this turn. One who has gone meanwhile is no trouble."""
        if not self._askers:
            return []
        body = report_body(self.report())
        asked, self._askers = self._askers, {}
        return [
            Message(asker, body, {}, correlation_id=mark, persistent=False, mandatory=False)
            for asker, mark in asked.items()
        ]

    def report(self) -> Report:
        """How it is now."""
        desk, fleet = self._desk, self._desk.fleet
        return Report(
            router=desk.router_id,
            since_us=self._since_us,
            unready=self._sources.unready(),
            session=self._watch.sessions,
            session_s=self._watch.session_s(),
            waiting=len(desk.hands.waiting),
            window=desk.policies.intake.held_at_most(),
            in_flight=len(fleet.leases),
            in_flight_limit=fleet.slot_policy.in_flight,
            waits=tuple(self._waits()),
            agents=tuple(self._agents()),
            counts=asdict(desk.counts),
            store=dict(self._health()),
        )

    # -- what waits

    def _waits(self) -> list[Waits]:
        """The longest first; what waits only in a lane, by how long that has not been empty."""
        oldest: dict[str, tuple[float, Waiting]] = {}
        for waiting in self._desk.hands.waiting.values():
            waits_s = self._waits_s(waiting)
            if waiting.capability not in oldest or waits_s > oldest[waiting.capability][0]:
                oldest[waiting.capability] = waits_s, waiting
        in_lanes = {capability for capability, depth in self._lanes.depths.items() if depth > 0}
        found = [self._of_capability(each, oldest.get(each)) for each in sorted({*oldest, *in_lanes})]
        return sorted(found, key=lambda each: -max(each.oldest_s or 0.0, each.lane_s or 0.0))

    def _of_capability(self, capability: str, oldest: tuple[float, Waiting] | None) -> Waits:
        now = self._desk.clock.monotonic()
        lane, since = self._lanes.depths.get(capability, 0), self._lanes.since.get(capability)
        if oldest is None:
            reason = why_none_is_free(capability, self._desk.fleet, now) or "its agents take from the lane"
        else:
            reason = self._why(oldest[1], now)
        return Waits(
            capability=capability,
            count=self._desk.hands.waiting_for[capability],
            oldest_s=None if oldest is None else round(oldest[0], 3),
            task="" if oldest is None else oldest[1].ask.task_id,
            reason=reason,
            lane=lane,
            lane_s=None if since is None or not lane else round(now - since, 3),
        )

    def _waits_s(self, waiting: Waiting) -> float:
        """Since it could have been sent, wherever it was meanwhile; at least as long as it is in the window."""
        in_window_s = self._desk.clock.monotonic() - waiting.since
        ready_at = _ready_at(waiting.admitted.envelope)
        return max(in_window_s, (self._desk.clock.utc_us() - ready_at) / MICROSECONDS)

    def _why(self, waiting: Waiting, now: float) -> str:
        """The reason as of now: while nobody is free, what waits is not planned again, and keeps the one it had."""
        choice = plan(waiting.ask, self._desk.fleet, self._desk.policies.routing, now).choice
        return choice.reason if isinstance(choice, Wait) else waiting.reason

    # -- who works

    def _agents(self) -> list[AgentNow]:
        """Those that have work or are not well; the worst first."""
        now = self._desk.clock.monotonic()
        found = [self._agent(agent, now) for agent in self._desk.fleet.agents.values()]
        worth_it = [each for each in found if each.in_flight or not _well(each)]
        return sorted(worth_it, key=lambda each: (_well(each), -each.in_flight, each.agent))

    def _agent(self, agent: Agent, now: float) -> AgentNow:
        fleet, breaker = self._desk.fleet, agent.breaker
        answer = None if breaker.state is BreakerState.CLOSED else breaker.admits(now)
        rests_s = agent.rests_until - now
        return AgentNow(
            agent=agent.agent_id,
            in_flight=fleet.leases.held(agent.agent_id),
            slots=breaker.slots(fleet.slots(agent)),
            presence=agent.roster.state().value,
            breaker=breaker.shown,
            breaker_s=round(answer.seconds, 3) if isinstance(answer, Refuses) else None,
            held_to=agent.adapted.limit,
            rests_s=round(rests_s, 3) if rests_s > 0 else None,
        )


def _ready_at(envelope: Envelope) -> int:
    """UTC microseconds from which on it could have been sent."""
    return max([envelope.first_seen, *(attempt.ended_at for attempt in envelope.attempts)])


def _well(agent: AgentNow) -> bool:
    return (
        agent.presence == PresenceState.ACTIVE.value
        and agent.breaker == BreakerState.CLOSED.value
        and agent.held_to is None
        and agent.rests_s is None
    )
