"""What the end of a round makes of its race or fan-out: an answer, another attempt, or a dead letter."""

from dataclasses import replace
from typing import assert_never

from reach_worker.core import answer
from reach_worker.core.duplicates import TaskState
from reach_worker.core.group import Gathered, LegEnd, RoundFailed, Won, aggregate, nobody
from reach_worker.core.message import Delivery
from reach_worker.core.outcome import Attempt, Outcome, OutcomeClass
from reach_worker.core.recovery import Bury, Cancelled, TryAgain, next_round, not_again
from reach_worker.services.effects import Step
from reach_worker.services.router.desk import Desk
from reach_worker.services.router.led import Group
from reach_worker.services.router.messages import retry_message


class GroupEnds:
    """Steps without what concerns the router that leads the group."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def step(self, group: Group, verdict: Won | RoundFailed | Gathered, delivery: Delivery | None) -> Step:
        """What follows from how a round has ended."""
        match verdict:
            case Won(end):
                return self._won(group, end, delivery)
            case RoundFailed(end):
                return self._failed(group, end, delivery)
            case Gathered():
                return self._gathered(group, verdict, delivery)
            case other:
                assert_never(other)

    def cancelled(self, group: Group, why: str) -> Step:
        """Nobody wants it any more."""
        told = answer.cancelled(group.envelope)
        return self._desk.end(group.envelope, TaskState.CANCELLED, told, delivery=None, rows=[], error=why)

    def _won(self, group: Group, end: LegEnd, delivery: Delivery | None) -> Step:
        won = {"agent": end.agent_id, "attempt": group.round.number, "mode": "race", "result": end.result}
        told = answer.of_group(group.envelope, {**won, "chunks": end.chunks} if end.chunks else won)
        return self._desk.end(group.envelope, TaskState.SUCCEEDED, told, delivery=delivery, rows=[])

    def _gathered(self, group: Group, gathered: Gathered, delivery: Delivery | None) -> Step:
        envelope, fields = group.envelope, aggregate(group.task, gathered)
        if fields is None:
            reason, error = nobody(gathered)
            return self._desk.bury(envelope, group.body, reason, error, delivery=delivery, rows=[])
        told = answer.of_group(envelope, {"attempt": group.round.number, **fields})
        return self._desk.end(envelope, TaskState.SUCCEEDED, told, delivery=delivery, rows=[])

    def _failed(self, group: Group, end: LegEnd, delivery: Delivery | None) -> Step:
        """The round was an attempt of the task, and what follows is what follows from any other.

        A leg that was stopped has only left its race: that nobody wants the task any more is said of the task itself.
        """
        desk, envelope = self._desk, group.envelope
        if end.outcome is OutcomeClass.CANCELLED:
            end = replace(end, outcome=OutcomeClass.RELEASED, attempt=None)
        attempt = self._attempt(group, end)
        outcome = Outcome(
            attempt.dispatch_id, envelope.task_id, end.agent_id, "", end.outcome, attempt.message
        )
        step = next_round(envelope, attempt, outcome, policy=desk.policies.retry, draw=desk.clock.draw())
        if request := desk.hands.unwanted(envelope, desk.clock.monotonic()):
            step = not_again(step, request.why)
        match step:
            case Bury(tried, reason, error):
                return desk.bury(tried, group.body, reason, error, delivery=delivery, rows=[])
            case Cancelled(tried, why):
                told = answer.cancelled(tried)
                return desk.end(tried, TaskState.CANCELLED, told, delivery=delivery, rows=[], error=why)
            case TryAgain(tried, delay_s):
                message = retry_message(desk.names, tried, group.body, delay_s, desk.clock.utc_us())
                return Step([delivery] if delivery is not None else [], send=[message])
            case _:
                raise AssertionError("a round that failed does not succeed")

    def _attempt(self, group: Group, end: LegEnd) -> Attempt:
        now_us = self._desk.clock.utc_us()
        if end.attempt is None:
            leg = next((leg for leg in group.round.legs if leg.agent_id == end.agent_id), group.round.legs[0])
            return Attempt(
                group.round.number, end.agent_id, leg.task_id, "", end.outcome, end.message, now_us, now_us
            )
        return replace(end.attempt, number=group.round.number)
