"""Sending a task to its agent: the lease, the message, the rows, and what happens when it does not go out."""

from typing import Final

from reach_worker.core.admission import ask_of
from reach_worker.core.dispatch import Dispatch
from reach_worker.core.duplicates import KnownTask, TaskState
from reach_worker.core.envelope import Envelope
from reach_worker.core.foreign import is_foreign
from reach_worker.core.hearsay import ProbeSent, Settled
from reach_worker.core.message import Delivery
from reach_worker.core.outcome import DeadLetterReason, OutcomeClass
from reach_worker.core.record import DecisionRecord
from reach_worker.core.recovery import MICROSECONDS, attempt_timeout_ms
from reach_worker.core.routing import Chosen, Decision, plan
from reach_worker.core.slots import Lease
from reach_worker.ports import Decided, Dispatched, Row, Sent, Standing, Unsent
from reach_worker.services.effects import Step
from reach_worker.services.router.desk import Desk
from reach_worker.services.router.hands import InFlight, Waiting
from reach_worker.services.router.longest_out import longest_out_us
from reach_worker.services.router.messages import dispatch_message, lease_beside, retry_message
from reach_worker.services.router.told import found_out, outcome_row

DOUBT_S: Final = 4.0
"""So long waits what another router may have sent, before its word is looked for again."""


class Dispatcher:
    """Sends what was bound. ``missing_queues``: queues that a message did not find; they are to be declared."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.missing_queues: set[str] = set()

    def sent_before(
        self, flight: InFlight, envelope: Envelope, delivery: Delivery, body: bytes | None = None
    ) -> Step | None:
        """The message behind a dispatch came again: was the dispatch sent?

        If that is not certain, that same dispatch is sent again, not another one. ``None`` if it is known to
        be out. With side effects it is recorded before it is sent, so after a restart nobody can tell: a
        person has to. ``body``: the task's, where it is not the message's.
        """
        unsure = flight.admitted is None or self._not_again(flight, envelope)
        if unsure and envelope.side_effects:
            dispatch = flight.dispatch
            what = "the router stopped" if flight.admitted is None else "the connection broke"
            error = f"{what} while it sent this task to {dispatch.agent_id}: it may have run"
            self.release(dispatch)
            return self._desk.bury(
                envelope,
                delivery.body if body is None else body,
                DeadLetterReason.OUTCOME_UNKNOWN,
                error,
                delivery=delivery,
                rows=[],
            )
        if not flight.uncertain or flight.admitted is None:
            return None
        if envelope.tip != flight.dispatch.envelope.tip:
            return None
        waiting = Waiting(flight.admitted, ask_of(flight.admitted, self._desk.tags), delivery, 0.0, "")
        return self._send(waiting, flight)

    def _not_again(self, flight: InFlight, envelope: Envelope) -> bool:
        """It may have been sent, to a foreign worker, which runs the same dispatch twice if it gets it twice."""
        same = envelope.tip == flight.dispatch.envelope.tip
        return flight.uncertain and same and self._is_foreign(flight.dispatch)

    def _is_foreign(self, dispatch: Dispatch) -> bool:
        agent = self._desk.fleet.agents.get(dispatch.agent_id)
        return agent is not None and is_foreign(agent.manifest)

    def forget_settled(self, envelope: Envelope, known: KnownTask | None, *, goes_on: bool = True) -> None:
        """Give up what we believe to be out, if another router has settled it, or has done the task itself.

        ``envelope``: of a later copy of the task, or of a later dispatch. ``goes_on``: it is not one that is let go.
        """
        flight = self._desk.hands.of_task(envelope.task_id)
        if flight is None:
            return
        knows = envelope.knows_end_of(flight.dispatch.dispatch_id)
        elsewhere = goes_on and _went_elsewhere(envelope, flight)
        if knows or elsewhere or self._overtaken(flight, known):
            self.release(flight.dispatch)

    def _overtaken(self, flight: InFlight, known: KnownTask | None) -> bool:
        """The store knows of another dispatch, or of an end, that did not come of ours.

        It can only be so for what was sent in an earlier session or life, or was not sent for certain.
        """
        ours = flight.dispatch
        if known is None or known.dispatch_id == ours.dispatch_id or known.life < ours.envelope.life:
            return False
        if not flight.uncertain:
            return flight.session != self._desk.session
        if known.dispatch_id is None:
            return known.state is not TaskState.UNDER_WAY
        return not ours.envelope.knows_end_of(known.dispatch_id)

    def in_doubt(
        self,
        envelope: Envelope,
        delivery: Delivery,
        known: KnownTask | None,
        *,
        copy: bool = False,
        outcome: bool = False,
        body: bytes | None = None,
    ) -> Step | None:
        """A dispatch of this task is recorded, we do not have it, and the message that led to it came again.

        With side effects it was recorded before it was sent, so it may never have gone out. Only the router that
        recorded it can tell: its word is waited for while that router lives, as long as it would wait for its
        agent, and meanwhile the task waits on a rung; else a person has to look. ``copy``: the message is one of our own
        that waited somewhere, so it matters also if it comes for the first time. ``outcome``: it is an outcome, which is
        held instead. ``body``: the task's, where it is not the message's. ``None``: there is no such doubt.
        """
        if known is None or known.state is not TaskState.UNDER_WAY or known.life != envelope.life:
            return None
        any_out = known.dispatch_id is not None or bool(known.out)
        out = known.next_after(envelope.tip) in known.out if copy else any_out
        if not (out and envelope.side_effects and (copy or delivery.redelivered)):
            return None
        body = delivery.body if body is None else body
        word_may_come = self._desk.clock.utc_us() < known.dispatched_at + longest_out_us(
            self._desk, envelope.capability
        )
        if word_may_come and known.router != self._desk.router_id and self._desk.lives(known.router):
            held = Step([delivery], put_off=True)
            return held if outcome else self._ask_again(envelope, delivery, body)
        error = f"router {known.router} stopped while it sent this task: it may have run"
        return self._desk.bury(
            envelope, body, DeadLetterReason.OUTCOME_UNKNOWN, error, delivery=delivery, rows=[]
        )

    def _ask_again(self, envelope: Envelope, delivery: Delivery, body: bytes) -> Step:
        """What may take as long as an agent may is not held that long: it comes back as a copy of our own."""
        now_us = self._desk.clock.utc_us()
        message = retry_message(self._desk.names, envelope, body, DOUBT_S, now_us)
        return Step([delivery], send=[message])

    def dispatch(self, waiting: Waiting, decision: Decision, chosen: Chosen, now: float) -> Step:
        """Send a task to the agent that was chosen for it, at ``now`` (monotonic seconds)."""
        desk = self._desk
        clock, now_us = desk.clock, desk.clock.utc_us()
        envelope = waiting.admitted.envelope
        dispatch = Dispatch(
            envelope=envelope,
            dispatch_id=clock.new_id(),
            decision_id=clock.new_id(),
            agent_id=chosen.agent_id,
            owner=desk.router_id,
            dispatched_at=now_us,
            start_by=now_us + int(desk.policies.timeouts.pickup_s * MICROSECONDS),
            timeout_ms=self._timeout_ms(envelope, chosen.agent_id, now_us),
        )
        shadow = self._shadow(waiting, now)
        self._lease(dispatch, len(waiting.admitted.body), now)
        flight = InFlight(dispatch, waiting.admitted, session=desk.session)
        if waiting.ask.session_id is not None:
            desk.fleet.had_session(waiting.ask.session_id, chosen.agent_id)
        desk.hands.send(flight)
        flight.rows = [
            desk.accepted(envelope),
            *waiting.rows,
            self.decided(dispatch.decision_id, envelope, decision, at=now_us, shadow=shadow),
            dispatched_row(dispatch, only_first=envelope.side_effects),
        ]
        return self._send(waiting, flight)

    def _send(self, waiting: Waiting, flight: InFlight) -> Step:
        dispatch = flight.dispatch
        pickup_s = self._desk.policies.timeouts.pickup_s
        message = dispatch_message(self._desk.names, dispatch, waiting.admitted.body, pickup_s)
        flight.headers = message.headers
        step = Step([waiting.delivery], send=[message])
        if self._is_foreign(dispatch):
            step.ahead.append(lease_beside(self._desk.names, dispatch, waiting.admitted.body))
        if dispatch.envelope.side_effects:
            step.before = flight.rows
            step.first = (dispatch.envelope.task_id, dispatch.dispatch_id)
            step.overtaken = lambda recorded: self._overtaken_by_another(waiting, flight, recorded=recorded)
        else:
            step.rows = flight.rows
        step.undo = lambda worst: self._unsent(waiting, flight, worst)
        step.done = lambda: self._sent(flight)
        return step

    def _overtaken_by_another(self, waiting: Waiting, flight: InFlight, *, recorded: bool) -> Step:
        """A dispatch stands in the store in the place of ours, which was therefore not recorded, and not sent.

        Or in the place of one before ours, when nothing had side effects yet; then ours is ``recorded``, and not sent.

        Whether that other one was sent is not known, so this copy stays, as one of our own: it is let go when the task
        has gone on, or a person has to look. Whoever published it waits for the one answer.
        """
        self.release(flight.dispatch)
        self._not_paced(flight.dispatch.agent_id)
        envelope = waiting.admitted.envelope
        step = self._ask_again(envelope, waiting.delivery, waiting.admitted.body)
        if recorded:
            step.rows += self._never_sent(flight.dispatch, "another copy of the task went on before")
        step.rows += self._desk.joined(envelope)
        return step

    def _sent(self, flight: InFlight) -> None:
        flight.uncertain = False
        flight.rows = []
        self._desk.hands.go_on(flight.dispatch.envelope.task_id, flight.dispatch.envelope.life)
        self._desk.counts.dispatched += 1
        if flight.dispatch.envelope.next_attempt > 1:
            self._desk.counts.retried += 1
        else:
            self._desk.retry_budget.first_attempt(self._desk.clock.monotonic())

    def _unsent(self, waiting: Waiting, flight: InFlight, worst: Sent) -> None:
        """A dispatch that did not go out. Where that is not certain it is kept, and sent again when its task returns."""
        if worst is Sent.UNCERTAIN:
            flight.uncertain = True
            return
        dispatch = flight.dispatch
        self.release(dispatch)
        self._not_paced(dispatch.agent_id)
        if worst is Sent.UNROUTABLE:
            self.missing_queues.add(self._desk.names.agent(dispatch.agent_id))
        waiting.reason = f"the broker did not take it for {dispatch.agent_id}: {worst.value}"
        if dispatch.envelope.side_effects:
            waiting.rows = self._never_sent(dispatch, waiting.reason)
            waiting.unsent = True
        self._desk.hands.wait(waiting, first=True)

    def _not_paced(self, agent_id: str) -> None:
        """What never went out does not count toward the agent's rate."""
        agent = self._desk.fleet.agents.get(agent_id)
        if agent is not None:
            agent.pace.give_back()

    def release(self, dispatch: Dispatch) -> None:
        """A dispatch that never went out, or is not its task's any more: slot and probe are free, nothing counts."""
        lease = self._desk.fleet.leases.release(dispatch.dispatch_id)
        self._desk.hands.land(dispatch.dispatch_id)
        agent = self._desk.fleet.agents.get(dispatch.agent_id)
        if agent is not None:
            agent.breaker.released(dispatch.dispatch_id)
        if lease is not None and lease.probe:
            self._desk.tell(
                Settled(
                    dispatch.dispatch_id,
                    dispatch.agent_id,
                    dispatch.envelope.capability,
                    OutcomeClass.RELEASED,
                    0.0,
                )
            )

    def _lease(self, dispatch: Dispatch, size: int, now: float) -> None:
        timeouts = self._desk.policies.timeouts
        agent = self._desk.fleet.agents[dispatch.agent_id]
        probe = agent.breaker.sent(dispatch.dispatch_id, now)
        if probe:
            self._desk.tell(ProbeSent(dispatch.dispatch_id, dispatch.agent_id))
        agent.pace.take(1, now)
        self._desk.fleet.leases.add(
            Lease(
                dispatch_id=dispatch.dispatch_id,
                agent_id=dispatch.agent_id,
                task_id=dispatch.envelope.task_id,
                since=now,
                backstop_at=now + timeouts.pickup_s + dispatch.timeout_ms / 1000 + timeouts.backstop_s,
                size=size,
                probe=probe,
                timeout_s=dispatch.timeout_ms / 1000,
            )
        )

    def _timeout_ms(self, envelope: Envelope, agent_id: str, now_us: int) -> int:
        left_us = envelope.remaining_us(now_us)
        capability = self._desk.fleet.agents[agent_id].manifest.capability(envelope.capability)
        return attempt_timeout_ms(
            capability.timeout_ms if capability else None,
            self._desk.fleet.record.of(agent_id, envelope.capability),
            self._desk.policies.timeouts,
            remaining_ms=None if left_us is None else left_us // 1000,
            tried=envelope.stretch,
        )

    def _shadow(self, waiting: Waiting, now: float) -> Decision | None:
        """What the shadow policy would have chosen at this very moment. It is logged and never acts."""
        shadow = self._desk.policies.routing.shadow
        return None if shadow is None else plan(waiting.ask, self._desk.fleet, shadow, now)

    def decided(
        self,
        decision_id: str,
        envelope: Envelope,
        decision: Decision,
        *,
        at: int | None = None,
        shadow: Decision | None = None,
    ) -> Row:
        """The row of a decision, with what the shadow policy would have done."""
        return Decided(
            decision_id=decision_id,
            task_id=envelope.task_id,
            life=envelope.life,
            attempt=envelope.next_attempt,
            at=self._desk.clock.utc_us() if at is None else at,
            router=self._desk.router_id,
            decision=DecisionRecord(decision, shadow),
        )

    def _never_sent(self, dispatch: Dispatch, why: str) -> list[Row]:
        """The end of a dispatch that was recorded first and then not sent."""
        envelope = dispatch.envelope
        outcome = found_out(dispatch, OutcomeClass.RELEASED, why)
        row = outcome_row(dispatch, outcome, Standing.CURRENT, self._desk.clock.utc_us())
        return [row, Unsent(dispatch.dispatch_id, envelope.task_id, envelope.life)]


def dispatched_row(dispatch: Dispatch, *, only_first: bool = False) -> Row:
    """The row that says that a task was sent to an agent; ``only_first``: that it will be, if nobody else has sent it."""
    envelope = dispatch.envelope
    return Dispatched(
        dispatch_id=dispatch.dispatch_id,
        task_id=envelope.task_id,
        life=envelope.life,
        attempt=envelope.next_attempt,
        agent_id=dispatch.agent_id,
        capability=envelope.capability,
        decision_id=dispatch.decision_id,
        router=dispatch.owner,
        at=dispatch.dispatched_at,
        after=envelope.tip,
        only_first=only_first,
    )


def _went_elsewhere(envelope: Envelope, flight: InFlight) -> bool:
    """This copy has dispatches behind it that are not behind ours: it went on without us."""
    return flight.admitted is not None and not envelope.history() <= flight.dispatch.envelope.history()
