"""The six agents. Each does several kinds of work, and each kind is done by two agents at least."""

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from reach_worker import Agent, BadRequest, Context, RateLimited, Rejected
from reach_worker.chaos.kinds import CAPABILITY, DECLARE_EFFECTS, Kind
from reach_worker.chaos.ledger import Ledger
from reach_worker.chaos.scale import AGENTS
from reach_worker.chaos.together import Together
from reach_worker.ports import Clock

Payload = Mapping[str, Any]
Handler = Callable[[Payload, Context], Any]

SLOTS: Final = 8
PICKS_NOT: Final = "chaos-1"
"""The agent that says of picky tasks that they are not its own."""

_SOME: Final[Mapping[Kind, tuple[str, ...]]] = {
    Kind.THREAD: ("chaos-2", "chaos-3", "chaos-5", "chaos-6"),
    Kind.LIMITED: ("chaos-4", "chaos-5", "chaos-6"),
    Kind.PICKY: (PICKS_NOT, "chaos-2", "chaos-4"),
    Kind.POISON: ("chaos-1", "chaos-2"),
    Kind.BLOCKING: ("chaos-3", "chaos-4"),
    Kind.DEAF: ("chaos-5", "chaos-6"),
    Kind.PAY_THREAD: ("chaos-1", "chaos-3", "chaos-6"),
    Kind.RACE: ("chaos-1", "chaos-3", "chaos-4", "chaos-6"),
    Kind.RACE_FAILING: ("chaos-2", "chaos-4", "chaos-5"),
    Kind.RACE_STREAM: ("chaos-1", "chaos-2", "chaos-5"),
    Kind.FANOUT: ("chaos-1", "chaos-3", "chaos-5"),
    Kind.FIRST: ("chaos-2", "chaos-4", "chaos-6"),
    Kind.VOTE: ("chaos-1", "chaos-4", "chaos-6"),
    Kind.HANDOFF: ("chaos-1", "chaos-4"),
    Kind.CIRCLE: ("chaos-2", "chaos-5"),
    Kind.PAY_HANDED: ("chaos-3", "chaos-6"),
    Kind.CALL: ("chaos-2", "chaos-3", "chaos-6"),
    Kind.PAY_CALL: ("chaos-1", "chaos-5"),
}
"""Who does it, where not all do."""
_NOT_DONE: Final = frozenset(
    {Kind.UNCHECKED, Kind.NOBODY, Kind.MALFORMED, Kind.FORGED, Kind.EXPIRING, Kind.TAKEN_BACK}
)

_DECLARED: Final[Mapping[Kind, Mapping[str, object]]] = {
    Kind.CHECKED: {
        "input_schema": {
            "type": "object",
            "required": ["number"],
            "properties": {"number": {"type": "integer"}},
        }
    },
    Kind.DEAF: {"timeout_ms": 1000},
    Kind.BLOCKING: {"timeout_ms": 8000},
}
TIMEOUT_MS: Final = 5000


def capable(kind: Kind) -> tuple[str, ...]:
    """The agents that do it."""
    return _SOME.get(kind, AGENTS)


def agent_of(agent_id: str, ledger: Ledger, clock: Clock) -> Agent:
    """One of the six."""
    agent = Agent(agent_id, max_concurrency=SLOTS)
    work, together = _Work(agent_id, ledger, clock), Together(agent_id, ledger, clock)
    for kind in Kind:
        if kind not in _NOT_DONE and agent_id in capable(kind):
            declared = {"timeout_ms": TIMEOUT_MS, "cost": 2, "latency_ms": 1000, **_DECLARED.get(kind, {})}
            register = agent.capability(CAPABILITY[kind], side_effects=kind in DECLARE_EFFECTS, **declared)
            register(together.handler(kind) or work.handler(kind))
    return agent


class _Work:
    """The handlers of one agent."""

    def __init__(self, agent_id: str, ledger: Ledger, clock: Clock) -> None:
        self._agent_id = agent_id
        self._ledger = ledger
        self._clock = clock

    def handler(self, kind: Kind) -> Handler:
        """What does this kind of task: a plain function for some, a coroutine function for the others."""
        effects = kind in DECLARE_EFFECTS

        async def in_loop(payload: Payload, context: Context) -> dict[str, Any]:
            with self._ledger.run(context, side_effects=effects):
                await self._asleep(kind, payload)
                self._do(kind, payload, context)
            return {"by": self._agent_id}

        def in_thread(payload: Payload, context: Context) -> dict[str, Any]:
            with self._ledger.run(context, side_effects=effects):
                if kind is Kind.DEAF:
                    _hear_nothing(context)
                else:
                    context.cancelled.wait(payload.get("hold", 0.0))
                    self._do(kind, payload, context)
            return {"by": self._agent_id}

        return in_thread if kind in _IN_THREADS else in_loop

    async def _asleep(self, kind: Kind, payload: Payload) -> None:
        hold = payload.get("hold", 0.0)
        if kind is Kind.BLOCKING:
            threading.Event().wait(hold)  # in the event loop, on purpose: nothing else moves meanwhile
        elif hold:
            await self._clock.sleep(hold)
        elif kind is Kind.LARGE:
            await asyncio.to_thread(len, payload["text"])

    def _do(self, kind: Kind, payload: Payload, context: Context) -> None:
        """What goes wrong with it."""
        match kind:
            case Kind.FLAKY if context.attempt <= payload["fails"]:
                raise RuntimeError(f"fails {payload['fails']} times, this was attempt {context.attempt}")
            case Kind.LIMITED if context.attempt <= payload["fails"]:
                raise RateLimited(payload["after"], "too much at the moment")
            case Kind.BROKEN | Kind.PAY_FAILING:
                raise RuntimeError("it never works")
            case Kind.PICKY if self._agent_id == PICKS_NOT:
                raise Rejected("not mine")
            case Kind.REFUSED:
                raise BadRequest("nobody could do that")
            case Kind.POISON:
                _die(payload["how"])
            case _:
                return


_IN_THREADS: Final = frozenset({Kind.THREAD, Kind.PAY_THREAD, Kind.DEAF, Kind.FLAKY})


def _hear_nothing(context: Context) -> None:
    """The first time it goes on long after its time is up, whatever it is told; then it is well."""
    if context.attempt == 1:
        threading.Event().wait(context.timeout_s + 2.5)


def _die(how: str) -> None:
    if how == "segv":
        signal.raise_signal(signal.SIGSEGV)
    os._exit(17)
