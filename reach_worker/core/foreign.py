"""Foreign workers: they consume an agent's queue and reply, and know nothing of us.

They send no heartbeat, so that their queue has a consumer is what is known of them: together they are one instance, with
the slots that the manifest declares. What they are sent is a dispatch like any other, and what they reply is its outcome:
the correlation id, echoed, names the dispatch, and the body is the result. A reply that is no success says so in the
header ``x-reach-outcome``, with its text in ``x-reach-message`` or in its body.

Our own agents send a task back with every outcome that is no success, and park a lease of what takes long. These cannot,
so the router parks one beside each dispatch, before it. It comes back every LEASE_S until the dispatch is settled, to
the router that owns it: one that began anew meanwhile learns from it what was sent, and may settle the reply. Where
none came, and that router's own clock does not run, the lease ends the attempt once it had all the time it may take.
So a task is on its agent's queue, in a reply, or both, and beside that on a rung, until it is settled.
"""

from typing import Final

from reach_worker.core.dispatch import (
    DISPATCH,
    INSTANCE,
    LEASE,
    LONGEST_REST_MS,
    MESSAGE,
    NOTES,
    OUTCOME,
    RETRY_AFTER_MS,
    Dispatch,
)
from reach_worker.core.envelope import number, text
from reach_worker.core.manifest import Manifest
from reach_worker.core.message import Delivery
from reach_worker.core.outcome import TEXT_LIMIT, Outcome, OutcomeClass, cut
from reach_worker.core.presence import Heartbeat
from reach_worker.core.recovery import MICROSECONDS, TimeoutPolicy

BY_CONSUMERS: Final = "consumers"
"""The one instance that the consumers of a queue are; also who has such a lease."""
WAITS_FOR: Final = "x-reach-reply-for"
"""The outcomes queue for which a reply waits on a rung, until its dispatch is known there."""
WAITS_SINCE: Final = "x-reach-reply-since"
WAIT_S: Final = 2.0
"""A reply whose dispatch is not known (yet) is looked at again after so long. A rung."""
WAIT_AT_MOST_S: Final = 120.0
"""And after so long it is nobody's. Longer than a lease is away, and a router needs to begin."""
_UNRUN: Final = frozenset((OutcomeClass.RELEASED, OutcomeClass.REJECTED, OutcomeClass.RATE_LIMITED))
"""By these words the worker did not begin."""


def is_foreign(manifest: Manifest) -> bool:
    """Its workers only consume: they say nothing of themselves."""
    return manifest.presence == "consumers"


def beat_of(manifest: Manifest) -> Heartbeat:
    """What its consumers would say, if they said anything."""
    return Heartbeat(
        agent_id=manifest.id,
        instance_id=BY_CONSUMERS,
        mailbox="",
        capacity=manifest.max_concurrency,
        running=(),
        manifest_hash=manifest.hash,
        version=manifest.version,
        stopping=False,
        consuming=True,
    )


def is_reply(delivery: Delivery) -> bool:
    """An outcome that none of our own agents and routers wrote: those say which instance it was, even if none."""
    headers = delivery.headers
    if INSTANCE in headers or LEASE in headers or text(headers, OUTCOME) in NOTES:
        return False
    return answers(delivery) is not None


def answers(reply: Delivery) -> str | None:
    """The dispatch that a reply is of, by its word."""
    return text(reply.headers, DISPATCH) if WAITS_FOR in reply.headers else reply.correlation_id


def is_lease(delivery: Delivery) -> bool:
    """A lease that a router parked beside a dispatch."""
    return delivery.headers.get(LEASE) == BY_CONSUMERS and OUTCOME not in delivery.headers


def word_of(reply: Delivery) -> str | None:
    """What its header says of the outcome, ``None`` where it has none: it went well. What is no text is no such word."""
    return (text(reply.headers, OUTCOME) or "") if OUTCOME in reply.headers else None


def told_by(reply: Delivery, dispatch: Dispatch, duration_ms: float | None) -> Outcome:
    """What a reply says of its dispatch. ``duration_ms``: from sending to now, if the router was there all the time.

    Whatever it says, it is an end: a word that is no outcome class is ``failed``, and so is a handoff, which takes more
    than a word.
    """
    kind, message = _kind(word_of(reply))
    if kind is not OutcomeClass.SUCCEEDED:
        said = text(reply.headers, MESSAGE) or reply.body[: 4 * TEXT_LIMIT].decode("utf-8", "replace")
        message = cut(": ".join(part for part in (message, said) if part))
    rest_ms = number(reply.headers, RETRY_AFTER_MS)
    return Outcome(
        dispatch_id=dispatch.dispatch_id,
        task_id=dispatch.envelope.task_id,
        agent_id=dispatch.agent_id,
        instance_id=BY_CONSUMERS,
        outcome=kind,
        message=message,
        retry_after_ms=None if rest_ms is None else min(rest_ms, LONGEST_REST_MS),
        duration_ms=duration_ms if kind is OutcomeClass.SUCCEEDED else None,
        started=kind not in _UNRUN,
    )


def _kind(said: str | None) -> tuple[OutcomeClass, str]:
    """The outcome class that was meant, and what is wrong with the word."""
    if said is None:
        return OutcomeClass.SUCCEEDED, ""
    try:
        kind = OutcomeClass(said)
    except ValueError:
        return OutcomeClass.FAILED, f"{OUTCOME} says {cut(said, 40)!r}, which is no outcome class"
    if kind is OutcomeClass.HANDOFF:
        return OutcomeClass.FAILED, "a worker that only replies cannot hand a task on"
    return kind, ""


def time_is_up(dispatch: Dispatch, now_us: int, policy: TimeoutPolicy) -> bool:
    """It had all the time that it may take, and its router, if that lived, has given it up by its own clock."""
    longest_s = policy.pickup_s + dispatch.timeout_ms / 1000 + 2 * policy.backstop_s
    return now_us >= dispatch.dispatched_at + int(longest_s * MICROSECONDS)
