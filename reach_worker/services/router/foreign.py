"""Foreign workers at the router's door: their replies become outcomes as our own agents tell them. See core/foreign."""

import logging
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from reach_worker.core.dispatch import (
    DISPATCH,
    MESSAGE,
    OUTCOME,
    OWNER,
    RETRY_AFTER_MS,
    Dispatch,
    dispatch_from,
    outcome_headers,
)
from reach_worker.core.duplicates import KnownTask
from reach_worker.core.envelope import PASSED_ON, BadHeaders, number, text
from reach_worker.core.foreign import (
    BY_CONSUMERS,
    WAIT_AT_MOST_S,
    WAIT_S,
    WAITS_FOR,
    WAITS_SINCE,
    answers,
    is_lease,
    is_reply,
    time_is_up,
    told_by,
    word_of,
)
from reach_worker.core.long_run import DOUBT_S, LEASE_S
from reach_worker.core.message import Delivery, Message
from reach_worker.core.outcome import Outcome, OutcomeClass
from reach_worker.core.recovery import MICROSECONDS
from reach_worker.ports import ConsumingBus, KnownDispatch, Sent, Store
from reach_worker.services.effects import Step
from reach_worker.services.router.desk import Desk
from reach_worker.services.router.hands import InFlight
from reach_worker.services.router.messages import dead_letter_of_outcome, lease_message, waiting_reply
from reach_worker.services.router.settle import Settlement
from reach_worker.services.router.told import found_out

log = logging.getLogger(__name__)

KEPT_AT_MOST: Final = 1_000
KEPT_S: Final = 4 * LEASE_S
"""What a lease told is kept until it comes again, or should have."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """A dispatch with its task's body. ``at``, ``since``: when its lease told it last, and first, monotonic seconds."""

    dispatch: Dispatch
    body: bytes
    at: float = 0.0
    since: float = 0.0


class Foreign:
    """Writes replies and leases anew for whoever settles outcomes."""

    def __init__(self, desk: Desk, bus: ConsumingBus, settlement: Settlement, store: Store) -> None:
        self._desk = desk
        self._bus = bus
        self._settlement = settlement
        self._store = store
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._unsent: list[tuple[Delivery, str]] = []
        self._stranded: list[Delivery] = []

    async def came_back(self, deliveries: Sequence[Delivery]) -> tuple[list[Delivery], list[Step]]:
        """What came by ``returns``: leases and waiting replies go on to their owner's outcomes; the others are left."""
        unsent, self._unsent = self._unsent, []
        steps = [self._forward(each, queue) for each, queue in unsent if self._bus.current(each)]
        others = [each for each in deliveries if not is_lease(each) and WAITS_FOR not in each.headers]
        if len(others) == len(deliveries):
            return others, steps
        leases, bad = _leases([each for each in deliveries if is_lease(each)])
        over = await self._over(leases)
        steps += [Step([lease]) for dispatch, lease in leases if dispatch.dispatch_id in over]
        steps += [
            self._forward(lease, self._desk.names.outcomes(dispatch.owner))
            for dispatch, lease in leases
            if dispatch.dispatch_id not in over
        ]
        replies = [each for each in deliveries if WAITS_FOR in each.headers]
        steps += [self._forward(reply, text(reply.headers, WAITS_FOR) or "") for reply in replies]
        return [*others, *bad], steps

    async def read(self, deliveries: Sequence[Delivery]) -> tuple[list[Delivery], list[Step]]:
        """What came to the outcomes queues, as outcomes; and what is done with what is none (yet)."""
        stranded, self._stranded = self._stranded, []
        all_of_them = [*deliveries, *(each for each in stranded if self._bus.current(each))]
        leases, bad = _leases([each for each in all_of_them if is_lease(each)])
        replies = [each for each in all_of_them if is_reply(each)]
        if not leases and not replies:
            return all_of_them, []
        outcomes = [each for each in all_of_them if not is_lease(each) and not is_reply(each)] + bad
        over = await self._over(leases)
        open_leases = [(dispatch, lease) for dispatch, lease in leases if dispatch.dispatch_id not in over]
        for dispatch, lease in open_leases:
            self._keep(dispatch, lease.body)
        steps = [Step([lease]) for dispatch, lease in leases if dispatch.dispatch_id in over]
        said, unknown = await self._replied(replies)
        steps += [self._wait(reply) for reply in unknown]
        steps += [self._forward(each, self._owners(each)) for each in said if _to_be_sent(each)]
        said = [each for each in said if not _to_be_sent(each)]
        replied = {answers(reply) for reply in replies}
        for dispatch, lease in open_leases:
            time_is_up = self._time_is_up(dispatch)
            if not time_is_up or dispatch.dispatch_id in replied or self._may_come(dispatch):
                steps.append(self._park(lease, DOUBT_S if time_is_up else LEASE_S))
            else:
                said.append(self._timed_out(dispatch, lease))
        return [*outcomes, *said], steps

    # -- replies

    async def _replied(self, replies: Sequence[Delivery]) -> tuple[list[Delivery], list[Delivery]]:
        """The outcomes that they are, and the replies whose dispatch is not known here."""
        here = {id(reply): self._known_here(answers(reply) or "") for reply in replies}
        strange = [answers(reply) or "" for reply in replies if here[id(reply)] is None]
        stored = await self._late(strange)
        outcomes, unknown = [], []
        for reply in replies:
            found = here[id(reply)] or stored.get(answers(reply) or "")
            if found is None:
                unknown.append(reply)
            else:
                outcomes.append(_outcome(reply, told_by(reply, found.dispatch, self._since(found)), found))
        return outcomes, unknown

    def _known_here(self, dispatch_id: str) -> _Kept | None:
        flight = self._desk.hands.in_flight.get(dispatch_id)
        if flight is not None and flight.admitted is not None:
            return _Kept(flight.dispatch, flight.admitted.body)
        return self._kept.get(dispatch_id)

    async def _late(self, dispatch_ids: Sequence[str]) -> dict[str, _Kept]:
        """Those that are over, as far as the store knows: their replies only have to be recorded."""
        known = await self._store.known_dispatches(dispatch_ids) if dispatch_ids else {}
        tasks = await self._store.known_tasks([each.task_id for each in known.values()]) if known else {}
        return {
            each.dispatch_id: _recovered(each)
            for each in known.values()
            if _over(each, self._desk.hands.ended.get(each.task_id) or tasks.get(each.task_id))
        }

    def _since(self, found: _Kept) -> float | None:
        """Milliseconds since it was sent, where we have it in our hands: the wait in its queue counts, nobody sees it."""
        if found.dispatch.dispatch_id not in self._desk.hands.in_flight or found.at:
            return None
        return max(0.0, (self._desk.clock.utc_us() - found.dispatch.dispatched_at) / 1000)

    def _wait(self, reply: Delivery) -> Step:
        """Its dispatch may become known when the lease comes by; a reply that is nobody's is kept for a person."""
        now_us, dispatch_id = self._desk.clock.utc_us(), answers(reply) or ""
        since = number(reply.headers, WAITS_SINCE) or now_us
        if now_us - since >= WAIT_AT_MOST_S * MICROSECONDS:
            error = f"a reply with the correlation id {dispatch_id!r}, which no dispatch has"
            log.error("an outcome cannot be read: %s", error)
            envelope_id = self._desk.clock.new_id()
            letter = dead_letter_of_outcome(self._desk.names, envelope_id, reply.body, error, now_us)
            return Step([reply], send=[letter])
        headers: dict[str, Any] = {
            DISPATCH: dispatch_id,
            WAITS_FOR: text(reply.headers, WAITS_FOR) or reply.queue,
            WAITS_SINCE: since,
        }
        said = {
            OUTCOME: word_of(reply),
            MESSAGE: text(reply.headers, MESSAGE),
            RETRY_AFTER_MS: number(reply.headers, RETRY_AFTER_MS),
        }
        headers |= {name: value for name, value in said.items() if value is not None}
        return Step([reply], send=[waiting_reply(self._desk.names, reply, headers, WAIT_S)])

    # -- leases

    async def _over(self, leases: Sequence[tuple[Dispatch, Delivery]]) -> set[str]:
        """Those whose dispatch is settled. What this turn settles may still be undone."""
        found = await self._settlement.over([dispatch for dispatch, _ in leases]) if leases else {}
        return found.keys() - self._desk.hands.settling

    def _keep(self, dispatch: Dispatch, body: bytes) -> None:
        now = self._desk.clock.monotonic()
        before = self._kept.pop(dispatch.dispatch_id, None)
        since = now if before is None else before.since
        self._kept[dispatch.dispatch_id] = _Kept(dispatch, body, now, since)
        while len(self._kept) > KEPT_AT_MOST or next(iter(self._kept.values())).at < now - KEPT_S:
            self._kept.popitem(last=False)

    def _time_is_up(self, dispatch: Dispatch) -> bool:
        """For a dispatch for which nobody's clock runs."""
        flight = self._desk.hands.in_flight.get(dispatch.dispatch_id)
        ours = flight is not None and flight.admitted is not None
        now_us = self._desk.clock.utc_us()
        return not ours and time_is_up(dispatch, now_us, self._desk.policies.timeouts)

    def _may_come(self, dispatch: Dispatch) -> bool:
        """Its reply may wait on a rung for us to know the dispatch, which we have not done for long."""
        kept = self._kept.get(dispatch.dispatch_id)
        return kept is None or self._desk.clock.monotonic() - kept.since < 2 * WAIT_S

    def _timed_out(self, dispatch: Dispatch, lease: Delivery) -> Delivery:
        waited_s = (self._desk.clock.utc_us() - dispatch.dispatched_at) / MICROSECONDS
        error = f"no reply from {dispatch.agent_id} for {waited_s:.0f} s"
        log.warning("dispatch %s is given up: %s", dispatch.dispatch_id, error)
        outcome = found_out(dispatch, OutcomeClass.TIMEOUT, error, started=True)
        return _outcome(lease, outcome, _Kept(dispatch, lease.body))

    def _park(self, lease: Delivery, delay_s: float) -> Step:
        return Step([lease], send=[lease_message(self._desk.names, lease, BY_CONSUMERS, delay_s, 0)])

    def _owners(self, outcome: Delivery) -> str:
        return self._desk.names.outcomes(text(outcome.headers, OWNER) or self._desk.router_id)

    def _forward(self, delivery: Delivery, queue: str) -> Step:
        """To its owner, or whoever stands in for it; to us, where there is no such queue any more."""
        headers = {name: word for name, word in delivery.headers.items() if _travels(name)}
        message = Message(queue, delivery.body, headers, content_type=delivery.content_type)
        step = Step([delivery], send=[message])

        def unsent(worst: Sent) -> None:
            if worst is Sent.UNROUTABLE:
                self._stranded.append(delivery)
            else:
                self._unsent.append((delivery, queue))

        step.undo = unsent
        return step


def _leases(deliveries: Sequence[Delivery]) -> tuple[list[tuple[Dispatch, Delivery]], list[Delivery]]:
    """Leases with what they are of; those that cannot be read."""
    read = [(dispatch_from(each.headers), each) for each in deliveries]
    good = [(dispatch, each) for dispatch, each in read if not isinstance(dispatch, BadHeaders)]
    return good, [each for dispatch, each in read if isinstance(dispatch, BadHeaders)]


def _to_be_sent(outcome: Delivery) -> bool:
    """No success, and not over: it goes on from its message, which must hold the task before anybody acts on it."""
    return bool(outcome.body) and outcome.headers[OUTCOME] != OutcomeClass.SUCCEEDED.value


def _travels(header: str) -> bool:
    """What the broker wrote when a rung's time was up stays behind."""
    return header.startswith("x-reach-") or header in PASSED_ON


def _over(known: KnownDispatch, task: KnownTask | None) -> bool:
    """It was settled, or its task has ended; and nothing goes on from it that was recorded and never sent."""
    if task is None or task.life != known.life:
        return known.settled
    return task.over or (known.settled and not task.stopped_at(known.dispatch_id))


def _recovered(known: KnownDispatch) -> _Kept:
    """A dispatch as the store has it: good enough where it is over."""
    return _Kept(replace(InFlight.recovered(known).dispatch, timeout_ms=1), b"", -1.0)


def _outcome(delivery: Delivery, outcome: Outcome, found: _Kept) -> Delivery:
    """The message as one of our own agents would have written it: with all headers, and the task unless it is done."""
    body = delivery.body if outcome.outcome is OutcomeClass.SUCCEEDED else found.body
    return replace(delivery, headers=outcome_headers(found.dispatch.headers(), outcome), body=body)
