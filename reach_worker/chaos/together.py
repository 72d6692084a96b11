"""What the agents do with each other: race, answer together, speak while they work, hand on and call."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final

from reach_worker import Context, Handoff
from reach_worker.chaos.kinds import CAPABILITY, FANOUTS, RACES, Kind
from reach_worker.chaos.ledger import Ledger
from reach_worker.ports import Clock

Payload = Mapping[str, Any]
Handler = Callable[[Payload, Context], Any]

FAILS_FIRST: Final = "chaos-4"
"""The agent that loses its nerve in a race before the others have said anything."""
BREAKS_OFF: Final = "chaos-5"
"""The agent that stops in the middle of what it says in a race."""
HANDS_TO: Final[Mapping[Kind, str]] = {
    Kind.HANDOFF: CAPABILITY[Kind.THREAD],
    Kind.CIRCLE: CAPABILITY[Kind.CIRCLE],
    Kind.PAY_HANDED: CAPABILITY[Kind.PAY],
}
CALLS: Final[Mapping[Kind, str]] = {
    Kind.CALL: CAPABILITY[Kind.FLAKY],
    Kind.PAY_CALL: CAPABILITY[Kind.PAY],
}
CALL_S: Final = 4.0


class Together:
    """The part of one agent in it."""

    def __init__(self, agent_id: str, ledger: Ledger, clock: Clock) -> None:
        self._agent_id = agent_id
        self._ledger = ledger
        self._clock = clock

    def handler(self, kind: Kind) -> Handler | None:
        """What does this kind of task, ``None`` for one that an agent does alone."""
        match kind:
            case Kind.STREAM:
                return self._streams
            case Kind.RACE_STREAM:
                return self._yields
            case Kind.CALL:
                return self._calls
            case Kind.PAY_CALL:
                return self._calls_from_a_thread
            case _ if kind in HANDS_TO:
                return self._handing_on(kind)
            case _ if kind in RACES | FANOUTS:
                return self._beside_others(kind)
            case _:
                return None

    def _beside_others(self, kind: Kind) -> Handler:
        async def beside_others(payload: Payload, context: Context) -> dict[str, Any]:
            with self._ledger.run(context):
                if kind is Kind.RACE_FAILING and self._agent_id == FAILS_FIRST:
                    raise RuntimeError("its first word is an error")
                await self._clock.sleep(payload["hold"] * self._number)
                odd = self._number == payload["odd"]
                if odd and kind in (Kind.FANOUT, Kind.FIRST):
                    raise RuntimeError("it never works here")
            return {"odd": odd} if kind is Kind.VOTE else {"by": self._agent_id}

        return beside_others

    @property
    def _number(self) -> int:
        """Which of the agents it is: the higher, the slower where several do one task."""
        return int(self._agent_id.rpartition("-")[2])

    # -- speaking

    async def _streams(self, payload: Payload, context: Context) -> list[dict[str, Any]]:
        with self._ledger.run(context):
            said = []
            async for chunk in self._pieces(payload, context):
                await context.stream(chunk)
                said.append(chunk)
        return said

    async def _yields(self, payload: Payload, context: Context) -> AsyncIterator[dict[str, Any]]:
        with self._ledger.run(context):
            async for chunk in self._pieces(payload, context):
                yield chunk

    async def _pieces(self, payload: Payload, context: Context) -> AsyncIterator[dict[str, Any]]:
        """Pieces that say which run they are of; of some tasks the first attempt, or one of the racers, breaks off."""
        racing = context.task_id != context.flow_id
        breaks_off = self._agent_id == BREAKS_OFF if racing else context.attempt == 1
        run = f"{context.dispatch_id} {os.getpid()} {self._clock.utc_us()}"
        for number in range(payload["chunks"]):
            if number == payload["breaks"] and breaks_off:
                raise RuntimeError(f"it breaks off after {number} chunks")
            await self._clock.sleep(payload["pause"])
            yield {"run": run, "number": number}

    # -- other agents

    def _handing_on(self, kind: Kind) -> Handler:
        async def hands_on(payload: Payload, context: Context) -> Handoff:
            with self._ledger.run(context):
                await self._clock.sleep(payload.get("hold", 0.0))
            return Handoff(capability=HANDS_TO[kind], reason="it is for somebody else")

        return hands_on

    async def _calls(self, payload: Payload, context: Context) -> dict[str, Any]:
        with self._ledger.run(context):
            asked: Awaitable[Any] = context.call(CALLS[Kind.CALL], {"fails": 0, **payload}, timeout=CALL_S)
            told = await asked
        return {"by": self._agent_id, "called": told["by"]}

    def _calls_from_a_thread(self, payload: Payload, context: Context) -> dict[str, Any]:
        with self._ledger.run(context, side_effects=True):
            told = context.call(CALLS[Kind.PAY_CALL], payload, timeout=CALL_S)
        return {"by": self._agent_id, "called": told["by"]}
