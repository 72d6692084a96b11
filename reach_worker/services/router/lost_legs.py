"""Legs of which no word can come any more: their message is gone, and whoever sent them has stopped since.

A queue that is deleted takes with it what waits in it. A task that is lost so is begun again at its backstop by the
router that sent it and holds its body; the next process of that router does not. The watch of a group has the body of
all its legs, so here the task goes on all the same: the leg has timed out, and its group decides.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from reach_worker.core.duplicates import KnownTask, TaskState
from reach_worker.core.group import Leg, leg_envelope
from reach_worker.core.outcome import DeadLetterReason, OutcomeClass
from reach_worker.core.recovery import MICROSECONDS
from reach_worker.ports import KnownDispatch, Row, Sent, Standing, Store
from reach_worker.services.effects import Step
from reach_worker.services.router.desk import Desk
from reach_worker.services.router.hands import InFlight
from reach_worker.services.router.led import Group
from reach_worker.services.router.longest_out import longest_out_us
from reach_worker.services.router.told import attempt_of, found_out, outcome_row

log = logging.getLogger(__name__)


class LostLegs:
    """Gives legs up, for the router that leads their group."""

    def __init__(self, desk: Desk, store: Store) -> None:
        self._desk = desk
        self._store = store

    async def given_up(self, groups: Sequence[Group], known: Mapping[str, KnownTask]) -> list[Step]:
        """The ends of those legs that have been out for longer than any router waits for an agent."""
        overdue = {
            there.dispatch_id: (group, leg)
            for group in groups
            for leg in group.round.legs
            if (there := known.get(leg.task_id)) is not None
            and there.dispatch_id is not None
            and self._may_be_lost(group, leg, there)
        }
        if not overdue:
            return []
        steps = []
        for dispatch_id, dispatch in (await self._store.known_dispatches(list(overdue))).items():
            group, leg = overdue[dispatch_id]
            out_for_long = not dispatch.settled and self._out_for_long(dispatch.capability, dispatch.at)
            if out_for_long and self._listened_for_long(group, dispatch):
                steps.append(self._end(group, leg, dispatch))
        return steps

    def _may_be_lost(self, group: Group, leg: Leg, there: KnownTask) -> bool:
        hands = self._desk.hands
        places = (hands.by_task, hands.waiting, hands.recalled, hands.closing)
        held = any(leg.task_id in place for place in places) or there.dispatch_id in hands.settling
        under_way = there.state is TaskState.UNDER_WAY and leg.task_id not in group.ends
        return under_way and not held and self._out_for_long(group.envelope.capability, there.dispatched_at)

    def _out_for_long(self, capability_id: str, since_us: int) -> bool:
        return self._desk.clock.utc_us() > since_us + longest_out_us(self._desk, capability_id)

    def _listened_for_long(self, group: Group, dispatch: KnownDispatch) -> bool:
        """For as long as it may be out, in this session: before, its word may wait for us, or for whoever sent it."""
        desk, now = self._desk, self._desk.clock.monotonic()
        session, since = group.silent.get(dispatch.dispatch_id, (desk.session, now))
        if session != desk.session:
            session, since = desk.session, now
        group.silent[dispatch.dispatch_id] = session, since
        return (now - since) * MICROSECONDS >= longest_out_us(desk, dispatch.capability)

    def _end(self, group: Group, leg: Leg, known: KnownDispatch) -> Step:
        """As if its router had found out that nothing is heard of it; whoever turns up after all is too late."""
        desk, now_us = self._desk, self._desk.clock.utc_us()
        envelope = leg_envelope(group.envelope, leg, group.round, race=group.task.mode == "race")
        dispatch = replace(InFlight.recovered(known).dispatch, envelope=envelope)
        error = f"no word from {known.agent_id} for {(now_us - known.at) / MICROSECONDS:.0f} s"
        log.warning("leg %s is given up: %s", leg.task_id, error)
        outcome = found_out(dispatch, OutcomeClass.TIMEOUT, error, started=True)
        tried = envelope.with_attempt(replace(attempt_of(dispatch, outcome, now_us), number=known.attempt))
        unknown = envelope.side_effects or self._side_effects(known.capability)
        reason = DeadLetterReason.OUTCOME_UNKNOWN if unknown else DeadLetterReason.ATTEMPTS_EXHAUSTED
        row = outcome_row(dispatch, outcome, Standing.CURRENT, now_us)
        rows: list[Row] = [replace(row, attempt=known.attempt, capability=known.capability)]
        step = desk.bury(tried, group.body, reason, error, delivery=None, rows=rows, by=known.dispatch_id)
        step.undo = _nothing
        return step

    def _side_effects(self, capability_id: str) -> bool:
        """Of what it was handed on to, perhaps."""
        return any(offer.capability.side_effects for offer in self._desk.fleet.capable(capability_id))


def _nothing(_worst: Sent) -> None:
    """The next look finds the same."""
