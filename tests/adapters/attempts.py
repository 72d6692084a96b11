"""Attempts as adapters see them, with no worker around: what is said and booked is kept."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

import pytest

from reach_worker.adapters.agents import AdapterAgent
from reach_worker.agent.context import Context, FlowLogger
from reach_worker.agent.outcomes import AgentOutcome
from reach_worker.clock import SystemClock
from reach_worker.core.outcome import OutcomeClass

LIMIT_S = 20.0


@dataclass(slots=True)
class Attempt(Context):
    """One attempt. ``heard``: the chunks that were streamed. ``on_chunk``: called after each of them."""

    heard: list[Any] = field(default_factory=list)
    on_chunk: Callable[[], Awaitable[None]] | None = None

    async def stream(self, chunk: Any) -> None:
        self.heard.append(chunk)
        if self.on_chunk is not None:
            await self.on_chunk()


def attempt(timeout_s: float = LIMIT_S, **fields: Any) -> Attempt:
    """An attempt that begins now and has so long."""
    clock = SystemClock()
    given: dict[str, Any] = {
        "task_id": "t1",
        "flow_id": "f1",
        "attempt": 1,
        "capability": "some.work",
        "caller": "somebody",
        "metadata": {},
        "session_id": None,
        "timeout_s": timeout_s,
        "log": FlowLogger(logging.getLogger("test"), {"flow_id": "f1", "task_id": "t1"}),
        "dispatch_id": "d1",
        "_monotonic": clock.monotonic,
        "_ends_at": clock.monotonic() + timeout_s,
    }
    return Attempt(**{**given, **fields})


async def result_of(
    agent: AdapterAgent, payload: Mapping[str, Any] | None = None, context: Context | None = None
) -> Any:
    """What an adapter makes of one task; opened and closed for it."""
    async with agent.adapter.opened():
        return await agent.adapter.run(payload or {}, context or attempt())


async def ending_of(
    agent: AdapterAgent, payload: Mapping[str, Any] | None = None, context: Context | None = None
) -> tuple[OutcomeClass, str]:
    """How a task ends that does not succeed: the class, and the words."""
    with pytest.raises(AgentOutcome) as found:
        await result_of(agent, payload, context)
    return found.value.kind, str(found.value)


Opened = AbstractAsyncContextManager[None]
MANIFEST: Mapping[str, Any] = {"id": "some-agent", "capabilities": [{"id": "some.work"}]}
