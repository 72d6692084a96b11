"""The other agents that a handler calls, where it runs alone: stand-ins with the answers of the test."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from reach_worker.core import answer
from reach_worker.core.envelope import Envelope, envelope_from
from reach_worker.core.message import Delivery
from reach_worker.core.outcome import DeadLetterReason
from reach_worker.services.router.messages import answer_message
from reach_worker.testing.broker import MemoryBroker
from reach_worker.testing.bus import MemoryBus

StandIn = Callable[[Mapping[str, Any]], Any]
CALLS: Final = "calls"


class Others:
    """Answers calls. ``stand_ins``: by capability, what its payload is answered with; what raises is a dead letter.

    ``asked``: capability and payload of each call, in order.
    """

    def __init__(self, broker: MemoryBroker, stand_ins: Mapping[str, StandIn]) -> None:
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self._stand_ins = stand_ins
        self._bus = MemoryBus(broker, slow_start=False, name="others")
        self._bus.subscribe(CALLS, broker.names.returns, 100)

    async def answer(self) -> None:
        """Answer for ever."""
        async with self._bus.running():
            while True:
                await self._bus.inbox.arrived.wait()
                self._bus.inbox.arrived.clear()
                for delivery in self._bus.inbox.take(CALLS):
                    await self._answer(delivery)

    async def _answer(self, delivery: Delivery) -> None:
        envelope = envelope_from(delivery.headers)
        if isinstance(envelope, Envelope) and envelope.reply_to:
            payload = orjson.loads(delivery.body).get("payload", {})
            self.asked.append((envelope.capability, payload))
            body = self._said(envelope, payload)
            await self._bus.publish([answer_message(envelope.reply_to, envelope.correlation_id, body)])
        await self._bus.ack([delivery])

    def _said(self, envelope: Envelope, payload: Mapping[str, Any]) -> bytes:
        stand_in = self._stand_ins.get(envelope.capability)
        if stand_in is None:
            known = ", ".join(sorted(self._stand_ins)) or "none"
            return answer.unmatched(
                envelope, f"the test has no stand-in for {envelope.capability!r}, only {known}"
            )
        try:
            result = stand_in(payload)
        except Exception as error:  # noqa: BLE001 - a stand-in fails as an agent does
            words = f"{type(error).__name__}: {error}"
            return answer.dead_letter(envelope, DeadLetterReason.ATTEMPTS_EXHAUSTED, words)
        return answer.succeeded(envelope, "stand-in", 1, orjson.dumps(result))
