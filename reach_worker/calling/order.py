"""What a caller asks for, as a task that can be sent."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypedDict

from reach_worker.client import Client
from reach_worker.core.document import nearest
from reach_worker.core.message import Message
from reach_worker.core.task import LONGEST_DEADLINE_MS
from reach_worker.errors import BadInput


class Options(TypedDict, total=False):
    """The fields of a task beside capability and payload, as keywords; see the README's table.

    ``deadline``: seconds until it is worthless, by default the time-out of the call. ``intent`` is in place of a
    capability. ``traceparent``: the trace that it belongs to, see :mod:`reach_worker.calling.trace`.
    """

    task_id: str
    flow_id: str
    intent: str
    requires: Sequence[str]
    domain: str
    mode: Literal["single", "race", "fanout"]
    aggregate: Literal["all", "first_n", "vote"]
    first_n: int
    deadline: float | None
    max_cost: float
    side_effects: bool
    session_id: str
    metadata: Mapping[str, str]
    attachments: Sequence[Mapping[str, Any]]
    traceparent: str | None


EARLIER_S: Final = 2.0
"""So much before the caller's time is up a fan-out ends, at most: with the answers that are there, and who is missing."""
KNOWN: Final = frozenset(Options.__annotations__)


@dataclass(frozen=True, slots=True)
class Order:
    """A task that was checked. ``own_deadline``: it has none but the time-out of the call."""

    task_id: str
    flow_id: str
    body: bytes
    headers: Mapping[str, str]
    exchange: str
    user_id: str | None
    side_effects: bool = False
    own_deadline: bool = False

    def message(self, reply_to: str | None, mark: str | None) -> Message:
        """The task as it is published; its answer goes to ``reply_to`` under the mark."""
        return Message(
            self.task_id,
            self.body,
            self.headers,
            self.exchange,
            correlation_id=mark,
            reply_to=reply_to,
            user_id=self.user_id,
        )


@dataclass(frozen=True, slots=True)
class Wish:
    """What was asked for. ``timeout``: seconds that the caller waits, ``None``: for ever."""

    capability: str | None
    payload: Mapping[str, Any]
    options: Options
    timeout: float | None = None
    stream: bool = False


def order_from(wish: Wish, client: Client, headers: Mapping[str, str]) -> Order:
    """Check a wish. Raises :class:`BadInput` before anything is sent."""
    _refuse_unknown(wish.options)
    options: dict[str, Any] = {name: value for name, value in wish.options.items() if value is not None}
    options.pop("traceparent", None)
    deadline_ms = _deadline_ms(wish, options)
    fields = {
        "capability": wish.capability,
        **options,
        "deadline_ms": deadline_ms,
        "stream": wish.stream or None,
        "payload": wish.payload,
    }
    task = {name: _plain(value) for name, value in fields.items() if value is not None}
    task_id, body = client.prepare(task)
    return Order(
        task_id=task_id,
        flow_id=str(options.get("flow_id", task_id)),
        body=body,
        headers=headers,
        exchange=client.names.tasks,
        user_id=client.user_id,
        side_effects=bool(options.get("side_effects")),
        own_deadline="deadline" not in wish.options,
    )


def _refuse_unknown(options: Options) -> None:
    for name in options.keys() - KNOWN:
        close = nearest(name, KNOWN)
        raise BadInput(f"a call has no {name!r}" + (f", did you mean {close!r}?" if close else ""))


def _deadline_ms(wish: Wish, options: dict[str, Any]) -> int | None:
    """The task's deadline: what was said of it (``None``: it has none), else the time that the caller waits.

    At its deadline a fan-out does not end in vain, so there must be time left for its answer.
    """
    seconds = options.pop("deadline", None) if "deadline" in wish.options else wish.timeout
    if seconds is None:
        return None
    if not isinstance(seconds, int | float) or not seconds > 0:
        raise BadInput(f"the deadline is a number of seconds above 0, not {seconds!r}")
    if "deadline" not in wish.options and options.get("mode") == "fanout":
        seconds -= min(EARLIER_S, seconds / 4)
    return min(max(1, round(seconds * 1000)), LONGEST_DEADLINE_MS)


def _plain(value: Any) -> Any:
    """Sequences and mappings of any kind as JSON has them."""
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str | bytes) else value
