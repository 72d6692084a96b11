"""Where an answer may go: any queue but our own, or an address that the broker itself gave a caller ("direct reply-to").

An answer is published by us, with our rights, to a name that a stranger chose.
"""

import base64
import binascii
import re
from typing import Final

from reach_worker.core.names import Names

DIRECT: Final = "amq.rabbitmq.reply-to"
_GIVEN: Final = re.compile(rf"{re.escape(DIRECT)}\.([A-Za-z0-9+/]+={{0,2}})\.[A-Za-z0-9+/_=-]+")
_TERM: Final = 131
"""The first byte of everything that Erlang writes down; in an address it is a process of the broker's."""


def is_direct(address: str) -> bool:
    """It names no queue, but a caller's channel."""
    return address.startswith(f"{DIRECT}.")


def why_not_answered(reply_to: str, names: Names) -> str | None:
    """Why no answer goes there, for people; ``None`` if it may."""
    if names.ours(reply_to):
        return f"reply_to {reply_to!r} is one of the router's own queues; use a queue of yours"
    if is_direct(reply_to) and not _was_given(reply_to):
        return (
            f"reply_to {reply_to[:80]!r} is no address that the broker gave; publish with {DIRECT!r} itself"
        )
    return None


def _was_given(address: str) -> bool:
    """It has the form of those that the broker makes. That it is alive, or of this broker at all, nobody can tell."""
    found = _GIVEN.fullmatch(address)
    if found is None:
        return False
    try:
        return base64.b64decode(found[1], validate=True)[:1] == bytes([_TERM])
    except binascii.Error:
        return False
