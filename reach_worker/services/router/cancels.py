"""Tasks that somebody cancels: their caller, or the race that they have lost.

What waits here ends at once. What runs is told to stop, again and again until its outcome comes: a success that was on
its way counts, anything else is the end ``cancelled``. What is elsewhere (a rung, a lane, not here yet) is remembered,
and ends where it turns up.
"""

import logging
from collections.abc import Sequence

from reach_worker.core import answer
from reach_worker.core.announcement import cancel_key
from reach_worker.core.cancel import STRAY_S, CancelReply, CancelRequest, cancel_from, may_cancel
from reach_worker.core.duplicates import KnownTask, TaskState
from reach_worker.core.envelope import ANONYMOUS, Envelope
from reach_worker.core.hearsay import NotWanted
from reach_worker.core.message import Delivery, Message
from reach_worker.core.reply_address import why_not_answered
from reach_worker.ports import Row, Store
from reach_worker.services.effects import Step
from reach_worker.services.router.desk import Desk

log = logging.getLogger(__name__)


class Cancels:
    """Takes requests; knows which tasks are not wanted any more."""

    def __init__(self, desk: Desk, store: Store) -> None:
        self._desk = desk
        self._store = store
        self._out: list[Message] = []

    async def hear(self, requests: Sequence[Delivery]) -> list[Step]:
        """Requests from the events exchange, each answered if it names a queue."""
        wanted = [(request, cancel_from(request.body)) for request in requests]
        ids = [task_id for _, task_id in wanted if task_id is not None]
        known = await self._store.known_tasks(ids) if ids else {}
        steps = []
        for request, task_id in wanted:
            if task_id is None:
                log.warning("a request to cancel names no task: %.80r", request.body)
                continue
            reply, step = self._asked(task_id, request.user_id or ANONYMOUS, known.get(task_id))
            steps += [step] if step is not None else []
            self._answer(request, reply)
        return steps

    def cancel_leg(self, task_id: str) -> None:
        """The router itself does not want this leg of a group any more, wherever it is. Other routers are told."""
        self.not_wanted(task_id)
        self._desk.tell(NotWanted(task_id))

    def not_wanted(self, task_id: str) -> None:
        """A router does not want a leg of a group any more."""
        self._desk.hands.cancel(task_id, CancelRequest(None, 0, 0.0))
        self._stop(task_id)

    def besides(self) -> list[Step]:
        """The ends of those that wait here and were cancelled since."""
        hands = self._desk.hands
        waiting = [task_id for task_id in hands.cancel_requests if task_id in hands.waiting]
        steps = (self._at_once(task_id) for task_id in waiting)
        return [step for step in steps if step is not None]

    def remind(self) -> None:
        """Tell the agents again that run what is not wanted: it may have begun only now."""
        hands = self._desk.hands
        for task_id in hands.cancel_requests:
            if task_id in hands.by_task:
                self._stop(task_id)

    def messages(self) -> list[Message]:
        """What is to be sent now, on a best effort."""
        out, self._out = self._out, []
        return out

    # -- inside

    def _asked(self, task_id: str, by: str, known: KnownTask | None) -> tuple[CancelReply, Step | None]:
        hands = self._desk.hands
        ended = hands.ended.get(task_id) or (known if known is not None and known.over else None)
        held = self._held(task_id)
        if held is None and ended is not None:
            state = ended.state
            return CancelReply(task_id, cancelled=state is TaskState.CANCELLED, state=state.value), None
        if held is not None and held.caller and not may_cancel(by, held.owner):
            log.warning("task %s: %.80r is not its caller, and cannot cancel it", task_id, by)
            return CancelReply(task_id, cancelled=False, state="forbidden"), None
        life = held.life if held is not None else None if known is None else known.life
        hands.cancel(task_id, CancelRequest(by, life, self._desk.clock.monotonic() + STRAY_S))
        where = "unknown" if held is None and known is None else "under_way"
        if held is not None:
            where = "waiting" if task_id in hands.waiting else "running"
        return CancelReply(task_id, cancelled=True, state=where), self._at_once(task_id)

    def _held(self, task_id: str) -> Envelope | None:
        waiting, flight = self._desk.hands.waiting.get(task_id), self._desk.hands.of_task(task_id)
        if waiting is not None:
            return waiting.admitted.envelope
        return None if flight is None else flight.dispatch.envelope

    def _at_once(self, task_id: str) -> Step | None:
        """End it if it waits here; if it runs, have it stopped."""
        hands = self._desk.hands
        waiting = hands.waiting.get(task_id)
        if waiting is None:
            self._stop(task_id)
            return None
        request = hands.unwanted(waiting.admitted.envelope, self._desk.clock.monotonic())
        if request is None:
            return None
        hands.take(task_id)
        step = cancelled_end(
            self._desk, waiting.admitted.envelope, waiting.delivery, waiting.rows, request.why
        )
        step.undo = lambda _worst: hands.wait(waiting, first=True)
        return step

    def _stop(self, task_id: str) -> None:
        flight = self._desk.hands.of_task(task_id)
        if flight is not None and self._desk.hands.unwanted(
            flight.dispatch.envelope, self._desk.clock.monotonic()
        ):
            key = cancel_key(flight.dispatch.agent_id)
            body = flight.dispatch.dispatch_id.encode()
            self._out.append(
                Message(key, body, {}, self._desk.names.events, persistent=False, mandatory=False)
            )

    def _answer(self, request: Delivery, reply: CancelReply) -> None:
        to = request.reply_to
        if to is None or why_not_answered(to, self._desk.names) is not None:
            return
        mark = request.correlation_id
        self._out.append(Message(to, reply.body(), correlation_id=mark, persistent=False, mandatory=False))


def cancelled_end(desk: Desk, envelope: Envelope, delivery: Delivery, rows: Sequence[Row], why: str) -> Step:
    """The end of a task that waits, and is not wanted any more."""
    return desk.end(
        envelope,
        TaskState.CANCELLED,
        answer.cancelled(envelope),
        delivery=delivery,
        rows=[desk.accepted(envelope), *rows],
        error=why,
    )
