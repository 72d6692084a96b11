"""From a message to a task: what came from the public queue, and what came back from our own."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from reach_worker.core.envelope import ANONYMOUS, FLOW, BadHeaders, Envelope, envelope_from, passed_on, text
from reach_worker.core.gates import Ask
from reach_worker.core.handoff import HandoffPolicy, too_far
from reach_worker.core.message import Delivery
from reach_worker.core.names import Names
from reach_worker.core.outcome import DeadLetterReason, cut
from reach_worker.core.reply_address import why_not_answered
from reach_worker.core.tags import TagTable, fold
from reach_worker.core.task import (
    LONGEST_DEADLINE_MS,
    LONGEST_ID,
    OURS,
    Refusal,
    Task,
    decode_task,
    usable_id,
)
from reach_worker.core.value import value
from reach_worker.core.visits import been_at, work_name

CALL: Final = "x-reach-call"
"""Marks a task that an agent calls for, on its way to the routers: it is new, and may come twice, as if published."""

_SECOND_US: Final = 1_000_000


@value(frozen=True, slots=True)
class Admitted:
    """A task that can be routed."""

    envelope: Envelope
    task: Task
    body: bytes

    @property
    def for_several(self) -> bool:
        """It is a race or a fan-out, and not a leg of one."""
        return self.task.mode != "single" and self.envelope.group is None


@value(frozen=True, slots=True)
class Refused:
    """A message that cannot. It has an envelope all the same: dead letters are answered, shown and replayed by it."""

    envelope: Envelope
    reason: DeadLetterReason
    error: str
    body: bytes


def admit_public(
    delivery: Delivery, *, now_us: int, new_id: Callable[[], str], max_bytes: int, names: Names
) -> Admitted | Refused:
    """A message from the public queue. Its ``x-reach-*`` headers are not believed. Never raises."""
    message_id = _message_id(delivery)
    refusal = _refuse_properties(delivery, names)
    if refusal is not None:
        envelope = _published(delivery, message_id or new_id(), now_us)
        return _refused(replace(envelope, reply_to=None), refusal, delivery)
    task = decode_task(delivery.body, max_bytes=max_bytes, content_encoding=delivery.content_encoding)
    if isinstance(task, Refusal):
        return _refused(_published(delivery, message_id or new_id(), now_us), task, delivery)
    envelope = _published(delivery, task.task_id or message_id or new_id(), now_us, task)
    if task.handoff is not None:
        return _refused(envelope, HANDED_BY_NOBODY, delivery)
    if task.task_id is None and OURS in (delivery.message_id or ""):
        return _refused(envelope, ID_OF_OURS, delivery)
    if task.side_effects and not has_own_id(task, delivery):
        return _refused(envelope, NEEDS_ID, delivery)
    return Admitted(envelope, task, delivery.body)


def _published(delivery: Delivery, task_id: str, now_us: int, task: Task | None = None) -> Envelope:
    """What travels with it; without the task where there is none in its body."""
    return Envelope(
        task_id=task_id,
        flow_id=task_id if task is None else task.flow_id or task_id,
        capability="" if task is None else _capability(task),
        caller=delivery.user_id or ANONYMOUS,
        first_seen=now_us,
        deadline=None if task is None else _deadline(task, delivery, now_us),
        side_effects=task is not None and task.side_effects,
        reply_to=delivery.reply_to,
        correlation_id=delivery.correlation_id,
        content_type=delivery.content_type,
        passed_on=passed_on(delivery.headers),
    )


HANDED_BY_NOBODY: Final = Refusal(
    DeadLetterReason.INVALID,
    "field 'handoff' is written by routers, where an agent hands a task on; your own fields go into metadata",
)

ID_OF_OURS: Final = Refusal(
    DeadLetterReason.INVALID,
    f"the message id, which is the task's, must hold no {OURS!r}: it marks the tasks that routers and agents make "
    "themselves",
)

NEEDS_ID: Final = Refusal(
    DeadLetterReason.INVALID,
    "a task with side effects brings its own id (the message id or the field task_id), so that it can never run twice",
)


ONE_AGENT: Final = Refusal(
    DeadLetterReason.INVALID,
    "its capability has side effects, so it goes to one agent only: mode 'single', neither 'race' nor 'fanout'",
)


def has_own_id(task: Task, delivery: Delivery) -> bool:
    """The publisher named the task: publishing it again can be told from another task."""
    return task.task_id is not None or _message_id(delivery) is not None


def admit_internal(
    delivery: Delivery, *, now_us: int, new_id: Callable[[], str], max_bytes: int
) -> Admitted | Refused:
    """A task that came back by one of our own queues: a retry, a lane, a replay. Its headers are believed. Never raises.

    Its body is read anew: a person may have mended it.
    """
    envelope = envelope_from(delivery.headers)
    if isinstance(envelope, BadHeaders):
        task_id = _message_id(delivery) or new_id()
        blank = Envelope(task_id, task_id, "", delivery.user_id or ANONYMOUS, now_us)
        return Refused(blank, DeadLetterReason.INVALID, envelope.error, delivery.body)
    if envelope.from_agent is not None and text(delivery.headers, FLOW) is None:
        return _refused(envelope, NO_FLOW, delivery)
    task = decode_task(delivery.body, max_bytes=max_bytes)
    if isinstance(task, Refusal):
        return _refused(envelope, task, delivery)
    side_effects = envelope.side_effects or task.side_effects
    return Admitted(
        replace(envelope, capability=_capability(task), side_effects=side_effects), task, delivery.body
    )


NO_FLOW: Final = Refusal(
    DeadLetterReason.INVALID,
    f"it comes from an agent and names no flow ({FLOW}): nobody could tell what it belongs to; "
    "context.call() sets it",
)


def admit_call(
    delivery: Delivery, *, now_us: int, new_id: Callable[[], str], max_bytes: int, limits: HandoffPolicy
) -> Admitted | Refused:
    """A task that an agent calls for in the middle of its own, by our own queue for the first time. Never raises.

    Its headers are believed. Its deadline counts from here: no clock of an agent's is compared with a router's.
    """
    read = admit_internal(delivery, now_us=now_us, new_id=new_id, max_bytes=max_bytes)
    if isinstance(read, Refused):
        return read
    envelope, deadline_ms = read.envelope, read.task.deadline_ms
    deadline = None if deadline_ms is None else now_us + deadline_ms * 1000
    envelope = replace(envelope, first_seen=now_us, deadline=deadline)
    if envelope.hops > limits.hops:
        chain = " → ".join((*envelope.chain(), envelope.capability))
        refusal = Refusal(DeadLetterReason.HOP_LIMIT, f"{too_far(limits)}: {chain}")
        return _refused(envelope, refusal, delivery)
    return replace(read, envelope=envelope)


def ask_of(admitted: Admitted, tags: TagTable) -> Ask:
    """What the choice of an agent needs to know of the task, in normalised spelling."""
    envelope, task = admitted.envelope, admitted.task
    return Ask(
        task_id=envelope.task_id,
        capability=envelope.capability,
        payload=task.payload,
        requires=tuple(dict.fromkeys(map(tags.normalise, task.requires))),
        domain=fold(task.domain) if task.domain is not None else None,
        caller=envelope.caller,
        max_cost=task.max_cost,
        excluded=envelope.excluded(),
        rejected_by=envelope.rejected_by(),
        to_agent=envelope.to_agent,
        from_agent=envelope.from_agent,
        visited=_visited(admitted),
        session_id=task.session_id,
        attempt=envelope.next_attempt,
    )


def _visited(admitted: Admitted) -> frozenset[str]:
    """Agents that handed on this very work before. Who calls for itself once more is stopped by the hops alone."""
    envelope, task = admitted.envelope, admitted.task
    if task.handoff is None:
        return frozenset()
    try:
        return been_at(envelope.visited, work_name(envelope.capability, task.payload))
    except ValueError:
        return frozenset()


def _refused(envelope: Envelope, refusal: Refusal, delivery: Delivery) -> Refused:
    return Refused(envelope, refusal.reason, refusal.error, delivery.body)


def _refuse_properties(delivery: Delivery, names: Names) -> Refusal | None:
    if delivery.fault is not None:
        return Refusal(
            DeadLetterReason.UNDECODABLE, f"the message properties cannot be decoded: {delivery.fault}"
        )
    why = why_not_answered(delivery.reply_to, names) if delivery.reply_to else None
    return None if why is None else Refusal(DeadLetterReason.INVALID, why)


def _deadline(task: Task, delivery: Delivery, now_us: int) -> int | None:
    """The earlier of the task's deadline and the message's expiration, from its timestamp where it has one.

    AMQP's timestamps are cut to whole seconds, so one second is added; and no clock that runs ahead gains time by it.
    """
    limits = [ms for ms in (task.deadline_ms, delivery.expiration_ms) if ms is not None]
    if not limits:
        return None
    start = now_us
    if delivery.timestamp_s is not None:
        start = min(now_us, max(0, int(delivery.timestamp_s) + 1) * _SECOND_US)
    return start + min(*limits, LONGEST_DEADLINE_MS) * 1000


def _capability(task: Task) -> str:
    """The capability in the one spelling that manifests have. What is no id matches none of them, however long it is."""
    return cut(fold(task.capability or ""), LONGEST_ID)


def _message_id(delivery: Delivery) -> str | None:
    given = delivery.message_id
    return given if given is not None and usable_id(given) and OURS not in given else None
