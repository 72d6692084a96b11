"""Whoever else waits for a task's answer gets it: from the router that ends the task, or from the one that he asked."""

from collections.abc import Sequence
from typing import Final

from reach_worker.core.duplicates import TaskState
from reach_worker.core.message import Message
from reach_worker.ports import Joined, Row, Store
from reach_worker.services.effects import Step
from reach_worker.services.router.desk import Desk

Offer = tuple[Message, Row]

_OVER: Final = (TaskState.SUCCEEDED, TaskState.DEAD_LETTER, TaskState.CANCELLED)


class Waiters:
    """Second publishers. With several routers one may join in the very moment in which another router ends the task."""

    def __init__(self, desk: Desk, store: Store) -> None:
        self._desk = desk
        self._store = store

    async def add_to(self, steps: Sequence[Step]) -> None:
        """Offer each answer that these steps give also to those who joined."""
        ends = {step.ended[0]: step for step in steps if step.ended is not None}
        if not ends:
            return
        stored, here = await self._store.waiters(list(ends)), self._desk.hands.joined
        for task_id, step in ends.items():
            if task_id in stored or task_id in here:
                joined = (*stored.get(task_id, ()), *here.get(task_id, ()))
                step.offer += self._missing(step, joined)

    async def late(self, steps: Sequence[Step]) -> list[Step]:
        """After these steps were carried out: answers for those who joined while that was done.

        Whoever joins records it and then looks whether the task has ended; whoever ends it records that and then looks
        who has joined: so one of the two sees the other.
        """
        if self._desk.alone():
            self._desk.hands.joined_elsewhere.clear()
            return []
        return [*await self._joined_late(steps), *await self._ended_elsewhere()]

    async def _joined_late(self, steps: Sequence[Step]) -> list[Step]:
        ended = self._desk.hands.ended
        ends = {step.ended[0]: step for step in steps if step.ended is not None and step.ended[0] in ended}
        stored = await self._store.waiters(list(ends)) if ends else {}
        missing = (self._missing(ends[task_id], joined) for task_id, joined in stored.items())
        return [Step(offer=offers) for offers in missing if offers]

    async def _ended_elsewhere(self) -> list[Step]:
        hands = self._desk.hands
        joined, hands.joined_elsewhere = hands.joined_elsewhere, []
        known = await self._store.known_tasks(list({one.task_id for one in joined})) if joined else {}
        steps = []
        for one in joined:
            task = known.get(one.task_id)
            if task is not None and task.state in _OVER and task.answer is not None:
                offer = self._desk.offer(one.task_id, one.reply_to, one.correlation_id, task.answer)
                steps.append(Step(offer=[offer]))
        return steps

    def _missing(self, step: Step, joined: Sequence[Joined]) -> list[Offer]:
        task_id, told = step.ended or ("", b"")
        offered = {(message.routing_key, message.correlation_id) for message, _ in step.offer}
        offers: list[Offer] = []
        for one in joined:
            if (one.reply_to, one.correlation_id) not in offered:
                offered.add((one.reply_to, one.correlation_id))
                offers.append(self._desk.offer(task_id, one.reply_to, one.correlation_id, told))
        return offers
