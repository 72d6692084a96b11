"""What people see while a run goes on: a line for each thing that happened, and how far it is."""

from types import TracebackType
from typing import Final, Self

from rich.console import Console

EACH_S: Final = 1.0
SELDOM: Final = 10
"""Where there is no terminal, every tenth report is a line of its own."""


class Screen:
    """Writes to standard error, beside the figures."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
        self._status = self._console.status("starting")
        self._reports = 0

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._status.stop()

    def say(self, text: str) -> None:
        """Something happened."""
        self._console.print(text)

    def now(self, text: str) -> None:
        """How far it is."""
        if self._console.is_terminal:
            self._status.update(text)
        elif self._reports % SELDOM == 0:
            self.say(text)
        self._reports += 1
