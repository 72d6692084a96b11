"""What an outcome means for its agent: statistics and breaker."""

import logging
from typing import Final

from reach_worker.core.dispatch import Dispatch
from reach_worker.core.fleet import Agent
from reach_worker.core.outcome import RULES, BreakerEffect, Outcome, OutcomeClass, Success, cut
from reach_worker.core.recovery import MICROSECONDS, attempt_timeout_ms
from reach_worker.ports import BreakerMoved, Row
from reach_worker.services.router.desk import Desk

log = logging.getLogger(__name__)

SHORTEST_REST_S: Final = 1.0
"""A rate-limited agent that does not say for how long rests so long."""


class AgentJudge:
    """Counts outcomes for and against agents. ``moved``: agents whose breaker moved since somebody last looked."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.moved: set[str] = set()

    def judge(self, dispatch: Dispatch, outcome: Outcome) -> list[Row]:
        """Statistics and breaker, once per dispatch; a time-out that the caller's own deadline made is nobody's fault."""
        agent = self._desk.fleet.agents.get(dispatch.agent_id)
        if agent is None or not self._desk.hands.judge(dispatch.dispatch_id):
            return []
        rule = RULES[outcome.outcome]
        if outcome.outcome is OutcomeClass.TIMEOUT and self._cut_by_caller(dispatch, agent):
            agent.breaker.released(dispatch.dispatch_id)
            return []
        self._count(dispatch, outcome, rule.success)
        return self._move_breaker(agent, dispatch, outcome, rule.breaker)

    def _count(self, dispatch: Dispatch, outcome: Outcome, success: Success) -> None:
        if success is Success.NOTHING:
            return
        track = self._desk.fleet.record.touch(dispatch.agent_id, dispatch.envelope.capability)
        now_s = self._desk.clock.utc_us() / MICROSECONDS
        if success is Success.REJECTION:
            track.rejected(now_s)
        else:
            seconds = None if outcome.duration_ms is None else outcome.duration_ms / 1000
            track.ended(now_s, good=success is Success.COUNTS_FOR, seconds=seconds)

    def _move_breaker(
        self, agent: Agent, dispatch: Dispatch, outcome: Outcome, effect: BreakerEffect
    ) -> list[Row]:
        now, breaker = self._desk.clock.monotonic(), agent.breaker
        since = now - (self._desk.clock.utc_us() - dispatch.dispatched_at) / MICROSECONDS
        moved = False
        match effect:
            case BreakerEffect.CLEARS:
                moved = breaker.succeeded(dispatch.dispatch_id, now, since=since)
            case BreakerEffect.FAILURE:
                moved = breaker.failed(dispatch.dispatch_id, now, self._desk.clock.draw(), since=since)
            case BreakerEffect.RESTS:
                rest_s = max(SHORTEST_REST_S, (outcome.retry_after_ms or 0) / 1000)
                agent.rests_until = max(agent.rests_until, now + rest_s)
                breaker.released(dispatch.dispatch_id)
            case BreakerEffect.NOTHING:
                breaker.released(dispatch.dispatch_id)
        if not moved:
            return []
        self.moved.add(agent.agent_id)
        state = breaker.state.value
        log.warning("breaker of %s: %s after %s", agent.agent_id, state, outcome.outcome.value)
        reason = cut(f"{outcome.outcome.value}: {outcome.message}", 300)
        return [BreakerMoved(agent.agent_id, self._desk.router_id, state, self._desk.clock.utc_us(), reason)]

    def _cut_by_caller(self, dispatch: Dispatch, agent: Agent) -> bool:
        capability = agent.manifest.capability(dispatch.envelope.capability)
        track = self._desk.fleet.record.of(agent.agent_id, dispatch.envelope.capability)
        declared_ms = capability.timeout_ms if capability else None
        fair_ms = attempt_timeout_ms(declared_ms, track, self._desk.policies.timeouts, remaining_ms=None)
        return dispatch.envelope.deadline is not None and dispatch.timeout_ms < fair_ms
