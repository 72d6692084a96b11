"""What a program writes, as lines while it comes and as a result at its end. Pure, and bounded."""

import codecs
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import orjson

from reach_worker.adapters.endings import Failed
from reach_worker.adapters.json_answer import read_json

LONGEST_LINE: Final = 65_536
"""Characters; a longer line is passed on in pieces."""

OutputKind = Literal["text", "last_json_line", "json"]


@dataclass(slots=True)
class Output:
    """All that came so far. ``take`` cuts lines; ``result`` reads the whole."""

    limit: int
    raw: bytearray = field(default_factory=bytearray)
    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )
    _rest: str = ""

    def take(self, chunk: bytes) -> list[str]:
        """Add what came; the lines that are complete now, without their ends. Raises :class:`Failed` past the limit."""
        if len(self.raw) + len(chunk) > self.limit:
            raise Failed(f"it wrote more than {self.limit} bytes (max_output_bytes)")
        self.raw += chunk
        *lines, self._rest = (self._rest + self._decoder.decode(chunk)).split("\n")
        if len(self._rest) > LONGEST_LINE:
            lines.append(self._rest)
            self._rest = ""
        return [line.removesuffix("\r") for line in lines]

    def last(self) -> list[str]:
        """What came after the last line's end, if anything did."""
        rest, self._rest = self._rest + self._decoder.decode(b"", final=True), ""
        return [rest] if rest else []

    def result(self, kind: OutputKind) -> Any:
        """The task's result. Raises :class:`Failed` if it is not what the kind says."""
        match kind:
            case "text":
                return {"text": self.raw.decode("utf-8", "replace")}
            case "json":
                return read_json(bytes(self.raw), "its output")
            case "last_json_line":
                return self._last_json_line()

    def _last_json_line(self) -> Any:
        for line in reversed(self.raw.splitlines()):
            try:
                return orjson.loads(line)
            except orjson.JSONDecodeError:
                continue
        raise Failed("no line of its output is JSON")
