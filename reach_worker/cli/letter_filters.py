"""Which dead letters are meant: the options that list, replay, drop and export share."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from reach_worker.cli.parameters import duration
from reach_worker.core.dead_letter import Filter
from reach_worker.core.outcome import DeadLetterReason
from reach_worker.core.tags import fold

Run = TypeVar("Run", bound=Callable[..., Any])

_OPTIONS: Final = (
    click.option(
        "--reason",
        "reasons",
        multiple=True,
        type=click.Choice([reason.value for reason in DeadLetterReason]),
        metavar="REASON",
        help=f"Any of these; may be repeated: {', '.join(reason.value for reason in DeadLetterReason)}.",
    ),
    click.option("--agent", help="One of its attempts was at this agent."),
    click.option("--capability", help="It asks for this capability."),
    click.option("--error", metavar="TEXT", help="Its error holds this text, in any case."),
    click.option(
        "--group",
        is_flag=False,
        flag_value="",
        metavar="ID",
        help="It belongs to this group of errors; `reach dlq list --group-by error` has the ids.",
    ),
    click.option("--older-than", type=duration, help="It died longer ago: 10m, 2h, 1d."),
    click.option("--newer-than", type=duration, help="It died since: 10m, 2h, 1d."),
    click.option("--task-id", "task_ids", multiple=True, metavar="ID", help="This task; may be repeated."),
)
EVERY_GROUP: Final = ""
"""What ``--group`` says without an id."""
NAMES: Final = ("reasons", "agent", "capability", "error", "group", "older_than", "newer_than", "task_ids")


def filter_options(function: Run) -> Run:
    """All of them. What they say arrives under the names in :data:`NAMES`."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def filter_from(options: dict[str, Any], now_us: int) -> Filter:
    """The filter; takes its options out of ``options``. Everything given must fit. Raises ``click.UsageError``."""
    given = {name: options.pop(name) for name in NAMES}
    if given["group"] == EVERY_GROUP:
        raise click.UsageError("--group wants the id of a group; `reach dlq list --group-by error` has them")
    return Filter(
        reasons=frozenset(DeadLetterReason(reason) for reason in given["reasons"]),
        agent=_folded(given["agent"]),
        capability=_folded(given["capability"]),
        contains=given["error"],
        task_ids=frozenset(given["task_ids"]),
        died_before=_before(given["older_than"], now_us),
        died_after=_before(given["newer_than"], now_us),
        group=given["group"],
    )


def _folded(name: str | None) -> str | None:
    return None if name is None else fold(name)


def _before(seconds: float | None, now_us: int) -> int | None:
    return None if seconds is None else now_us - int(seconds * 1e6)
