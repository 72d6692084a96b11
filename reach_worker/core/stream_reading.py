"""What a caller sees of a stream, made of the messages that an agent, or several, sent him; see :mod:`core.streaming`.

A reader follows one run, the latest that began, and leaves what any other says: a task that was routed again is told by
:class:`Rerouted`, and an attempt that was given up may still speak. Of a run the chunks come in order, each once: one
that is ahead of its turn is kept for a while, because an agent sends again from the first one on that the broker refused.
What does not come is told by :class:`ChunksLost`, never passed over.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from reach_worker.core.streaming import PROGRESS, STARTED, STREAMING

AHEAD: Final = 128
"""So many chunks that are ahead of their turn are kept; then the ones before them are lost."""


@dataclass(frozen=True, slots=True)
class Started:
    """An agent begins to speak."""

    agent: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Rerouted:
    """The task went on elsewhere, or was begun again: what was said before this is worth nothing."""

    agent: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of what an agent says, any JSON value. ``seq`` counts from 0 within an attempt."""

    value: Any
    seq: int
    agent: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an agent is: a fraction in [0, 1], ``None`` if it does not know, and some words."""

    fraction: float | None
    note: str
    agent: str
    attempt: int


@dataclass(frozen=True, slots=True)
class ChunksLost:
    """Chunks did not come. ``missing``: how many, ``None`` where nobody can tell: the connection was lost meanwhile."""

    missing: int | None


@dataclass(frozen=True, slots=True)
class Result:
    """The end: what the agent returned, whole. ``answer``: all of what came back."""

    value: Any
    agent: str
    attempt: int
    answer: Mapping[str, Any]


Event = Started | Rerouted | Chunk | Progress | ChunksLost | Result


@dataclass(slots=True)
class Reading:
    """Where a reader is. ``run`` is empty until somebody has begun; ``_next`` is the chunk whose turn it is."""

    run: str = ""
    agent: str = ""
    attempt: int = 0
    _next: int = 0
    _early: dict[int, Any] = field(default_factory=dict)

    def take(self, said: Mapping[str, Any]) -> list[Event]:
        """What a message that is no answer tells the caller; nothing, where it is of another run or makes no sense."""
        run, agent, attempt = said.get("run"), said.get("agent"), said.get("attempt")
        if not isinstance(run, str) or not isinstance(agent, str) or not isinstance(attempt, int) or not run:
            return []
        match said.get("status"):
            case status if status == STARTED:
                return list(self._started(run, agent, attempt))
            case status if status == STREAMING:
                return list(self._chunk(said, run, agent, attempt))
            case status if status == PROGRESS:
                return list(self._progress(said, run, agent, attempt))
            case _:
                return []

    def end(self, answer: Mapping[str, Any]) -> list[Event]:
        """What has to be said before the result: chunks that never came, and who really did it."""
        events = list(self._give_up())
        agent, attempt = _who(answer)
        said, heard = answer.get("chunks"), self._next
        if self.run and attempt and (agent, attempt) != (self.agent, self.attempt):
            events.append(Rerouted(agent, attempt))
            heard = 0
        if isinstance(said, int) and said > heard:
            events.append(ChunksLost(said - heard))
        return events

    def interrupt(self) -> list[Event]:
        """The connection was lost: nobody can tell what was said meanwhile."""
        self._early.clear()
        return [ChunksLost(None)]

    def _started(self, run: str, agent: str, attempt: int) -> Iterator[Event]:
        """The same run begins twice where its first message was sent twice, or where another instance runs it anew."""
        if attempt < self.attempt or (run == self.run and not self._next and not self._early):
            return
        again = bool(self.run)
        yield from self._give_up()
        self.run, self.agent, self.attempt, self._next = run, agent, attempt, 0
        yield Rerouted(agent, attempt) if again else Started(agent, attempt)

    def _chunk(self, said: Mapping[str, Any], run: str, agent: str, attempt: int) -> Iterator[Event]:
        seq = said.get("seq")
        if not isinstance(seq, int) or "chunk" not in said:
            return
        if run != self.run:
            if attempt <= self.attempt:
                return
            yield from self._started(run, agent, attempt)
        if seq < self._next:
            return
        self._early[seq] = said["chunk"]
        yield from self._in_turn()
        if len(self._early) > AHEAD:
            yield from self._give_up()

    def _progress(self, said: Mapping[str, Any], run: str, agent: str, attempt: int) -> Iterator[Event]:
        fraction, note = said.get("progress"), said.get("note")
        if run != self.run and attempt <= self.attempt:
            return
        told = float(fraction) if isinstance(fraction, int | float) else None
        yield Progress(told, note if isinstance(note, str) else "", agent, attempt)

    def _in_turn(self) -> Iterator[Event]:
        while self._next in self._early:
            yield Chunk(self._early.pop(self._next), self._next, self.agent, self.attempt)
            self._next += 1

    def _give_up(self) -> Iterator[Event]:
        """Wait no longer for what is missing: tell so, and give what is there."""
        while self._early:
            first = min(self._early)
            yield ChunksLost(first - self._next)
            self._next = first
            yield from self._in_turn()


def result_event(value: Any, answer: Mapping[str, Any]) -> Result:
    """The last event."""
    agent, attempt = _who(answer)
    return Result(value, agent, attempt, answer)


def _who(answer: Mapping[str, Any]) -> tuple[str, int]:
    agent, attempt = answer.get("agent"), answer.get("attempt")
    return (agent if isinstance(agent, str) else "", attempt if isinstance(attempt, int) else 0)
