"""Whether the broker takes messages now, and who is there if it does."""

import asyncio
from typing import Final

from reach_worker.cli.roll_call import Heard, listen
from reach_worker.core.message import Message
from reach_worker.core.names import Names
from reach_worker.ports import Bus, Sent
from reach_worker.settings import Settings

QUIET: Final = "doctor"
"""Routing key of an event that says nothing to anybody."""


async def takes_messages(bus: Bus, names: Names, limit_s: float) -> Sent | None:
    """Publish two events that nobody hears; the worst that became of them, ``None`` if the broker holds us up.

    An alarm is told only to those who publish, and only after their first message: that one is still taken.
    """
    nothing = Message(QUIET, b"", {}, names.events, persistent=False, mandatory=False)
    sent = Sent.CONFIRMED
    try:
        async with asyncio.timeout(limit_s):
            for _ in range(2):
                if sent is Sent.CONFIRMED:
                    (sent,) = await bus.publish([nothing])
    except TimeoutError:
        return None
    return sent


async def listen_within_reason(settings: Settings, known: set[str], seconds: float) -> Heard | None:
    """Who is there; ``None`` if the broker takes no question now, so that nobody could answer."""
    try:
        async with asyncio.timeout(seconds + 2 * settings.broker.call_timeout_s):
            return await listen(settings, known, seconds)
    except TimeoutError:
        return None
