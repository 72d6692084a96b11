"""The answer of a chat endpoint, put together from the chunks of its stream. Pure."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from reach_worker.adapters.endings import Failed
from reach_worker.adapters.http_status import words_of
from reach_worker.adapters.json_answer import read_json
from reach_worker.agent.outcomes import AgentOutcome, RateLimited

BYTES_PER_TOKEN: Final = 4
"""What a token has on average; for estimates where the server counts none."""


@dataclass(slots=True)
class ToolCall:
    """One call of a tool, as far as it has come. ``arguments``: JSON text, or the beginning of one."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Completion:
    """What a model has said so far. ``finish_reason`` is ``None`` until it says that it is done."""

    text: list[str] = field(default_factory=list)
    refusal: list[str] = field(default_factory=list)
    tool_calls: dict[int, ToolCall] = field(default_factory=dict)
    finish_reason: str | None = None
    model: str = ""
    usage: tuple[int, int] | None = None

    def take(self, data: str, *, rest_s: float) -> str:
        """Add one event of the stream; the text that came with it.

        Raises the attempt's ending for an error in place of a chunk, and :class:`Failed` for what is no chunk.
        """
        return self.take_chunk(read_json(data.encode(), "an event of the stream"), rest_s=rest_s)

    def take_chunk(self, chunk: Any, *, rest_s: float) -> str:
        """Add a chunk, or a whole answer that was not streamed."""
        if not isinstance(chunk, dict):
            raise Failed("an event of the stream is no object")
        if chunk.get("error"):
            raise _error(chunk["error"], rest_s)
        self.model = _text(chunk.get("model")) or self.model
        self.usage = _usage(chunk.get("usage")) or self.usage
        for choice in _list(chunk.get("choices")):
            if isinstance(choice, dict) and choice.get("index", 0) == 0:
                return self._take_choice(choice)
        return ""

    def _take_choice(self, choice: Mapping[str, Any]) -> str:
        self.finish_reason = _text(choice.get("finish_reason")) or self.finish_reason
        delta = choice.get("delta") or choice.get("message")
        if not isinstance(delta, dict):
            return ""
        for call in _list(delta.get("tool_calls")):
            if isinstance(call, dict):
                self._take_call(call)
        refusal, text = _text(delta.get("refusal")), _text(delta.get("content"))
        if refusal:
            self.refusal.append(refusal)
        if text:
            self.text.append(text)
        return text

    def _take_call(self, delta: Mapping[str, Any]) -> None:
        """A piece of a call. Some servers leave the index out: then a new id begins a new call."""
        index = delta.get("index")
        if not isinstance(index, int):
            new = bool(delta.get("id")) or not self.tool_calls
            index = len(self.tool_calls) if new else max(self.tool_calls)
        call = self.tool_calls.setdefault(index, ToolCall())
        call.id = _text(delta.get("id")) or call.id
        function = delta.get("function")
        if isinstance(function, dict):
            call.name = _text(function.get("name")) or call.name
            call.arguments.append(_text(function.get("arguments")))

    @property
    def said(self) -> str:
        """All that came, for counting."""
        calls = ("".join((call.name, *call.arguments)) for call in self.tool_calls.values())
        return "".join((*self.text, *self.refusal, *calls))


def estimated_tokens(text: str) -> int:
    """About how many tokens a text has."""
    return math.ceil(len(text.encode()) / BYTES_PER_TOKEN)


def _error(error: Any, rest_s: float) -> AgentOutcome:
    fields = error if isinstance(error, dict) else {"message": str(error)}
    said = words_of(_text(fields.get("message")).encode()) or "without words"
    marks = f"{fields.get('type')} {fields.get('code')}"
    if "rate_limit" in marks or fields.get("code") == 429:  # noqa: PLR2004 - as HTTP has it
        return RateLimited(rest_s, f"an error in the stream: {said}")
    return Failed(f"an error in the stream: {said}")


def _usage(found: Any) -> tuple[int, int] | None:
    if not isinstance(found, dict):
        return None
    counts = (found.get("prompt_tokens", 0), found.get("completion_tokens", 0))
    return (counts[0], counts[1]) if all(isinstance(count, int) and count >= 0 for count in counts) else None


def _text(found: Any) -> str:
    return found if isinstance(found, str) else ""


def _list(found: Any) -> list[Any]:
    return found if isinstance(found, list) else []
