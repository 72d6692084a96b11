"""What a test makes go wrong."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from reach_worker.core.message import Message
from reach_worker.ports import Sent


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
class Faults:
    """What is still to go wrong: fates by a part of the routing key, actions by their moment."""

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
