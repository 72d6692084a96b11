"""Passing on what comes: past the limits of a stream nothing more is told, and the task goes on."""

from dataclasses import dataclass

from reach_worker.agent.context import Context
from reach_worker.agent.voice import StreamError


@dataclass(slots=True)
class Telling:
    """One attempt's stream. Its result holds everything in any case."""

    context: Context
    silent: bool = False

    async def say(self, text: str) -> None:
        """Stream a text, or nothing once the limits are met. Raises ``Cancelled`` if the attempt was cancelled."""
        if self.silent:
            return
        try:
            await self.context.stream(text)
        except StreamError as error:
            self.context.log.warning("nothing more is streamed: %s", error)
            self.silent = True
