"""Waiting for the end of a task: as the one who published it, or as one who only knows its id.

Where the connection is lost the queue for the answer is gone. Then the routers are asked first: the task may have ended
meanwhile, and publishing it again would begin it anew once its end is no longer remembered. What is under way is
published again, under the same id: that joins it, and the answer comes by itself. A task with side effects is never
published a second time once the broker has it; about that one the routers are asked until it is over.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from reach_worker.calling.line import FIRST_PAUSE_S, LONGEST_PAUSE_S, Line
from reach_worker.calling.mailroom import Note, Slot
from reach_worker.calling.order import Order
from reach_worker.core.cancel import CancelReply
from reach_worker.core.duplicates import TaskState
from reach_worker.core.json_object import object_in
from reach_worker.core.lookup import Found
from reach_worker.core.message import Delivery
from reach_worker.core.task_errors import CallTimeout, ConnectionLost, DeadLettered, UnknownTask, result_of

Answer = Mapping[str, Any]

ONCE_S: Final = 1.0
"""So long a router's word is waited for where only one question is put."""
NOT_KEPT: Final = "it ended as {state!r}, and its answer is not kept any more"


async def call(line: Line, order: Order, timeout_s: float | None, *, cancel_on_timeout: bool) -> Any:
    """Publish a task and wait for its result. Raises the ``TaskError`` that fits.

    Whoever is cancelled himself while he waits has the task cancelled too.
    """
    limit = asyncio.timeout(timeout_s)
    with line.room.slot() as slot:
        try:
            async with limit:
                await line.send(order, slot)
                answer = await end_of(line, order, slot)
        except TimeoutError:
            if not limit.expired():
                raise
            if cancel_on_timeout:
                line.later(line.cancel_unheard(order.task_id))
            raise too_late(order, timeout_s, slot, cancelled=cancel_on_timeout) from None
        except asyncio.CancelledError:
            line.later(line.cancel_unheard(order.task_id))
            raise
    return own_result(order, answer, timeout_s)


def own_result(order: Order, answer: Answer, timeout_s: float | None) -> Any:
    """The result; a deadline that is nothing but the time-out of the call is told as one."""
    try:
        return result_of(answer, order.task_id)
    except DeadLettered as error:
        if error.expired and order.own_deadline and timeout_s is not None:
            why = f"no answer within {timeout_s:g} s, and it was given up: {error.error}"
            raise CallTimeout(order.task_id, order.flow_id, answer, why) from None
        raise


def too_late(order: Order, timeout_s: float | None, slot: Slot, *, cancelled: bool) -> CallTimeout:
    """What is raised when the time is over."""
    then = "it is cancelled" if cancelled else "it goes on"
    if not slot.asked_from:
        then = "the broker cannot be reached now"
    return CallTimeout(order.task_id, order.flow_id, why=f"no answer within {timeout_s or 0:g} s; {then}")


async def end_of(line: Line, order: Order, slot: Slot) -> Answer:
    """Wait for the answer of a task that was sent; what is no end is passed over."""
    while True:
        match await slot.get():
            case Note.CLOSED:
                raise ConnectionLost(
                    order.task_id, order.flow_id, why="the client was closed; the task goes on"
                )
            case Note.RENEWED:
                answer = await again(line, order, slot)
                if answer is not None:
                    return answer
            case Delivery() as delivery:
                answer = object_in(delivery.body)
                if ends(answer):
                    return answer


def ends(answer: Answer) -> bool:
    """It is an end for whoever waits; for that nobody may take it is one, too."""
    return answer.get("final", True) is not False or answer.get("status") == TaskState.UNMATCHED


async def again(line: Line, order: Order, slot: Slot) -> Answer | None:
    """After the connection was lost: the answer if there is one by now, ``None`` once it can come by itself again."""
    pause_s = FIRST_PAUSE_S
    while not line.room.closed:
        found = await line.find(order.task_id, _says_enough, pause_s)
        if found is not None:
            answer = _told(found, order.flow_id, last=pause_s >= LONGEST_PAUSE_S)
            if answer is not None:
                return answer
            if not found.over and not order.side_effects:
                await line.send(order, slot)
                return None
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
    raise ConnectionLost(order.task_id, order.flow_id, why="the client was closed; the task goes on")


def _says_enough(found: Found) -> bool:
    return found.known and (not found.over or found.answer is not None)


def _told(found: Found, flow_id: str = "", *, last: bool) -> Answer | None:
    """The answer of a task that has come to an end, ``None`` of one that has not.

    ``last``: it was asked often enough. A router whose store is busy does not find a long answer at once.
    """
    if found.state == TaskState.UNMATCHED:
        return {"task_id": found.task_id, "status": TaskState.UNMATCHED.value, "final": False}
    if found.over and found.answer is None and last:
        raise ConnectionLost(found.task_id, flow_id, why=NOT_KEPT.format(state=found.state))
    return found.answer


async def fetch(line: Line, task_id: str, timeout_s: float | None) -> Answer:
    """Ask the routers until a task is over: its answer. With 0 seconds they are asked once.

    Raises :class:`CallTimeout` where it is not over in time or no router answers, :class:`UnknownTask` where those that
    answer do not know it all that time, :class:`ConnectionLost` where its answer is not kept any more.
    """
    clock, pause_s = line.client.clock, FIRST_PAUSE_S
    until = None if timeout_s is None else clock.monotonic() + timeout_s
    found: Found | None = None
    while True:
        left_s = LONGEST_PAUSE_S if until is None else until - clock.monotonic()
        wait_s = ONCE_S if timeout_s == 0 else min(pause_s, max(left_s, FIRST_PAUSE_S))
        found = await line.find(task_id, lambda each: each.answer is not None, wait_s) or found
        if found is not None:
            answer = _told(found, last=timeout_s == 0 or pause_s >= LONGEST_PAUSE_S)
            if answer is not None:
                return answer
        if until is not None and clock.monotonic() >= until:
            raise _not_over(task_id, found, timeout_s or 0)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def _not_over(task_id: str, found: Found | None, timeout_s: float) -> CallTimeout | UnknownTask:
    if found is None:
        return CallTimeout(task_id, why=f"no router answered within {timeout_s or ONCE_S:g} s")
    if not found.known:
        return UnknownTask(task_id, why="no router knows it, or it is somebody else's")
    after = f" after {timeout_s:g} s" if timeout_s else ""
    return CallTimeout(task_id, why=f"it is not over{after}: {found.state.replace('_', ' ')}")


async def find(line: Line, task_id: str, within_s: float) -> Found | None:
    """Where a task is now; ``None`` if no router answers in time."""
    return await line.find(task_id, lambda each: each.over, within_s)


async def cancel(line: Line, task_id: str, timeout_s: float) -> CancelReply | None:
    """Have a task cancelled: what the router says that knows it, else what another says; ``None`` if none answers."""
    until = line.client.clock.monotonic() + timeout_s
    said: list[CancelReply] = []
    while not said and (left_s := until - line.client.clock.monotonic()) > 0:
        said = await line.cancel(task_id, min(ONCE_S, left_s))
    return said[-1] if said else None
