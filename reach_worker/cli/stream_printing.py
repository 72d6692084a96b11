"""What an agent says while it works, as it comes: the chunks to stdout, everything about them beside that."""

import sys
from dataclasses import dataclass
from typing import Any, assert_never

import click

from reach_worker.calling.client import ReachClient
from reach_worker.calling.order import Options
from reach_worker.cli.answers import answer_of, print_answer, print_task_error
from reach_worker.cli.failures import OK, TROUBLE
from reach_worker.cli.output import json_text, print_json_line, say
from reach_worker.core.stream_reading import Chunk, ChunksLost, Event, Progress, Rerouted, Result, Started
from reach_worker.core.streaming import PROGRESS, STARTED, STREAMING
from reach_worker.core.task_errors import TaskError
from reach_worker.core.visible import visible
from reach_worker.settings import Settings


@dataclass(frozen=True, slots=True)
class Wanted:
    """A task whose agent is to be heard. ``timeout``: seconds that it may take. ``lines``: a line for each chunk."""

    capability: str | None
    payload: dict[str, Any]
    options: Options
    timeout: float
    lines: bool = False


async def print_stream(settings: Settings, wanted: Wanted, *, as_json: bool) -> int:
    """Publish the task and print what comes of it until it is over; the exit status. Cancelled, it cancels the task."""
    printer = None if as_json else Printer(wanted.lines)
    show = _print_json_event if printer is None else printer.show
    async with ReachClient(settings=settings) as reach:
        events = reach.stream(wanted.capability, wanted.payload, timeout=wanted.timeout, **wanted.options)
        try:
            async with events:
                async for event in events:
                    show(event)
        except TaskError as error:
            if printer is not None:
                printer.end_line()
            print_task_error(error, as_json=as_json)
            return TROUBLE
    return OK


def _print_json_event(event: Event) -> None:
    print_json_line(event.answer if isinstance(event, Result) else {**_said(event), "final": False})


def _said(event: Started | Rerouted | Chunk | Progress | ChunksLost) -> dict[str, Any]:
    """An event as the messages of a stream have it; two of them only a reader can tell."""
    match event:
        case Started(agent, attempt):
            return {"status": STARTED, "agent": agent, "attempt": attempt}
        case Rerouted(agent, attempt):
            return {"status": "rerouted", "agent": agent, "attempt": attempt}
        case Chunk(value, seq, agent, attempt):
            return {"status": STREAMING, "agent": agent, "attempt": attempt, "seq": seq, "chunk": value}
        case Progress(fraction, note, agent, attempt):
            return {
                "status": PROGRESS,
                "agent": agent,
                "attempt": attempt,
                "progress": fraction,
                "note": note,
            }
        case ChunksLost(missing):
            return {"status": "chunks_lost", "missing": missing}
        case _:
            assert_never(event)


@dataclass(slots=True)
class Printer:
    """Prints events for people. A text stands as it is, with ``lines`` on a line of its own; other chunks are JSON.

    The result is printed where the latest attempt has shown no chunk: else it is what was read already.
    """

    lines: bool = False
    _open: bool = False
    _shown: bool = False

    def show(self, event: Event) -> None:
        """Print one event."""
        match event:
            case Chunk(value):
                self._chunk(value)
            case Started(agent, attempt):
                self._mark(f"agent {agent}, attempt {attempt}")
            case Rerouted(agent, attempt):
                self.end_line()
                self._shown = False
                self._mark(f"begun anew: agent {agent}, attempt {attempt}; what came before is worth nothing")
            case Progress(fraction, note):
                done = "" if fraction is None else f"{fraction:.0%}"
                self._mark(" ".join(part for part in (done, note) if part) or "it works")
            case ChunksLost(missing):
                self._mark(f"{'some' if missing is None else missing} chunks were lost")
            case Result():
                self.end_line()
                print_answer(answer_of(event.answer), as_json=False, with_result=not self._shown)
            case _:
                assert_never(event)

    def _chunk(self, value: Any) -> None:
        self._shown = True
        if isinstance(value, str):
            click.echo(visible(value, lines=True), nl=self.lines)
            self._open = not self.lines and (not value.endswith("\n") if value else self._open)
        else:
            self.end_line()
            click.echo(json_text(value), nl=False)
        sys.stdout.flush()

    def _mark(self, text: str) -> None:
        """Beside the output; what is written to a file or a pipe is not broken up by it."""
        if self._open and sys.stdout.isatty():
            self.end_line()
        say(text)

    def end_line(self) -> None:
        """What comes next begins on a line of its own."""
        if self._open:
            click.echo()
            self._open = False
