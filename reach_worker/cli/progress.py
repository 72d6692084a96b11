"""How far a long work is, on standard error, where somebody can see it."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Show = Callable[[int], None]


@contextmanager
def progress_bar(what: str, total: int) -> Iterator[Show]:
    """A bar; the function given takes how many are done. For one thing, or without a terminal, it shows nothing."""
    if total <= 1 or not sys.stderr.isatty():
        yield lambda _done: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console, shown = Console(stderr=True), sys.stdout.isatty()
    with Progress(*columns, console=console, redirect_stdout=shown) as progress:
        bar = progress.add_task(what, total=total)
        yield lambda done: progress.update(bar, completed=done)
