"""Small agents that the tests of the kit let work."""

import asyncio
from collections.abc import Mapping
from typing import Any

from reach_worker import Agent, Context, RateLimited, Unavailable

SHOUT = "text.shout"
DECLARED: Mapping[str, Any] = {"preset": "declared"}
"""Choices that follow from what is declared: the cheapest first."""


def shouter(agent_id: str = "solid", *, cost: float = 3, slots: int = 4) -> Agent:
    """An agent that does what it should."""
    agent = Agent(agent_id, max_concurrency=slots)

    @agent.capability(
        SHOUT,
        cost=cost,
        input_schema={"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}},
        output_schema={"type": "object", "required": ["text"]},
    )
    async def shout(payload: dict[str, Any]) -> dict[str, str]:
        return {"text": payload["text"].upper()}

    return agent


def failing(agent_id: str = "flaky", *, times: int = 1_000, cost: float = 1) -> Agent:
    """An agent that is preferred, and fails so many times first."""
    agent = Agent(agent_id, max_concurrency=4)
    left = iter(range(times))

    @agent.capability(SHOUT, cost=cost, latency_ms=1000)
    async def shout(payload: dict[str, Any]) -> dict[str, str]:
        if next(left, None) is not None:
            raise Unavailable("not today")
        return {"text": payload["text"].upper()}

    return agent


def napper(*, timeout_ms: int = 60_000, slots: int = 4) -> Agent:
    """An agent whose handlers take as long as they are told: one that awaits, one in a thread that waits for its end."""
    agent = Agent("napper", max_concurrency=slots)

    @agent.capability("nap", timeout_ms=timeout_ms)
    async def nap(payload: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(payload["seconds"])  # noqa: TID251 - what authors write; here it goes by virtual time
        return payload

    @agent.capability("nap.thread", timeout_ms=timeout_ms)
    def nap_in_thread(payload: dict[str, Any], context: Any) -> str:
        assert payload == {}
        context.cancelled.wait()
        return "woken"

    @agent.capability("nap.limited", timeout_ms=timeout_ms)
    async def limited(payload: dict[str, Any]) -> dict[str, Any]:
        raise RateLimited(payload["seconds"])

    return agent


def thinker(agent_id: str, seconds: float) -> Agent:
    """An agent that says something after so many seconds, and ends five seconds later."""
    agent = Agent(agent_id)

    @agent.capability("think", timeout_ms=20_000)
    async def think(_payload: dict[str, Any], context: Context) -> str:
        await asyncio.sleep(seconds)  # noqa: TID251 - as above
        await context.stream(f"{agent_id} speaks")
        await asyncio.sleep(5)  # noqa: TID251 - as above
        return agent_id

    return agent
