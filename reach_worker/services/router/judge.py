"""What an outcome means for its agent: statistics and breaker. Other routers are told of it, and tell us of theirs."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from reach_worker.core.adaptive_rate import KNOWN
from reach_worker.core.announcement import Unreadable
from reach_worker.core.breaker import BreakerState
from reach_worker.core.dispatch import Dispatch
from reach_worker.core.fleet import Agent
from reach_worker.core.hearsay import (
    News,
    NotWanted,
    ProbeSent,
    Settled,
    hearsay_bodies,
    hearsay_from,
    hearsay_key,
)
from reach_worker.core.manifest import Capability
from reach_worker.core.message import Delivery, Message
from reach_worker.core.open_share import room_by_rate
from reach_worker.core.outcome import RULES, BreakerEffect, Outcome, OutcomeClass, Success, cut
from reach_worker.core.recovery import MICROSECONDS, attempt_timeout_ms
from reach_worker.ports import BreakerMoved, Row
from reach_worker.services.effects import Step
from reach_worker.services.router.desk import Desk, Moment

log = logging.getLogger(__name__)

SHORTEST_REST_S: Final = 1.0
"""A rate-limited agent that does not say for how long rests so long."""
GIVE_WAY_S: Final = 1.0
"""Routers whose breakers open at the same moment send their probes so far apart that each hears of the one before."""


class AgentJudge:
    """Counts outcomes for and against agents. ``moved``: agents whose breaker moved since somebody last looked."""

    def __init__(self, desk: Desk, not_wanted: Callable[[str], None] = lambda _task_id: None) -> None:
        self._desk = desk
        self._not_wanted = not_wanted
        self.moved: set[str] = set()

    def judge(self, dispatch: Dispatch, outcome: Outcome, at: Moment) -> list[Row]:
        """Statistics and breaker, once per dispatch; a time-out that the caller's own deadline made is nobody's fault."""
        agent = self._desk.fleet.agents.get(dispatch.agent_id)
        if agent is None or not self._desk.hands.judge(dispatch.dispatch_id):
            return []
        if outcome.outcome is not OutcomeClass.SUCCEEDED and self._is_cancelled(dispatch, at):
            outcome = replace(outcome, outcome=OutcomeClass.RELEASED)
        settled = self._settled(dispatch, outcome, agent, at)
        self._desk.tell(settled)
        if not self._count(agent, settled, at):
            return []
        reason = cut(f"{outcome.outcome.value}: {outcome.message}", 300)
        return [BreakerMoved(agent.agent_id, self._desk.router_id, agent.breaker.shown, at.utc_us, reason)]

    def _is_cancelled(self, dispatch: Dispatch, at: Moment) -> bool:
        """It was told to stop: however it did so, that is no failure of its own."""
        return self._desk.hands.unwanted(dispatch.envelope, at.now) is not None

    # -- other routers

    def hear(self, deliveries: Sequence[Delivery]) -> None:
        """What other routers told: it counts here too, and is theirs to record and to act on."""
        at = self._desk.moment()
        for delivery in deliveries:
            told = hearsay_from(delivery.body)
            if isinstance(told, Unreadable):
                log.warning("what another router told cannot be read: %s", told.error)
            elif told.router_id != self._desk.router_id:
                for news in told.news:
                    self._heard(news, at)

    def tell(self) -> list[Step]:
        """What the other routers are to know of this turn."""
        desk, news = self._desk, self._desk.to_tell
        key = hearsay_key(desk.router_id)
        messages = [
            Message(key, body, {}, desk.names.events, persistent=False, mandatory=False)
            for body in hearsay_bodies(desk.router_id, news)
        ]
        news.clear()
        return [Step(send=messages)] if messages else []

    def _heard(self, news: News, at: Moment) -> None:
        if isinstance(news, NotWanted):
            self._not_wanted(news.task_id)
            return
        agent = self._desk.fleet.agents.get(news.agent_id)
        if agent is None:
            return
        match news:
            case ProbeSent(dispatch_id):
                if dispatch_id not in self._desk.hands.judged:
                    agent.breaker.sent_elsewhere(dispatch_id, at.now)
            case Settled(dispatch_id) if self._desk.hands.judge(dispatch_id):
                self._count(agent, news, at)
            case Settled():
                pass

    # -- inside

    def _settled(self, dispatch: Dispatch, outcome: Outcome, agent: Agent, at: Moment) -> Settled:
        kind = outcome.outcome
        if kind is OutcomeClass.TIMEOUT and self._cut_by_caller(dispatch, agent):
            kind = OutcomeClass.RELEASED
        return Settled(
            dispatch.dispatch_id,
            agent.agent_id,
            dispatch.envelope.capability,
            kind,
            (at.utc_us - dispatch.dispatched_at) / MICROSECONDS,
            outcome.duration_ms,
            outcome.retry_after_ms,
        )

    def _count(self, agent: Agent, settled: Settled, at: Moment) -> bool:
        """Take it into the agent's record and breaker; returns whether the breaker moved."""
        rule = RULES[settled.outcome]
        capability = agent.manifest.capability(settled.capability)
        if capability is not None:
            self._adapt(agent, capability, settled, at.now)
            if rule.success is not Success.NOTHING:
                self._record(settled, rule.success, at)
        if not self._move_breaker(agent, settled, rule.breaker, at.now):
            return False
        self.moved.add(agent.agent_id)
        told = agent.breaker.told(at.now)
        log.warning(
            "breaker of %s: %s, after %s in %s", agent.agent_id, told, settled.outcome, settled.capability
        )
        if agent.breaker.state is BreakerState.OPEN:
            agent.breaker.give_way(self._desk.fleet.rank * GIVE_WAY_S)
        return True

    def _adapt(self, agent: Agent, capability: Capability, settled: Settled, now: float) -> None:
        """Hold back an agent that becomes slow under its load, and let it go again."""
        if not self._desk.fleet.slot_policy.adaptive_rate:
            return
        if settled.outcome is OutcomeClass.SUCCEEDED and settled.duration_ms is not None:
            seconds = settled.duration_ms / 1000
        elif settled.outcome is OutcomeClass.TIMEOUT:
            seconds = settled.age_s
        else:
            return
        track = self._desk.fleet.record.of(settled.agent_id, settled.capability)
        usual_s = track.service.p50 if track is not None and len(track.service) >= KNOWN else None
        before = agent.adapted.limit
        if agent.adapted.ended(seconds, usual_s, capability.declared_latency_ms / 1000, now):
            self._say_adapted(agent, before)

    def _say_adapted(self, agent: Agent, before: float | None) -> None:
        limit = agent.adapted.limit
        if limit is None:
            log.info("%s is well again: its rate is free", agent.agent_id)
        elif before is None:
            log.warning("%s takes twice its usual time: held to %.3g tasks per second", agent.agent_id, limit)

    def _record(self, settled: Settled, success: Success, at: Moment) -> None:
        track = self._desk.fleet.record.touch(settled.agent_id, settled.capability)
        now_s = at.utc_us / MICROSECONDS
        if success is Success.REJECTION:
            track.rejected(now_s)
        else:
            whole = settled.outcome is not OutcomeClass.HANDOFF and settled.duration_ms is not None
            seconds = (settled.duration_ms or 0.0) / 1000 if whole else None
            track.ended(now_s, good=success is Success.COUNTS_FOR, seconds=seconds)

    def _move_breaker(self, agent: Agent, settled: Settled, effect: BreakerEffect, now: float) -> bool:
        breaker, dispatch_id = agent.breaker, settled.dispatch_id
        since = now - settled.age_s
        match effect:
            case BreakerEffect.CLEARS:
                return breaker.succeeded(dispatch_id, now, since=since)
            case BreakerEffect.FAILURE:
                return self._failed(agent, dispatch_id, now, since)
            case BreakerEffect.RESTS:
                rest_s = max(SHORTEST_REST_S, (settled.retry_after_ms or 0) / 1000)
                agent.rests_until = max(agent.rests_until, now + rest_s)
                breaker.released(dispatch_id)
            case BreakerEffect.NOTHING:
                breaker.released(dispatch_id)
        return False

    def _failed(self, agent: Agent, dispatch_id: str, now: float, since: float) -> bool:
        breaker, was_held_back = agent.breaker, agent.breaker.held_back
        room = room_by_rate(self._desk.fleet, agent)
        moved = breaker.failed(dispatch_id, now, self._desk.clock.draw(), since=since, room_by_rate=room)
        if breaker.held_back and not was_held_back:
            log.warning(
                "%s succeeds too rarely, and goes on: as many as may be of its capability's agents are open by rate",
                agent.agent_id,
            )
        return moved

    def _cut_by_caller(self, dispatch: Dispatch, agent: Agent) -> bool:
        capability = agent.manifest.capability(dispatch.envelope.capability)
        track = self._desk.fleet.record.of(agent.agent_id, dispatch.envelope.capability)
        declared_ms = capability.timeout_ms if capability else None
        policy, tried = self._desk.policies.timeouts, dispatch.envelope.stretch
        fair_ms = attempt_timeout_ms(declared_ms, track, policy, remaining_ms=None, tried=tried)
        return dispatch.envelope.deadline is not None and dispatch.timeout_ms < fair_ms
