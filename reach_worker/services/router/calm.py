"""What a router may decide on while what it decided before is still being sent: new tasks, and ordinary outcomes."""

from collections.abc import Mapping, Sequence
from typing import Final

from reach_worker.core.dispatch import DISPATCH, INSTANCE, OUTCOME, SPOKE_NOTE
from reach_worker.core.envelope import GROUP
from reach_worker.core.group import ROUND
from reach_worker.core.message import Delivery

_OF_A_GROUP: Final = (GROUP, ROUND)


def only_ordinary(waiting: Mapping[str, Sequence[Delivery]]) -> bool:
    """In an inbox, by subscription, lies nothing else.

    What came a second time, says something of a race or a fan-out, or was not written by one of our own agents is not
    ordinary: it may be about something that was decided, and not sent, in another session, or under another task's id.
    """
    for name, deliveries in waiting.items():
        if not deliveries:
            continue
        if name == "intake":
            if any(delivery.redelivered for delivery in deliveries):
                return False
        elif name != "outcomes" or not all(map(_is_ordinary, deliveries)):
            return False
    return True


def _is_ordinary(outcome: Delivery) -> bool:
    headers = outcome.headers
    if outcome.redelivered or DISPATCH not in headers or INSTANCE not in headers:
        return False
    return headers.get(OUTCOME) != SPOKE_NOTE and not any(name in headers for name in _OF_A_GROUP)
