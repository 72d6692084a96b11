"""What went wrong, as a message and an exit status: the one place that turns errors into either."""

import os
import sys
from collections.abc import Iterator
from typing import Final

import click

from reach_worker.core.visible import visible
from reach_worker.errors import (
    BadInput,
    BrokerUnavailable,
    OurBug,
    ReachError,
    StoreUnavailable,
    WrongCredentials,
)

OK: Final = 0
TROUBLE: Final = 1
"""The command did its work, and what it found or did is not as it should be."""
USAGE: Final = 2
"""The command line, a task or the configuration is wrong: the same command will fail again."""
INTERRUPTED: Final = 130
NOBODY_READS: Final = 141
"""Whoever read the output has gone; what the shell says of a process that a SIGPIPE ended."""

_HINTS: Final[tuple[tuple[type[ReachError], str], ...]] = (
    (BrokerUnavailable, "the address is broker.url, or REACH_AMQP_URL; `scripts/broker start` gives a node"),
    (WrongCredentials, "the address is broker.url, or REACH_AMQP_URL"),
    (StoreUnavailable, "the file is store.path, or REACH_STORE__PATH"),
    (OurBug, "this is a fault of reach_worker: please report it"),
)


def tell(error: BaseException) -> int:
    """Say on standard error what went wrong; the exit status. An error that is none of ours is raised again."""
    errors = list(_leaves(error))
    if any(isinstance(each, KeyboardInterrupt) for each in errors):
        click.echo(err=True)
        return INTERRUPTED
    if any(isinstance(each, BrokenPipeError) for each in errors):
        _stop_writing()
        return NOBODY_READS
    ours = [each for each in errors if isinstance(each, ReachError)]
    if not ours or len(ours) < len(errors):
        raise error
    for text in dict.fromkeys(_words(each) for each in ours):
        click.echo(visible(text, lines=True), err=True)
    return USAGE if any(isinstance(each, BadInput) for each in ours) else TROUBLE


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors in a group; a task group wraps whatever is raised inside it."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error


def _words(error: ReachError) -> str:
    if isinstance(error, BadInput) and len(error.problems) > 1:
        return f"{error}\nError: {len(error.problems)} problems"
    hint = next((hint for kind, hint in _HINTS if isinstance(error, kind)), None)
    return f"Error: {error}\n({hint})" if hint else f"Error: {error}"


def _stop_writing() -> None:
    """Nobody reads standard output any more: what is still in its buffer goes nowhere, without a word."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
