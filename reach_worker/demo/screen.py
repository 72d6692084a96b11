"""What a person sees: a live table on a terminal, plain lines elsewhere."""

from collections import deque
from collections.abc import Iterable
from types import TracebackType
from typing import Final, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from reach_worker.core.breaker import BreakerState
from reach_worker.demo.board import AgentLine, Board
from reach_worker.ports import Clock

SHOWN: Final = 10
"""Events that the live view shows."""
PROGRESS_S: Final = 1.0
"""So often plain output says how far it is."""

_STATE_STYLES: Final = {"active": "green", "starting": "yellow", "killed": "bold red"}


class Screen:
    """Shows a run. Times are seconds since it began. To be entered with ``with``."""

    def __init__(self, console: Console, board: Board, clock: Clock, beat_s: float) -> None:
        self.console = console
        self._board = board
        self._clock = clock
        self._beat_s = beat_s
        self._began = clock.monotonic()
        self._events: deque[str] = deque(maxlen=SHOWN)
        animated = console.is_terminal and not console.is_dumb_terminal
        self._live = Live(console=console, auto_refresh=False) if animated else None
        self._said = (-PROGRESS_S, 0)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._refresh(self._live)
            self._live.stop()
            self._live = None  # what comes now are lines, on a terminal too
        elif self._board.answered() != self._said[1]:
            self._say_progress()

    def seconds(self) -> float:
        """Since the run began."""
        return self._clock.monotonic() - self._began

    def tell(self, lines: Iterable[str]) -> None:
        """Something happened."""
        for line in lines:
            stamped = f"{self.seconds():5.1f} s  {line}"
            self._events.append(stamped)
            if self._live is None:
                self.console.out(stamped, highlight=False)

    def print(self, lines: Iterable[str]) -> None:
        """Something that is said once, below all that happened. Not within the ``with``."""
        for line in lines:
            self.console.out(line, highlight=False)

    def show(self) -> None:
        """Bring it up to date."""
        if self._live is not None:
            self._refresh(self._live)
            return
        at, said = self._said
        if self._board.answered() != said and self.seconds() - at >= PROGRESS_S:
            self._say_progress()

    def _say_progress(self) -> None:
        self._said = (self.seconds(), self._board.answered())
        self.tell([self._progress()])

    def _progress(self) -> str:
        board = self._board
        return f"{board.answered()} of {len(board.tasks)} answered, {board.published} published"

    def _refresh(self, live: Live) -> None:
        live.update(Group(self._table(), *self._lines()), refresh=True)

    def _lines(self) -> list[RenderableType]:
        events = [Text(line, overflow="ellipsis", no_wrap=True) for line in self._events]
        return [Text(f"{self.seconds():5.1f} s  {self._progress()}", style="bold"), *events]

    def _table(self) -> Table:
        table = Table("agent", "state", title="reach demo", title_justify="left")
        for column in ("running", "done", "failed"):
            table.add_column(column, justify="right")
        table.add_column("breaker")
        for line in self._board.agents.values():
            table.add_row(*self._cells(line))
        return table

    def _cells(self, line: AgentLine) -> list[RenderableType]:
        state = line.state(self._clock.monotonic(), self._beat_s)
        breaker_style = "" if line.breaker == BreakerState.CLOSED.value else "bold red"
        return [
            line.agent_id,
            Text(state, style=_STATE_STYLES.get(state, "red")),
            str(len(line.open)),
            str(line.done),
            Text(str(line.failed), style="red" if line.failed else ""),
            Text(line.breaker, style=breaker_style),
        ]
