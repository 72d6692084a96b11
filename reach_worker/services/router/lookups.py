"""Where a task is, told to whoever may know. While nobody asks this does nothing."""

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from reach_worker.core.cancel import cancel_from, may_cancel
from reach_worker.core.duplicates import KnownTask, TaskState
from reach_worker.core.envelope import ANONYMOUS, Envelope
from reach_worker.core.lookup import found_body
from reach_worker.core.message import Delivery, Message
from reach_worker.core.reply_address import why_not_answered
from reach_worker.ports import Store
from reach_worker.services.router.desk import Desk

log = logging.getLogger(__name__)

AT_ONCE: Final = 100
"""So many are answered in one turn; the others have to wait for the next."""
AT_MOST: Final = 2000
"""So many may wait; whoever asks then has to ask again."""


@dataclass(frozen=True, slots=True)
class Question:
    """Who wants to know what. ``asker``: the user that the broker vouches for."""

    task_id: str
    asker: str
    reply_to: str
    mark: str | None


class Lookups:
    """Answers from what is in hand, what is remembered, and the store."""

    def __init__(self, desk: Desk, store: Store) -> None:
        self._desk = desk
        self._store = store
        self._questions: deque[Question] = deque()

    @property
    def left(self) -> bool:
        """Somebody waits for the next turn."""
        return bool(self._questions)

    def hear(self, asked: Sequence[Delivery]) -> None:
        """Remember who asks. One who could not be answered is not heard."""
        for delivery in asked:
            reply_to, task_id = delivery.reply_to, cancel_from(delivery.body)
            if task_id is None:
                log.debug("a question about a task names none: %.80r", delivery.body)
            elif not reply_to or why_not_answered(reply_to, self._desk.names):
                log.debug("a question about a task names no queue of a caller: %.80r", reply_to)
            elif len(self._questions) < AT_MOST:
                mark = delivery.correlation_id
                self._questions.append(Question(task_id, delivery.user_id or ANONYMOUS, reply_to, mark))

    async def answers(self) -> list[Message]:
        """What is known, for those whose turn it is. One who has gone meanwhile is no trouble."""
        if not self._questions:
            return []
        asked = [self._questions.popleft() for _ in range(min(AT_ONCE, len(self._questions)))]
        known = await self._store.known_tasks(list({question.task_id for question in asked}))
        return [self._answer(question, self._known(question.task_id, known)) for question in asked]

    def _answer(self, question: Question, task: KnownTask | None) -> Message:
        if task is not None and not may_cancel(question.asker, task.caller):
            task = None
        body = found_body(question.task_id, task)
        return Message(
            question.reply_to, body, correlation_id=question.mark, persistent=False, mandatory=False
        )

    def _known(self, task_id: str, stored: dict[str, KnownTask]) -> KnownTask | None:
        """The store's word, or ours where we know more."""
        hands, known = self._desk.hands, stored.get(task_id)
        ended = hands.ended.get(task_id)
        if ended is not None and ended.knows_more_than(known):
            return ended
        envelope = self._in_hand(task_id)
        if envelope is None or (known is not None and known.life >= envelope.life and known.caller):
            return known
        return self._under_way(envelope)

    def _in_hand(self, task_id: str) -> Envelope | None:
        """The task that waits here, or is out. Of one that an earlier process sent, only the store knows its caller."""
        hands = self._desk.hands
        if task_id in hands.waiting:
            return hands.waiting[task_id].admitted.envelope
        flight = hands.of_task(task_id)
        return None if flight is None or flight.admitted is None else flight.admitted.envelope

    def _under_way(self, envelope: Envelope) -> KnownTask:
        return KnownTask(
            envelope.task_id,
            envelope.life,
            TaskState.UNDER_WAY,
            self._desk.router_id,
            dispatch_id=None,
            attempts_ended=len(envelope.attempts),
            remember_until=0,
            answer=None,
            caller=envelope.caller,
        )
