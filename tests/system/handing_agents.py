"""Agents that hand on and call each other, as their payload says."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from reach_worker import Agent, Context, Handoff

Work = Mapping[str, Any]


def _until(file: Path, context: Context) -> None:
    while not file.exists() and not context.cancelled.wait(0.05):
        pass


def _member(agent_id: str, capability: str) -> Agent:
    agent = Agent(agent_id, max_concurrency=4)

    @agent.capability(capability, timeout_ms=20_000)
    async def work(payload: Work, context: Context) -> Any:
        """``to`` hands on and ``ask`` calls, both with ``payload``; ``round`` hands to the other one; ``until`` waits."""
        if "to" in payload:
            return Handoff(capability=payload["to"], reason="it says so", payload=payload["payload"])
        if "round" in payload:
            return Handoff(to_agent="pong" if agent_id == "ping" else "ping")
        if "ask" in payload:
            return {"by": agent_id, "answer": await context.call(payload["ask"], payload["payload"])}
        if "until" in payload:
            await asyncio.to_thread(_until, Path(payload["until"]), context)
        reason = context.handed.reason if context.handed is not None else None
        return {"by": agent_id, "chain": list(context.chain), "reason": reason}

    return agent


ping, pong = HANDING = (_member("ping", "relay.ping"), _member("pong", "relay.pong"))
PLACES: Final = {"ping": "tests.system.handing_agents:ping", "pong": "tests.system.handing_agents:pong"}
"""Where ``reach agent`` finds each."""
