"""The messages between router and agent: the dispatch, its outcome, and its lease, as headers beside a body.

A dispatch carries the task's body untouched. An outcome carries all the dispatch's headers; its body is the result where
it succeeded and the task's own body otherwise (behind a handoff, if it is one), so that whoever settles it can route the
task again with nothing else in hand. A lease is a copy of a dispatch that waits on the broker in place of it while it
runs, see :mod:`core.long_run`.
"""

from collections.abc import Mapping
from typing import Any, Final

from reach_worker.core.envelope import BadHeaders, Envelope, envelope_from, number, passed_on, text
from reach_worker.core.outcome import Outcome, OutcomeClass, cut
from reach_worker.core.value import value

DISPATCH: Final = "x-reach-dispatch"
DECISION: Final = "x-reach-decision"
AGENT: Final = "x-reach-agent"
OWNER: Final = "x-reach-owner"
DISPATCHED_AT: Final = "x-reach-dispatched-at"
START_BY: Final = "x-reach-start-by"
TIMEOUT_MS: Final = "x-reach-timeout-ms"

OUTCOME: Final = "x-reach-outcome"
STARTED_NOTE: Final = "started"
"""The value of the outcome header that says no end, only that the handler is about to begin."""
SPOKE_NOTE: Final = "spoke"
"""The value that says no end either: the attempt has its first chunk, which decides its race."""
NOTES: Final = frozenset((STARTED_NOTE, SPOKE_NOTE))
MESSAGE: Final = "x-reach-message"
INSTANCE: Final = "x-reach-instance"
RETRY_AFTER_MS: Final = "x-reach-retry-after-ms"
DURATION_US: Final = "x-reach-duration-us"
STARTED: Final = "x-reach-started"
CRASHED: Final = "x-reach-crashed"
COST_MICROS: Final = "x-reach-cost-micros"
TOKENS_IN: Final = "x-reach-tokens-in"
TOKENS_OUT: Final = "x-reach-tokens-out"
CHUNKS: Final = "x-reach-chunks"

_KINDS: Final[Mapping[str, OutcomeClass]] = {kind.value: kind for kind in OutcomeClass}

LEASE: Final = "x-reach-lease"
"""The instance that runs the dispatch; marks a lease."""
DOUBTS: Final = "x-reach-doubts"
"""How often in a row nobody could say that it still runs."""
HANDOFF: Final = "x-reach-handoff"
"""So many bytes of an outcome's body tell where the task is handed on to; the task's own come after them."""
_ADDED: Final = frozenset(
    (
        OUTCOME,
        MESSAGE,
        INSTANCE,
        RETRY_AFTER_MS,
        DURATION_US,
        STARTED,
        CRASHED,
        COST_MICROS,
        TOKENS_IN,
        TOKENS_OUT,
        CHUNKS,
        LEASE,
        DOUBTS,
        HANDOFF,
    )
)
"""What outcomes and leases have beside the headers of their dispatch."""

_MICROS: Final = 1_000_000
"""Money travels in millionths: a header holds no fractions."""

LONGEST_REST_MS: Final = 24 * 3_600_000
"""An agent that asks for a longer rest gets so long: one wrong unit must not take it out for years."""


@value(frozen=True, slots=True)
class Dispatch:
    """One sending of a task to one agent. Times are UTC microseconds; ``timeout_ms`` runs from the handler's start."""

    envelope: Envelope
    dispatch_id: str
    decision_id: str
    agent_id: str
    owner: str
    dispatched_at: int
    start_by: int
    timeout_ms: int

    def headers(self) -> dict[str, str | int]:
        """The headers that carry it."""
        headers = self.envelope.headers()
        headers[DISPATCH] = self.dispatch_id
        headers[DECISION] = self.decision_id
        headers[AGENT] = self.agent_id
        headers[OWNER] = self.owner
        headers[DISPATCHED_AT] = self.dispatched_at
        headers[START_BY] = self.start_by
        headers[TIMEOUT_MS] = self.timeout_ms
        return headers


def dispatch_from(headers: Mapping[str, Any]) -> Dispatch | BadHeaders:
    """What :meth:`Dispatch.headers` wrote. Never raises."""
    envelope = envelope_from(headers)
    if isinstance(envelope, BadHeaders):
        return envelope
    dispatch_id, agent_id, owner = text(headers, DISPATCH), text(headers, AGENT), text(headers, OWNER)
    if not dispatch_id or not agent_id or not owner:
        return BadHeaders(f"{DISPATCH}, {AGENT} or {OWNER} is missing: this is no dispatch of a router")
    timeout_ms = number(headers, TIMEOUT_MS)
    if not timeout_ms:
        return BadHeaders(f"{TIMEOUT_MS} is missing: nobody could run this in no time")
    return Dispatch(
        envelope=envelope,
        dispatch_id=dispatch_id,
        decision_id=text(headers, DECISION) or "",
        agent_id=agent_id,
        owner=owner,
        dispatched_at=number(headers, DISPATCHED_AT) or envelope.first_seen,
        start_by=number(headers, START_BY) or 0,
        timeout_ms=timeout_ms,
    )


def unchanged(headers: Mapping[str, Any], sent: Mapping[str, Any]) -> bool:
    """An outcome brings back just the headers that its dispatch was ``sent`` with, beside its own."""
    added = len(_ADDED.intersection(headers))
    return len(headers) == len(sent) + added and sent.items() <= headers.items()


def outcome_headers(dispatch_headers: Mapping[str, Any], outcome: Outcome) -> dict[str, Any]:
    """The dispatch's own headers (only ours, whatever else came along stays behind) and how it ended."""
    headers = _of_dispatch(dispatch_headers)
    headers[OUTCOME] = outcome.outcome.value
    headers[INSTANCE] = outcome.instance_id
    if outcome.message:
        headers[MESSAGE] = cut(outcome.message)
    if outcome.retry_after_ms is not None:
        headers[RETRY_AFTER_MS] = outcome.retry_after_ms
    if outcome.duration_ms is not None:
        headers[DURATION_US] = int(outcome.duration_ms * 1000)
    if outcome.started:
        headers[STARTED] = 1
    if outcome.crashed:
        headers[CRASHED] = 1
    if outcome.cost and (micros := round(outcome.cost * _MICROS)):
        headers[COST_MICROS] = micros
    if outcome.tokens_in:
        headers[TOKENS_IN] = outcome.tokens_in
    if outcome.tokens_out:
        headers[TOKENS_OUT] = outcome.tokens_out
    if outcome.chunks:
        headers[CHUNKS] = outcome.chunks
    return headers


def lease_headers(
    dispatch_headers: Mapping[str, Any], instance_id: str, *, doubts: int = 0
) -> dict[str, Any]:
    """The dispatch's own headers, and who runs it."""
    return {**_of_dispatch(dispatch_headers), LEASE: instance_id, DOUBTS: doubts}


def outcome_from(headers: Mapping[str, Any], dispatch: Dispatch) -> Outcome | BadHeaders:
    """What :func:`outcome_headers` wrote about a dispatch. Never raises."""
    said = text(headers, OUTCOME) or ""
    kind = _KINDS.get(said)
    if kind is None:
        return BadHeaders(f"{OUTCOME} says {said!r}, which is no outcome class")
    duration, rest_ms = number(headers, DURATION_US), number(headers, RETRY_AFTER_MS)
    return Outcome(
        dispatch_id=dispatch.dispatch_id,
        task_id=dispatch.envelope.task_id,
        agent_id=dispatch.agent_id,
        instance_id=text(headers, INSTANCE) or "",
        outcome=kind,
        message=text(headers, MESSAGE) or "",
        retry_after_ms=None if rest_ms is None else min(rest_ms, LONGEST_REST_MS),
        duration_ms=None if duration is None else duration / 1000,
        started=bool(number(headers, STARTED)),
        crashed=bool(number(headers, CRASHED)),
        cost=(number(headers, COST_MICROS) or 0) / _MICROS,
        tokens_in=number(headers, TOKENS_IN) or 0,
        tokens_out=number(headers, TOKENS_OUT) or 0,
        chunks=number(headers, CHUNKS) or 0,
    )


def _of_dispatch(headers: Mapping[str, Any]) -> dict[str, Any]:
    """What a dispatch was sent with: our headers, and the caller's that travel on. Not what came to it on the way.

    Only what can be sent again: a text or a number.
    """
    kept = {
        name: word
        for name, word in headers.items()
        if name not in _ADDED and name.startswith("x-reach-") and isinstance(word, (str, int))
    }
    kept.update(passed_on(headers))
    return kept
