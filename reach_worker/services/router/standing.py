"""Whether a dispatch is its task's current one, by what this router has in its hands and what the store knows."""

from dataclasses import replace

from reach_worker.core.dispatch import Dispatch
from reach_worker.core.duplicates import KnownTask, why_not_current
from reach_worker.core.outcome import Outcome, OutcomeClass
from reach_worker.ports import KnownDispatch, Row
from reach_worker.services.router.desk import Desk
from reach_worker.services.router.dispatcher import Dispatcher, dispatched_row
from reach_worker.services.router.hands import InFlight, Waiting
from reach_worker.services.router.told import Told


class DispatchStanding:
    """Looks at outcomes before anybody acts on them."""

    def __init__(self, desk: Desk, dispatcher: Dispatcher) -> None:
        self._desk = desk
        self._dispatcher = dispatcher

    def is_current(self, told: Told) -> bool:
        """It is certain, by what we know alone: we sent the dispatch, and nobody else can have got its outcome."""
        flight, delivery = self._desk.hands.in_flight.get(told.dispatch.dispatch_id), told.delivery
        if flight is None or delivery is None or delivery.redelivered:
            return False
        return flight.session == self._desk.session

    def why_stale(
        self, dispatch: Dispatch, known: KnownDispatch | None, task: KnownTask | None
    ) -> str | None:
        """Why a dispatch is not its task's current one, by what we and the store know; ``None`` if it is."""
        hands, task_id = self._desk.hands, dispatch.envelope.task_id
        in_hand = any(
            task_id in held for held in (hands.waiting, hands.by_task, hands.recalled, hands.closing)
        )
        if task is not None and task.stopped_at(dispatch.dispatch_id) and not in_hand:
            return None  # it was settled, and this message is all that is left to go on from
        if dispatch.dispatch_id in hands.settling:
            return "it is settled in this very turn"
        if hands.closing.get(task_id, -1) >= dispatch.envelope.life:
            return "the task ends in this very turn"
        if dispatch.dispatch_id in hands.settled or (known is not None and known.settled):
            return "it was settled before"
        if self._goes_on_from(dispatch):
            return "it was settled before"
        why = why_not_current(dispatch.envelope, dispatch.dispatch_id, task)
        if why is not None:
            return why
        if known is None and self._routed_again(dispatch):
            return "the task was routed again since"
        return None

    def _routed_again(self, dispatch: Dispatch) -> bool:
        """We have sent the task elsewhere, or hold a copy of it that is not behind this dispatch.

        One that is behind it was begun because the store is away, or did not know yet: it goes, not the outcome.
        """
        hands, envelope = self._desk.hands, dispatch.envelope
        if hands.by_task.get(envelope.task_id, dispatch.dispatch_id) != dispatch.dispatch_id:
            return True
        waiting = hands.waiting.get(envelope.task_id)
        if waiting is None:
            return False
        held = waiting.admitted.envelope
        return held.life > envelope.life or not held.history() <= envelope.history()

    def _goes_on_from(self, dispatch: Dispatch) -> bool:
        """What we hold of the task, or have sent, is what follows from this dispatch: its outcome has come twice."""
        hands, task_id = self._desk.hands, dispatch.envelope.task_id
        waiting, flight = hands.waiting.get(task_id), hands.of_task(task_id)
        held = [] if waiting is None else [waiting.admitted.envelope]
        if flight is not None and flight.dispatch.dispatch_id != dispatch.dispatch_id:
            held.append(flight.dispatch.envelope)
        return any(envelope.knows_end_of(dispatch.dispatch_id) for envelope in held)

    def superseded(self, dispatch: Dispatch) -> list[Waiting]:
        """What we hold of the task otherwise: by what is recorded it is this dispatch that counts."""
        hands, task_id = self._desk.hands, dispatch.envelope.task_id
        other = hands.of_task(task_id)
        if other is not None:
            self._dispatcher.release(other.dispatch)
        if task_id not in hands.waiting:
            return []
        waiting = hands.take(task_id)
        for joined in self._desk.joined(waiting.admitted.envelope):
            hands.join(joined)
        return [waiting]

    def as_known(self, told: Told, flight: InFlight | None, known: KnownDispatch | None) -> Outcome:
        """The outcome, by what is known of the start.

        A delivery may come again without its being to blame: it was on its way to an instance that stopped, or it
        waited or ran beside one that killed its process. From its second delivery on it runs alone and says so
        before. Where it provably never did, that is nobody's fault.

        That it begins may have been said to a router that stood by for us, so the store is asked. With side effects its
        word alone counts: they are recorded before they are sent, so where it knows nothing it is away.
        """
        outcome, crashed = told.outcome, told.outcome.crashed
        if outcome.started:
            return outcome
        proven = known is not None or (self.is_current(told) and not told.dispatch.envelope.side_effects)
        began = (flight.started if flight is not None else crashed) or (crashed and not proven)
        if began or (known is not None and known.started):
            return replace(outcome, started=True)
        if crashed and outcome.instance_id:
            why = "delivered again before it began"
            return replace(outcome, outcome=OutcomeClass.RELEASED, message=why, crashed=False)
        return outcome

    def unrecorded(
        self, dispatch: Dispatch, flight: InFlight | None, known: KnownDispatch | None
    ) -> list[Row]:
        """The row of the dispatch itself where it is not in the store: its router died just after it had sent it."""
        if flight is not None:
            return flight.rows
        return [] if known is not None else [self._desk.accepted(dispatch.envelope), dispatched_row(dispatch)]
