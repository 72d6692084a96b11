"""What a caller gets back: one JSON object, whatever the end was."""

from collections.abc import Mapping
from typing import Any, Final

import orjson

from reach_worker.core.envelope import Envelope
from reach_worker.core.outcome import DeadLetterReason, cut

JSON: Final = "application/json"
ERROR_LIMIT: Final = 2000
"""Characters of an error in an answer."""


def succeeded(envelope: Envelope, agent_id: str, attempt: int, result: bytes, chunks: int = 0) -> bytes:
    """The agent's result, as it wrote it, with who did it at which attempt; ``chunks``: how many it said before."""
    return _as_json(
        {
            **_head(envelope, "succeeded", final=True),
            "agent": agent_id,
            "attempt": attempt,
            **_chain(envelope, agent_id),
            **({"chunks": chunks} if chunks else {}),
            "result": _embedded(result),
        }
    )


def of_group(envelope: Envelope, fields: Mapping[str, Any]) -> bytes:
    """What several agents came to: a race's winner with its result, or what a fan-out has gathered.

    Rounds that failed before are told with it: nobody is to believe that the first word was the answer.
    """
    before = [attempt.as_dict() for attempt in envelope.attempts]
    told = {**_head(envelope, "succeeded", final=True), **fields}
    return orjson.dumps({**told, "failed_attempts": before} if before else told)


def dead_letter(envelope: Envelope, reason: DeadLetterReason, error: str) -> bytes:
    """It will not be tried again: the reason, what went wrong, and every attempt."""
    return _as_json(
        {
            **_head(envelope, "dead_letter", final=True),
            "reason": reason.value,
            "error": cut(error, ERROR_LIMIT),
            **_chain(envelope),
            "attempts": [attempt.as_dict() for attempt in envelope.attempts],
        }
    )


def cancelled(envelope: Envelope) -> bytes:
    """It was cancelled."""
    return _as_json(_head(envelope, "cancelled", final=True))


def unmatched(envelope: Envelope, reason: str) -> bytes:
    """Not an end: nobody may take it, a person has to look. Should it be assigned, a final answer follows."""
    return _as_json({**_head(envelope, "unmatched", final=False), "error": cut(reason, ERROR_LIMIT)})


def _as_json(answer: dict[str, Any]) -> bytes:
    """A copy of what orjson gives: answers are kept, and that holds several times the memory that it shows."""
    return bytes(memoryview(orjson.dumps(answer)))


def _head(envelope: Envelope, status: str, *, final: bool) -> dict[str, Any]:
    return {"task_id": envelope.task_id, "flow_id": envelope.flow_id, "status": status, "final": final}


def _chain(envelope: Envelope, agent_id: str = "") -> dict[str, Any]:
    """Who had it one after the other, where it was handed on or called for."""
    return {"chain": envelope.chain(agent_id)} if envelope.hops else {}


def _embedded(result: bytes) -> object:
    """The result as it is, if it is JSON; else as text."""
    try:
        orjson.loads(result)
    except orjson.JSONDecodeError:
        return result.decode("utf-8", "replace")
    return orjson.Fragment(result)
