"""What a test makes go wrong."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol

from reach_worker.core.document import nearest
from reach_worker.core.message import Delivery, Message
from reach_worker.core.names import Names
from reach_worker.errors import BadInput, Problem
from reach_worker.ports import Sent

CALL_TIMEOUT_S: Final = 10.0
"""A confirm that takes so long is given up, as on RabbitMQ: nobody knows whether the message arrived."""
KINDS: Final = ("intake", "returns", "retry", "lane", "agent", "outcomes", "unmatched", "dlq")


class Fate(Enum):
    """What becomes of a message that is published. ``LOST`` and ``STORED`` look the same from outside: uncertain."""

    CONFIRMED = Sent.CONFIRMED
    UNROUTABLE = Sent.UNROUTABLE
    REFUSED = Sent.REFUSED
    LOST = "lost"
    STORED = "stored"


class Moment(Enum):
    """When something may be made to happen."""

    BEFORE_PUBLISH = "before_publish"
    AFTER_PUBLISH = "after_publish"
    BEFORE_ACK = "before_ack"


@dataclass(slots=True)
class ClientFaults:
    """What is still to go wrong for one client: fates by a part of the routing key, actions by their moment."""

    fates: list[tuple[str, Fate]] = field(default_factory=list)
    actions: list[tuple[Moment, Callable[[], None]]] = field(default_factory=list)

    def fate_of(self, message: Message) -> Fate:
        """The next fate that is meant for such a message."""
        for index, (to, fate) in enumerate(self.fates):
            if to in message.routing_key:
                del self.fates[index]
                return fate
        return Fate.CONFIRMED

    def reach(self, moment: Moment) -> None:
        """Do what was to be done at this moment."""
        due = [action for when, action in self.actions if when is moment]
        self.actions = [(when, action) for when, action in self.actions if when is not moment]
        for action in due:
            action()


class Client(Protocol):
    """A connection, as far as faults reach it."""

    name: str

    def end_session(self) -> None:
        """End its session; it begins a new one."""
        ...

    def consumes_from(self, queue: str) -> bool:
        """It has a consumer at the queue now."""
        ...


@dataclass(eq=False, slots=True)
class _Fault:
    """Something that is still to go wrong, ``left`` times. ``seconds``: of a slow confirm. ``fate``: of a publish."""

    kind: str
    queue: str
    left: int
    fate: Fate = Fate.CONFIRMED
    seconds: float = 0.0
    dies: bool = False
    held: list[Delivery] = field(default_factory=list)


class Faults:
    """What is still to go wrong at a broker in memory, whoever it meets.

    A ``queue`` is named as in ``reach topology show``, with or without the prefix; ``agent`` or ``outcomes`` alone
    means any of that kind. Each fault happens ``times`` times and is over then; :attr:`waiting` shows what has not
    happened yet. Names are checked: a fault that could never happen raises :class:`BadInput`.
    """

    def __init__(self, names: Names, clients: list[Client]) -> None:
        self._names = names
        self._clients = clients
        self._faults: list[_Fault] = []
        self.call_at: Callable[[float, Callable[[], None]], None] = lambda _after_s, _call: None
        self.on_death: Callable[[Client], None] = lambda client: client.end_session()

    @property
    def waiting(self) -> list[str]:
        """What has not happened yet."""
        return [f"{fault.kind} at {fault.queue}, {fault.left} times" for fault in self._faults]

    # -- messages on their way

    def duplicate(self, queue: str, *, times: int = 1) -> None:
        """The next messages arrive twice."""
        self._add(_Fault("duplicate", queue, times))

    def reorder(self, queue: str, *, count: int = 2) -> None:
        """The next ``count`` messages arrive in the opposite order; after a second those that came do."""
        self._add(_Fault("reorder", queue, count))

    def unroutable(self, queue: str, *, times: int = 1) -> None:
        """The next messages that are published to it come back: the queue cannot be found."""
        self._add(_Fault("unroutable", queue, times, Fate.UNROUTABLE))

    def refuse(self, queue: str, *, times: int = 1) -> None:
        """The broker does not take the next messages that are published to it."""
        self._add(_Fault("refuse", queue, times, Fate.REFUSED))

    def uncertain(self, queue: str, *, times: int = 1, arrives: bool = True) -> None:
        """The confirm of the next messages is lost, with the session; the message itself only if not ``arrives``."""
        self._add(_Fault("uncertain", queue, times, Fate.STORED if arrives else Fate.LOST))

    def slow_confirm(self, queue: str, seconds: float, *, times: int = 1) -> None:
        """The next messages arrive at once, and their confirm so much later; from ten seconds on it is given up."""
        self._add(_Fault("slow confirm", queue, times, seconds=seconds))

    # -- consumers

    def drop_before_ack(self, queue: str, *, times: int = 1, dies: bool = False) -> None:
        """Who is about to acknowledge a message of this queue loses its connection first; ``dies``: its process."""
        self._add(_Fault("drop before ack", queue, times, dies=dies))

    def cancel_consumers(self, queue: str) -> int:
        """The broker cancels all consumers of a queue now, as when it moves to another node; how many."""
        self._check(queue)
        name = f"{self._names.prefix}.{self._short(queue)}"
        return self._end([client for client in self._clients if client.consumes_from(name)])

    def end_sessions(self, client: str = "") -> int:
        """Every connection (whose client's name contains this) is cut now, and comes back; how many."""
        return self._end([one for one in self._clients if client in one.name])

    # -- for the broker and its buses

    def fate_of(self, message: Message) -> Fate:
        """What becomes of a message that is published."""
        for fault in self._meant_for("" if message.exchange else message.routing_key):
            if fault.fate is not Fate.CONFIRMED:
                self._spend(fault)
                return fault.fate
        return Fate.CONFIRMED

    def confirm_after(self, messages: Iterable[Message]) -> float:
        """Seconds until the confirms of these come."""
        slow = [
            fault
            for message in messages
            for fault in self._meant_for(message.routing_key)
            if fault.kind == "slow confirm"
        ]
        for fault in dict.fromkeys(slow):
            self._spend(fault)
        return max((fault.seconds for fault in slow), default=0.0)

    def arriving(self, queue: str, content: Delivery, put: Callable[[Delivery], None]) -> list[Delivery]:
        """What goes into a queue in place of a message: none yet, one, or several. ``put``: for what goes in later."""
        for fault in self._meant_for(queue):
            if fault.kind == "duplicate":
                self._spend(fault)
                return [content, content]
            if fault.kind == "reorder":
                return self._reordered(fault, content, put)
        return [content]

    def acknowledging(self, client: Client, deliveries: Iterable[Delivery]) -> None:
        """A client is about to acknowledge."""
        for delivery in deliveries:
            for fault in self._meant_for(delivery.queue):
                if fault.kind == "drop before ack":
                    self._spend(fault)
                    self.on_death(client) if fault.dies else client.end_session()
                    return

    # -- inside

    def _reordered(self, fault: _Fault, content: Delivery, put: Callable[[Delivery], None]) -> list[Delivery]:
        fault.held.insert(0, content)
        fault.left -= 1
        if fault.left > 0:
            if len(fault.held) == 1:
                self.call_at(1.0, lambda: self._let_go(fault, put))
            return []
        return self._taken(fault)

    def _let_go(self, fault: _Fault, put: Callable[[Delivery], None]) -> None:
        for content in self._taken(fault):
            put(content)

    def _taken(self, fault: _Fault) -> list[Delivery]:
        if fault in self._faults:
            self._faults.remove(fault)
        held, fault.held = fault.held, []
        return held

    def _end(self, clients: list[Client]) -> int:
        for client in clients:
            client.end_session()
        return len(clients)

    def _add(self, fault: _Fault) -> None:
        self._check(fault.queue)
        self._faults.append(fault)

    def _check(self, queue: str) -> None:
        kind = self._short(queue).partition(".")[0]
        if kind not in KINDS:
            close = nearest(kind, KINDS)
            hint = f"did you mean {close!r}?" if close else f"the queues are {', '.join(KINDS)}"
            raise BadInput(Problem(f"no queue is called {queue!r}", hint=hint))

    def _short(self, queue: str) -> str:
        return queue.removeprefix(f"{self._names.prefix}.")

    def _meant_for(self, queue: str) -> Iterator[_Fault]:
        name = self._short(queue)
        for fault in list(self._faults):
            meant = self._short(fault.queue)
            if name == meant or name.startswith(f"{meant}."):
                yield fault

    def _spend(self, fault: _Fault) -> None:
        fault.left -= 1
        if fault.left <= 0:
            self._faults.remove(fault)
