"""A caller that reads what an agent says while it works, as the client does, and remembers what was not as promised.

The pieces say which run of a handler they are of, and their number in it. What is read must be one run at a time, from
its first piece on and in order; that another one goes on, and that pieces were lost, is told in between, never passed
over. The result is the list of all pieces of the run that ended it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from reach_worker.core.stream_reading import Chunk, ChunksLost, Event, Reading, Rerouted, Started


@dataclass(slots=True)
class Listener:
    """Listens to one task. ``wrong``: what was not as promised; ``lost``: pieces of which it was told that they are."""

    wrong: list[str] = field(default_factory=list)
    lost: int = 0
    reroutings: int = 0
    _reading: Reading = field(default_factory=Reading)
    _heard: list[Any] = field(default_factory=list)
    _gap: bool = False
    _ended_by: str | None = None
    _seen: set[tuple[Any, Any]] = field(default_factory=set)

    def hear(self, said: Mapping[str, Any]) -> None:
        """A message that is no final answer."""
        piece = said.get("chunk")
        if self._ended_by is not None:
            self._after_the_end(piece)
            return
        if isinstance(piece, dict):
            self._seen.add((piece.get("run"), piece.get("number")))
        self._follow(self._reading.take(said))

    def answered(self, answer: Mapping[str, Any]) -> None:
        """The final answer; the same one may come again."""
        if self._ended_by is not None:
            return
        self._follow(self._reading.end(answer))
        result = answer.get("result")
        self._ended_by = ""
        if not isinstance(result, list) or not result:
            return
        self._ended_by = result[0]["run"]
        if self._heard and not self._gap and self._heard != result:
            self.wrong.append(
                f"it read {_in_words(self._heard)}, the result has {_in_words(result)}, and nothing said so"
            )

    def _follow(self, events: Iterable[Event]) -> None:
        for event in events:
            match event:
                case Started() | Rerouted():
                    self.reroutings += isinstance(event, Rerouted)
                    self._heard.clear()
                    self._gap = False
                case ChunksLost(missing):
                    self.lost += missing or 1
                    self._gap = True
                case Chunk(piece, seq):
                    self._take(piece, seq)
                case _:
                    pass

    def _take(self, piece: Any, seq: int) -> None:
        if piece["number"] != seq:
            self.wrong.append(f"the piece with the number {piece['number']} came as {seq}")
        if self._heard and self._heard[0]["run"] != piece["run"]:
            self.wrong.append(
                f"after {_in_words(self._heard)} came number {seq} of run {piece['run']}, and nothing said so"
            )
        self._heard.append(piece)

    def _after_the_end(self, piece: Any) -> None:
        """Others may still speak; of the run that ended it all has been said."""
        if not isinstance(piece, dict) or piece.get("run") != self._ended_by:
            return
        if (piece["run"], piece["number"]) not in self._seen:
            self.wrong.append(f"number {piece['number']} came after the answer")


def _in_words(pieces: list[Any]) -> str:
    return f"{len(pieces)} pieces of run {pieces[0]['run']}"
