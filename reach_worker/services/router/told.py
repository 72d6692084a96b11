"""Outcomes as they reach the router: told by an agent, or found out because a dispatch came back without one."""

from dataclasses import replace

from reach_worker.core.dispatch import Dispatch, outcome_headers
from reach_worker.core.handoff import Stretch, split
from reach_worker.core.message import Delivery, Message
from reach_worker.core.outcome import Attempt, Outcome, OutcomeClass, cut
from reach_worker.core.value import value
from reach_worker.ports import OutcomeSeen, Standing
from reach_worker.services.effects import Step


@value(frozen=True, slots=True)
class Told:
    """An outcome and the message that brought it (``None``: the router found out by itself).

    ``stretch``: what comes next, where the task was handed on.
    """

    dispatch: Dispatch
    outcome: Outcome
    delivery: Delivery | None
    stretch: Stretch | None = None

    @property
    def body(self) -> bytes:
        """The task's own body, in every outcome but a success."""
        return b"" if self.delivery is None else split(self.delivery.headers, self.delivery.body)[1]


def found_out(
    dispatch: Dispatch, kind: OutcomeClass, message: str, *, started: bool = False, crashed: bool = False
) -> Outcome:
    """An outcome that the router found out by itself."""
    return Outcome(
        dispatch.dispatch_id,
        dispatch.envelope.task_id,
        dispatch.agent_id,
        instance_id="",
        outcome=kind,
        message=message,
        started=started,
        crashed=crashed,
    )


def attempt_of(dispatch: Dispatch, outcome: Outcome, now_us: int) -> Attempt:
    """The attempt that a dispatch was, now that it has ended."""
    return Attempt(
        number=dispatch.envelope.next_attempt,
        agent_id=dispatch.agent_id,
        dispatch_id=dispatch.dispatch_id,
        decision_id=dispatch.decision_id,
        outcome=outcome.outcome,
        message=cut(outcome.message),
        dispatched_at=dispatch.dispatched_at,
        ended_at=now_us,
    )


def outcome_row(dispatch: Dispatch, outcome: Outcome, standing: Standing, now_us: int) -> OutcomeSeen:
    """The outcome as the store has it."""
    envelope = dispatch.envelope
    return OutcomeSeen(
        dispatch_id=dispatch.dispatch_id,
        task_id=envelope.task_id,
        life=envelope.life,
        attempt=envelope.next_attempt,
        agent_id=dispatch.agent_id,
        capability=envelope.capability,
        instance_id=outcome.instance_id,
        outcome=outcome.outcome,
        message=cut(outcome.message),
        at=now_us,
        duration_ms=outcome.duration_ms,
        standing=standing,
        cost=outcome.cost,
        tokens_in=outcome.tokens_in,
        tokens_out=outcome.tokens_out,
    )


def came_back(dispatch: Dispatch, delivery: Delivery, *, ran: bool, said_so: bool) -> Told:
    """A dispatch that came back without an outcome: not picked up in time, crash-looping, or taken back.

    What the broker says of a message (``x-death``) tells a crash loop from one that simply waited too long. One that
    may have killed its process, or only ran or waited beside one that did, costs no attempt the first time: from then
    on it runs alone and says so before, so that the next crash is its own. ``ran``: an instance said that it runs this.
    ``said_so``: and did so before it began.
    """
    agent_id, envelope = dispatch.agent_id, dispatch.envelope
    looping = _death_reason(delivery) == "delivery_limit"
    if not (looping or delivery.redelivered):
        return Told(
            dispatch, found_out(dispatch, OutcomeClass.RELEASED, f"not picked up by {agent_id}"), delivery
        )
    dispatch = replace(dispatch, envelope=replace(envelope, crashes=envelope.crashes + 1))
    ran = delivery.redelivered and (ran or said_so)
    went = "died while it ran" if ran else "went away before it said that it ran this"
    error = f"its instance of {agent_id} {'died with it again and again' if looping else went}"
    if looping or (ran and (said_so or envelope.crashes)):
        outcome = found_out(dispatch, OutcomeClass.UNAVAILABLE, error, started=ran, crashed=True)
    else:
        outcome = found_out(dispatch, OutcomeClass.RELEASED, error, started=ran)
    return Told(dispatch, outcome, delivery)


def left_by_foreign(dispatch: Dispatch, delivery: Delivery) -> Told:
    """A dispatch to a foreign worker that came back without a reply.

    It does not say when it begins. So what was never given to anybody is known to be unrun, of anything else (it comes
    again, or its time on the queue ran out, maybe between two workers that died with it) nobody knows. That costs
    nothing the first time, and from then on an attempt.
    """
    agent_id, envelope = dispatch.agent_id, dispatch.envelope
    reason = _death_reason(delivery)
    if not (delivery.redelivered or reason):
        return Told(
            dispatch, found_out(dispatch, OutcomeClass.RELEASED, f"not picked up by {agent_id}"), delivery
        )
    crashed = delivery.redelivered or reason == "delivery_limit"
    if crashed:
        dispatch = replace(dispatch, envelope=replace(envelope, crashes=envelope.crashes + 1))
    went = "went away with it" if crashed else "did not pick it up in time, or went away with it"
    again = reason == "delivery_limit" or bool(envelope.released)
    kind = OutcomeClass.UNAVAILABLE if again else OutcomeClass.RELEASED
    error = f"a worker of {agent_id} {went}" + (" again and again" if reason == "delivery_limit" else "")
    return Told(dispatch, found_out(dispatch, kind, error, started=True, crashed=crashed), delivery)


def _death_reason(delivery: Delivery) -> str:
    deaths = delivery.headers.get("x-death")
    first = deaths[0] if isinstance(deaths, list) and deaths else {}
    reason = first.get("reason") if isinstance(first, dict) else None
    return reason if isinstance(reason, str) else ""


def forward(told: Told, queue: str) -> Step:
    """What came back but belongs to another router goes to its outcomes queue: only the owner binds it again."""
    if told.delivery is None:
        return Step()
    headers = outcome_headers(told.dispatch.headers(), told.outcome)
    return Step([told.delivery], send=[Message(queue, told.delivery.body, headers)])
