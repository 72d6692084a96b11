"""What a router has in its hands: tasks that wait in its window, dispatches that are out, ends it remembers."""

from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self, TypeVar

from reach_worker.core.admission import Admitted
from reach_worker.core.cancel import CancelRequest
from reach_worker.core.dispatch import DISPATCH, Dispatch, unchanged
from reach_worker.core.duplicates import KnownTask
from reach_worker.core.envelope import Envelope, text
from reach_worker.core.gates import Ask
from reach_worker.core.message import Delivery
from reach_worker.ports import Joined, KnownDispatch, Row

T = TypeVar("T")

REMEMBERED: Final = 10_000
ANSWER_LIMIT: Final = 64 * 1024
"""Longer answers are not kept in memory; the store has them."""
ANSWERS_LIMIT: Final = 16 * 1024 * 1024
"""Bytes of answers that are kept in all; the oldest go first."""


@dataclass(slots=True)
class Waiting:
    """A task that waits for a slot. Its message is not acknowledged: nothing is lost if we are.

    ``since`` is monotonic seconds. ``rows`` are recorded with whatever happens to it next. ``unsent``: a dispatch of it
    was recorded first and then not sent.
    """

    admitted: Admitted
    ask: Ask
    delivery: Delivery
    since: float
    reason: str
    rows: list[Row] = field(default_factory=list)
    unsent: bool = False

    @property
    def capability(self) -> str:
        """The capability it asks for."""
        return self.ask.capability


@dataclass(slots=True)
class InFlight:
    """A dispatch that is out. ``admitted`` is ``None`` for one that an earlier process of this router sent.

    ``uncertain``: nobody knows whether the broker got it. ``started``: the agent said that it begins. ``rows``: what is
    to be recorded of it and was not yet. ``session``: the broker session that it was sent in; when that is over, another
    router may have got its outcome. ``headers``: what its message was sent with.
    """

    dispatch: Dispatch
    admitted: Admitted | None
    uncertain: bool = False
    started: bool = False
    rows: list[Row] = field(default_factory=list)
    session: int = -1
    headers: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def recovered(cls, known: KnownDispatch) -> Self:
        """A dispatch that an earlier process of this router recorded."""
        envelope = Envelope(known.task_id, known.task_id, known.capability, "", known.at, life=known.life)
        dispatch = Dispatch(
            envelope,
            known.dispatch_id,
            known.decision_id,
            known.agent_id,
            known.router,
            known.at,
            known.at,
            0,
        )
        return cls(dispatch, None, started=known.started)


@dataclass(slots=True)
class Hands:
    """The router's memory. All of it can be rebuilt from the broker and the store.

    ``closing`` (task ids with the life that ends or is parked) and ``settling`` (dispatch ids) hold what this turn has
    decided and not carried out yet: whatever comes a second time in one turn meets it there. ``joined``: who else waits
    for a task's answer, as the store knows it too, only sooner. ``recalled``: tasks that waited when their session
    ended, with a dispatch that was recorded and never sent: only we know that they are not under way. ``gone_on``:
    tasks that we sent on (to an agent, a lane, a rung), with their life; as the store knows it too, if it is there.
    ``answers``: bytes of the answers in ``ended``. ``joined_elsewhere``: second publishers of this turn, whose task
    another router has. ``cancel_requests``: tasks that somebody wants cancelled, by task id.
    """

    waiting: OrderedDict[str, Waiting] = field(default_factory=OrderedDict)
    waiting_for: Counter[str] = field(default_factory=Counter)
    in_flight: dict[str, InFlight] = field(default_factory=dict)
    by_task: dict[str, str] = field(default_factory=dict)
    ended: OrderedDict[str, KnownTask] = field(default_factory=OrderedDict)
    settled: OrderedDict[str, None] = field(default_factory=OrderedDict)
    judged: OrderedDict[str, None] = field(default_factory=OrderedDict)
    joined: OrderedDict[str, list[Joined]] = field(default_factory=OrderedDict)
    recalled: OrderedDict[str, Waiting] = field(default_factory=OrderedDict)
    gone_on: OrderedDict[str, int] = field(default_factory=OrderedDict)
    cancel_requests: OrderedDict[str, CancelRequest] = field(default_factory=OrderedDict)
    joined_elsewhere: list[Joined] = field(default_factory=list)
    closing: dict[str, int] = field(default_factory=dict)
    settling: set[str] = field(default_factory=set)
    answers: int = 0

    def begin_turn(self) -> None:
        """What the last turn decided is carried out, undone, or on its way: who decides on it again waits for that."""
        self.closing.clear()
        self.settling.clear()

    def wait(self, waiting: Waiting, *, first: bool = False) -> None:
        """Keep a task in the window."""
        task_id = waiting.ask.task_id
        if task_id not in self.waiting:
            self.waiting_for[waiting.capability] += 1
        self.waiting[task_id] = waiting
        if first:
            self.waiting.move_to_end(task_id, last=False)

    def take(self, task_id: str) -> Waiting:
        """Take a task out of the window."""
        waiting = self.waiting.pop(task_id)
        self.waiting_for[waiting.capability] -= 1
        return waiting

    def send(self, flight: InFlight) -> None:
        """Note a dispatch that goes out."""
        self.in_flight[flight.dispatch.dispatch_id] = flight
        self.by_task[flight.dispatch.envelope.task_id] = flight.dispatch.dispatch_id

    def land(self, dispatch_id: str) -> InFlight | None:
        """Take a dispatch off the list; ``None`` if it is not on it."""
        flight = self.in_flight.pop(dispatch_id, None)
        if flight is not None and self.by_task.get(flight.dispatch.envelope.task_id) == dispatch_id:
            del self.by_task[flight.dispatch.envelope.task_id]
        return flight

    def settle(self, dispatch_id: str) -> None:
        """Remember that a dispatch was settled: its outcome may come twice."""
        _remember(self.settled, dispatch_id, None)

    def judge(self, dispatch_id: str) -> bool:
        """Whether this dispatch's outcome may count for or against its agent: once."""
        if dispatch_id in self.judged:
            return False
        _remember(self.judged, dispatch_id, None)
        return True

    def end(self, known: KnownTask) -> None:
        """Remember how a task ended."""
        if known.answer is not None and len(known.answer) > ANSWER_LIMIT:
            known = replace(known, answer=None)
        self._forget_answer(self.ended.get(known.task_id))
        self.answers += len(known.answer or b"")
        if known.task_id not in self.ended and len(self.ended) >= REMEMBERED:
            self._forget_answer(next(iter(self.ended.values())))
        _remember(self.ended, known.task_id, known)
        self.ended.move_to_end(known.task_id)
        self.joined.pop(known.task_id, None)
        self.recalled.pop(known.task_id, None)
        self.gone_on.pop(known.task_id, None)
        self.cancel_requests.pop(known.task_id, None)
        for task_id, old in list(self.ended.items()) if self.answers > ANSWERS_LIMIT else ():
            if old.answer is not None:
                self.ended[task_id] = replace(old, answer=None)
                self._forget_answer(old)
            if self.answers <= ANSWERS_LIMIT // 2:
                break

    def _forget_answer(self, known: KnownTask | None) -> None:
        self.answers -= len(known.answer or b"") if known is not None else 0

    def go_on(self, task_id: str, life: int) -> None:
        """The broker has the task for certain, somewhere else than where it came from."""
        _remember(self.gone_on, task_id, life)

    def join(self, joined: Joined) -> None:
        """Somebody else waits for a task's answer. Who asks again with the same address is one."""
        there = self.joined.get(joined.task_id, [])
        if not any(_address(one) == _address(joined) for one in there):
            _remember(self.joined, joined.task_id, [*there, joined])

    def cancel(self, task_id: str, request: CancelRequest) -> None:
        """Somebody wants a task cancelled."""
        _remember(self.cancel_requests, task_id, request)

    def unwanted(self, envelope: Envelope, now: float) -> CancelRequest | None:
        """Who may do so has cancelled the task: the request."""
        request = self.cancel_requests.get(envelope.task_id)
        return request if request is not None and request.means(envelope, now) else None

    def of_task(self, task_id: str) -> InFlight | None:
        """The dispatch of a task that is out."""
        dispatch_id = self.by_task.get(task_id)
        return None if dispatch_id is None else self.in_flight.get(dispatch_id)

    def sent_with(self, headers: Mapping[str, Any]) -> Dispatch | None:
        """The dispatch that is out and whose headers an outcome brings back, if it changed none of them.

        What it says of the dispatch is then what we know already.
        """
        flight = self.in_flight.get(text(headers, DISPATCH) or "")
        if flight is None or not flight.headers or not unchanged(headers, flight.headers):
            return None
        return flight.dispatch

    def held(self) -> bool:
        """Anything waits or is out."""
        return bool(self.waiting or self.in_flight)

    def drop_stale(self, stale: Iterator[str]) -> None:
        """Forget waiting tasks whose messages the broker will deliver again."""
        for task_id in list(stale):
            waiting = self.take(task_id)
            if waiting.unsent:
                _remember(self.recalled, task_id, waiting)

    def recall(self, delivery: Delivery, task_id: str) -> Waiting | None:
        """The task that waited with this message before its session ended."""
        return self.recalled.pop(task_id, None) if delivery.redelivered else None


def _remember(memory: OrderedDict[str, T], name: str, item: T) -> None:
    memory[name] = item
    if len(memory) > REMEMBERED:
        memory.popitem(last=False)


def _address(joined: Joined) -> tuple[str, str | None]:
    return joined.reply_to, joined.correlation_id
