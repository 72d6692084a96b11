"""Findings about what AMQP does not tell: policies that change queues of ours, and bindings that are not there."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from reach_worker.core.diagnosis import Finding, Severity
from reach_worker.core.names import Names

_LENGTHS: Final = frozenset(("max-length", "max-length-bytes", "max-in-memory-length", "max-in-memory-bytes"))


def of_policy(names: Names, queue: str, policy: str, definition: Mapping[str, Any]) -> Iterator[Finding]:
    """What a policy does to one of our queues."""
    advice = f"take it out of policy {policy!r}, or let its pattern leave out {names.prefix!r}"
    for key, value in sorted(definition.items()):
        finding = _of_key(names, queue, key, value)
        if finding is not None:
            severity, effect = finding
            yield Finding(severity, queue, f"policy {policy!r} sets {key} to {value!r}: {effect}", advice)


def of_bindings(wanted: Iterable[tuple[str, str]], found: Collection[tuple[str, str]]) -> Iterator[Finding]:
    """Exchanges that do not reach the queue they should. Both are pairs of exchange and queue."""
    for exchange, queue in wanted:
        if (exchange, queue) not in found:
            what = f"it is not bound to {queue}: what is published there does not arrive"
            yield Finding(Severity.ERROR, exchange, what, "start a router, or run `reach topology declare`")


def _of_key(names: Names, queue: str, key: str, value: object) -> tuple[Severity, str] | None:
    match key:
        case "expires":
            return Severity.ERROR, "the queue is deleted with all that is in it when nobody uses it"
        case "message-ttl" if not queue.startswith(f"{names.prefix}.retry."):
            return Severity.ERROR, "tasks that wait longer are taken out by the broker"
        case "message-ttl":
            return Severity.WARNING, "retries come sooner than they should where it is shorter"
        case "delivery-limit" if queue in (names.dlq, names.unmatched):
            return Severity.ERROR, "looking at the queue so often removes what is in it"
        case "delivery-limit":
            return Severity.WARNING, "the lower one counts: tasks are given up after so many restarts"
        case "overflow" if value != "reject-publish":
            return (
                Severity.ERROR,
                "it goes over ours: a full queue drops tasks, and what is given up may be lost",
            )
        case "dead-letter-exchange" | "dead-letter-routing-key" if queue in (names.dlq, names.unmatched):
            return Severity.WARNING, "what is removed there goes elsewhere"
        case _ if key in _LENGTHS:
            return Severity.INFO, "publishers wait or are refused when it is full, nothing is lost"
        case _:
            return None
