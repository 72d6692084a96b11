"""Agents that say what their payload tells them to, each its own part: ``{"a": [0.2, "word", …], "b": […]}``.

A number is a wait of so many seconds; ``!`` raises, ``+`` kills the process; any other text is a chunk.
"""

import asyncio
import signal
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from reach_worker import Agent, Cancelled, Context

STOPPED = "stopped"
"""The name of the file, in the working folder, into which talkers write that they were stopped."""
Part = Callable[[Mapping[str, Any], Context], Coroutine[Any, Any, dict[str, Any]]]


async def play(name: str, payload: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """Play the part of one agent."""
    context.charge(0.25)
    try:
        for step in payload.get(name, ()):
            match step:
                case int() | float():
                    with suppress(TimeoutError):
                        async with asyncio.timeout(step):
                            await asyncio.Event().wait()
                case "!":
                    raise RuntimeError(f"{name} broke")
                case "+":
                    signal.raise_signal(signal.SIGKILL)
                case str():
                    await context.stream(step)
    except (asyncio.CancelledError, Cancelled):
        note(f"{name} {context.task_id}")
        raise
    return {"by": name}


def note(line: str) -> None:
    """Write a line for the test."""
    with Path(STOPPED).open("a") as file:
        file.write(f"{line}\n")


def talker(name: str) -> Agent:
    """An agent that plays the part of this name."""
    agent = Agent(f"talker-{name}", max_concurrency=4)

    @agent.capability("text.talk", latency_ms=1000, timeout_ms=20_000)
    async def talk(payload: Mapping[str, Any], context: Context) -> dict[str, Any]:
        return await play(name, payload, context)

    return agent


a, b, c = talker("a"), talker("b"), talker("c")
TALKERS = (a, b, c)
