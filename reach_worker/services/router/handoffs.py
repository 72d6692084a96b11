"""Tasks that agents hand on: what the next agent gets."""

from dataclasses import replace

from reach_worker.core.dispatch import Dispatch
from reach_worker.core.envelope import Envelope
from reach_worker.core.handoff import (
    BadHandoff,
    Handoff,
    HandOn,
    Stretch,
    hand_on,
    handoff_from,
    next_stretch,
    split,
)
from reach_worker.core.message import Delivery
from reach_worker.core.outcome import Attempt, Outcome, OutcomeClass
from reach_worker.core.recovery import Bury, Step, TryAgain, next_step
from reach_worker.services.router.desk import Desk
from reach_worker.services.router.told import Told, attempt_of


class Handoffs:
    """Reads handoffs, by what this router knows of the fleet."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def read(self, dispatch: Dispatch, outcome: Outcome, delivery: Delivery) -> Told:
        """What an agent says of a handoff. One that cannot be followed is its failure: another agent may do better."""
        said, own = split(delivery.headers, delivery.body)
        stretch = self._stretch(handoff_from(said), own, dispatch)
        if isinstance(stretch, BadHandoff):
            failed = replace(outcome, outcome=OutcomeClass.FAILED, message=stretch.why)
            return Told(dispatch, failed, delivery)
        return Told(dispatch, replace(outcome, message=stretch.words), delivery, stretch)

    def _stretch(self, handoff: Handoff | BadHandoff, own: bytes, dispatch: Dispatch) -> Stretch | BadHandoff:
        if isinstance(handoff, BadHandoff):
            return handoff
        limit = self._desk.policies.intake.max_body_bytes
        return next_stretch(
            handoff,
            own,
            dispatch.envelope,
            agent_id=dispatch.agent_id,
            fleet=self._desk.fleet,
            max_bytes=limit,
        )

    def hand_on(self, told: Told, attempt: Attempt) -> HandOn | Bury | None:
        """What follows where a task was handed on; ``None`` where it was not."""
        if told.stretch is None or attempt.outcome is not OutcomeClass.HANDOFF:
            return None
        policies = self._desk.policies
        return hand_on(
            told.dispatch.envelope, attempt, told.stretch, limits=policies.handoff, retry=policies.retry
        )

    def following(self, told: Told) -> tuple[Envelope, bytes]:
        """The task as it goes on after this outcome, if that was acted on: what was sent then, and may be again."""
        now_us, policies = self._desk.clock.utc_us(), self._desk.policies
        step: HandOn | Step | None
        if told.stretch is None:
            attempt = attempt_of(told.dispatch, told.outcome, now_us)
            step = next_step(told.dispatch.envelope, attempt, told.outcome, policy=policies.retry, draw=0.0)
        else:
            handed = replace(told.outcome, outcome=OutcomeClass.HANDOFF)
            step = self.hand_on(told, attempt_of(told.dispatch, handed, now_us))
        match step:
            case HandOn(envelope, stretch):
                return envelope, stretch.body
            case TryAgain(envelope, _):
                return envelope, told.body
        return told.dispatch.envelope, told.body
