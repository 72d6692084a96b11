"""What follows from the outcome of a task's current dispatch: for its agent, and for the task."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from reach_worker.core import answer
from reach_worker.core.admission import Admitted
from reach_worker.core.duplicates import TaskState
from reach_worker.core.envelope import Envelope
from reach_worker.core.handoff import HandOn
from reach_worker.core.message import Delivery
from reach_worker.core.outcome import Attempt, DeadLetterReason
from reach_worker.core.recovery import Bury, Cancelled, Done, TryAgain, next_step, not_again
from reach_worker.core.slots import Lease
from reach_worker.core.task import Refusal, decode_task
from reach_worker.ports import Ended, KnownDispatch, OutcomeSeen, Row, Sent, Standing
from reach_worker.services.effects import Step
from reach_worker.services.router.bind import Binder
from reach_worker.services.router.desk import Desk, Moment
from reach_worker.services.router.handoffs import Handoffs
from reach_worker.services.router.hands import InFlight, Waiting
from reach_worker.services.router.judge import AgentJudge
from reach_worker.services.router.messages import retry_message
from reach_worker.services.router.standing import DispatchStanding
from reach_worker.services.router.told import Told, attempt_of, outcome_row

AGAIN_S: Final = 2.0
"""What the router found out itself, and could not act on, is found out again after so long."""


class Consequences:
    """Acts on outcomes that count."""

    def __init__(
        self,
        desk: Desk,
        binder: Binder,
        judge: AgentJudge,
        standing: DispatchStanding,
        handoffs: Handoffs,
    ) -> None:
        self._desk = desk
        self._binder = binder
        self._judge = judge
        self._standing = standing
        self._handoffs = handoffs

    def act(
        self, told: Told, flight: InFlight | None, known: KnownDispatch | None, at: Moment
    ) -> Step | None:
        """Release the agent, learn from the outcome, and go on with the task."""
        dispatch, outcome = told.dispatch, self._standing.as_known(told, flight, known)
        lease = self._desk.fleet.leases.release(dispatch.dispatch_id)
        self._desk.hands.land(dispatch.dispatch_id)
        self._desk.hands.settling.add(dispatch.dispatch_id)
        rows: list[Row] = [
            *self._standing.unrecorded(dispatch, flight, known),
            outcome_row(dispatch, outcome, Standing.CURRENT, at.utc_us),
            *self._judge.judge(dispatch, outcome, at),
        ]
        attempt = attempt_of(dispatch, outcome, at.utc_us)
        step = self._handoffs.hand_on(told, attempt) or next_step(
            dispatch.envelope,
            attempt,
            outcome,
            policy=self._desk.policies.retry,
            draw=self._desk.clock.draw(),
        )
        if dispatch.envelope.race and isinstance(step, TryAgain):
            step = Bury(step.envelope, DeadLetterReason.ATTEMPTS_EXHAUSTED, outcome.message)
        unwanted = self._desk.hands.unwanted(dispatch.envelope, at.now)
        if unwanted is not None and not isinstance(step, HandOn):
            step = not_again(step, unwanted.why)
        superseded = self._standing.superseded(dispatch)
        effect = self._effect(step, told, flight, attempt, rows)
        if effect is not None:
            effect.done = self._after(effect.done, dispatch.dispatch_id)
            if told.delivery is None and flight is not None and lease is not None:
                effect.undo = self._back_in_flight(flight, lease)
        return _with(effect, superseded) if superseded else effect

    def _back_in_flight(self, flight: InFlight, lease: Lease) -> Callable[[Sent], None]:
        """No message stands behind what the router found out itself: it is found out again a little later."""

        def back(_worst: Sent) -> None:
            self._desk.hands.send(flight)
            again_at = self._desk.clock.monotonic() + AGAIN_S
            self._desk.fleet.leases.add(replace(lease, backstop_at=again_at))

        return back

    def _after(self, done: Callable[[], None], dispatch_id: str) -> Callable[[], None]:
        def both() -> None:
            self._desk.hands.settle(dispatch_id)
            done()

        return both

    def _effect(
        self,
        step: Done | TryAgain | Bury | Cancelled | HandOn,
        told: Told,
        flight: InFlight | None,
        attempt: Attempt,
        rows: list[Row],
    ) -> Step | None:
        desk, delivery, by = self._desk, told.delivery, told.dispatch.dispatch_id
        match step:
            case Done():
                desk.counts.succeeded += 1
                envelope, body = told.dispatch.envelope, delivery.body if delivery else b""
                told_caller = answer.succeeded(
                    envelope, attempt.agent_id, attempt.number, body, told.outcome.chunks
                )
                return desk.end(
                    envelope, TaskState.SUCCEEDED, told_caller, delivery=delivery, rows=rows, by=by
                )
            case Cancelled(envelope, why):
                told_caller = answer.cancelled(envelope)
                state = TaskState.CANCELLED
                return desk.end(envelope, state, told_caller, delivery=delivery, rows=rows, error=why, by=by)
            case Bury(envelope, reason, error):
                body = self._body(told, flight)
                return desk.bury(envelope, body, reason, error, delivery=delivery, rows=rows, by=by)
            case TryAgain(envelope, delay_s) if delay_s > 0:
                now_us = desk.clock.utc_us()
                message = retry_message(desk.names, envelope, self._body(told, flight), delay_s, now_us)
                return Step([delivery] if delivery else [], send=[message], rows=rows)
            case HandOn(envelope, stretch) if delivery is not None:
                return self._place(Admitted(envelope, stretch.task, stretch.body), delivery, rows, by)
            case HandOn():
                raise AssertionError("only a message tells where a task is handed on to")
            case TryAgain(envelope, _):
                return self._route_on(envelope, told, flight, rows)

    def _route_on(
        self, envelope: Envelope, told: Told, flight: InFlight | None, rows: list[Row]
    ) -> Step | None:
        body, by = self._body(told, flight), told.dispatch.dispatch_id
        task = decode_task(body, max_bytes=self._desk.policies.intake.max_body_bytes)
        if isinstance(task, Refusal):
            return self._desk.bury(
                envelope, body, task.reason, task.error, delivery=told.delivery, rows=rows, by=by
            )
        if told.delivery is None:
            message = retry_message(self._desk.names, envelope, body, 0.0, self._desk.clock.utc_us())
            return Step(send=[message], rows=rows)
        return self._place(Admitted(envelope, task, body), told.delivery, rows, by)

    def _place(self, admitted: Admitted, delivery: Delivery, rows: list[Row], by: str) -> Step | None:
        """A place for what goes on at once. Where there is none and it ends, the outcome before has ended it."""
        step = self._binder.place(admitted, delivery, rows=rows)
        if step is not None and step.ended is not None:
            step.rows = [replace(row, dispatch_id=by) if isinstance(row, Ended) else row for row in step.rows]
        return step

    def _body(self, told: Told, flight: InFlight | None) -> bytes:
        """The task's own body: every outcome but a success carries it; else we hold it."""
        if told.delivery is not None:
            return told.body
        return flight.admitted.body if flight is not None and flight.admitted is not None else b""


def _with(effect: Step | None, superseded: Sequence[Waiting]) -> Step:
    """And what waits here otherwise is let go."""
    step = effect or Step()
    step.acks += [one.delivery for one in superseded]
    step.rows += [_not_acted_on(row) for one in superseded for row in one.rows]
    return step


def _not_acted_on(row: Row) -> Row:
    """An outcome that led to what is let go: as one that counts, its branch would be the one that goes on."""
    if isinstance(row, OutcomeSeen) and row.standing is Standing.CURRENT:
        return replace(row, standing=Standing.STALE)
    return row
