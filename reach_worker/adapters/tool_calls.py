"""Tool calls of a model as results: their arguments are JSON, also where the model was cut off in the middle of them."""

from collections.abc import Mapping
from typing import Any, Final

import json_repair
import orjson

from reach_worker.adapters.completion import ToolCall
from reach_worker.adapters.endings import Failed

LONGEST_REPAIRED: Final = 262_144
"""Characters. What is longer and broken is refused: repairing takes time."""


def finished_calls(calls: Mapping[int, ToolCall], *, repair: bool) -> list[dict[str, Any]]:
    """The calls in the model's order: ``id``, ``name``, ``arguments``, and ``repaired: true`` where they had to be.

    Raises :class:`Failed` for arguments that are no JSON object, if they may not or cannot be repaired.
    """
    return [_finished(calls[index], repair=repair) for index in sorted(calls)]


def _finished(call: ToolCall, *, repair: bool) -> dict[str, Any]:
    text = "".join(call.arguments)
    done = {"id": call.id, "name": call.name}
    try:
        arguments = orjson.loads(text) if text.strip() else {}
    except orjson.JSONDecodeError:
        if not repair:
            raise Failed(
                f"the arguments of the tool call {call.name} are no JSON, and are not repaired"
            ) from None
        return {**done, "arguments": _repaired(call.name, text), "repaired": True}
    if not isinstance(arguments, dict):
        raise Failed(f"the arguments of the tool call {call.name} are no JSON object")
    return {**done, "arguments": arguments}


def _repaired(name: str, text: str) -> dict[str, Any]:
    try:
        found = json_repair.loads(text) if len(text) <= LONGEST_REPAIRED else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Failed(f"the arguments of the tool call {name} are no JSON, and cannot be repaired")
    return found
