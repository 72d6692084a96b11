"""``reach dlq``: the dead letters."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from reach_worker import wiring
from reach_worker.cli.asking import confirmed
from reach_worker.cli.command import ReachGroup, json_option
from reach_worker.cli.failures import OK, TROUBLE
from reach_worker.cli.invocation import Invocation, pass_invocation
from reach_worker.cli.letter_filters import EVERY_GROUP, filter_from, filter_options
from reach_worker.cli.letter_groups import GROUPINGS, group_table, groups_of
from reach_worker.cli.letters import letter_data, letter_table, letter_tree
from reach_worker.cli.output import json_text, print_json, print_table, print_tree, put, say
from reach_worker.cli.replay import replay
from reach_worker.clock import SystemClock
from reach_worker.core.dead_letter import DeadLetter, Filter
from reach_worker.errors import BadInput, Problem
from reach_worker.settings import Settings


@click.group(
    cls=ReachGroup,
    examples=[
        "reach dlq list --group-by error",
        "reach dlq show order-17",
        "reach dlq replay --reason attempts_exhausted --dry-run",
        "reach dlq drop --reason expired --older-than 30d",
        "reach dlq export > dead-letters.jsonl",
    ],
)
def dlq() -> None:
    """Look at dead letters, replay or drop them.

    A dead letter is a task that will not be tried again, kept with its reason and history until a person decides.
    Looking changes nothing.
    """


@dlq.command(
    "list",
    examples=[
        "reach dlq list",
        "reach dlq list --group-by error --newer-than 1d",
        "reach dlq list --group 5c1f09ab",
        "reach dlq list --agent log-a --json",
    ],
)
@filter_options
@click.option(
    "--group-by",
    "by",
    type=click.Choice(GROUPINGS),
    help="Count them; by error: numbers, ids, quoted words and paths in it do not count.",
)
@click.option("--limit", type=click.IntRange(1), help="So many at most, the oldest first.")
@json_option
@pass_invocation
def list_(
    invocation: Invocation, /, *, by: str | None, limit: int | None, as_json: bool, **options: Any
) -> int:
    """List dead letters, oldest first; or how many there are of a kind, and what replays that kind.

    A letter whose task has gone on since (a success that turned up late, a replay that did not get to remove it) says
    so, where the store can be read. JSON has times in microseconds, UTC.
    """
    if options["group"] == EVERY_GROUP:
        by, options["group"] = by or GROUPINGS[0], None
    wanted = filter_from(options, SystemClock().utc_us())
    settings = invocation.settings
    if by is not None:
        grouping = by
        return wiring.run(lambda: _groups(settings, wanted, limit, grouping, as_json=as_json))
    return wiring.run(lambda: _list(settings, wanted, limit, as_json=as_json))


async def _list(settings: Settings, wanted: Filter, limit: int | None, *, as_json: bool) -> int:
    async with wiring.dead_letters(settings) as letters:
        found = [item.letter for item in await letters.look(wanted, limit)]
        past = await letters.past(found)
    if as_json:
        print_json([letter_data(letter, why) for letter, why in zip(found, past, strict=True)])
    elif not found:
        say("no dead letters")
    else:
        print_table(letter_table(found, past))
    return OK


async def _groups(settings: Settings, wanted: Filter, limit: int | None, by: str, *, as_json: bool) -> int:
    """There may be very many: their bodies are not kept."""
    found: list[DeadLetter] = []
    async with wiring.dead_letters(settings) as letters:
        async for item in letters.walk(wanted):
            found.append(replace(item.letter, body=b""))
            if limit is not None and len(found) >= limit:
                break
    groups = groups_of(found, by)
    if as_json:
        print_json(groups)
    elif not groups:
        say("no dead letters")
    else:
        print_table(group_table(groups))
        say("to replay one of these groups: reach dlq replay FILTER")
    return OK


@dlq.command(examples=["reach dlq show order-17", "reach dlq show order-17 --json"])
@click.argument("task")
@json_option
@pass_invocation
def show(invocation: Invocation, task: str, *, as_json: bool) -> int:
    """Show the dead letter of a task: reason, error, every attempt, body."""
    settings = invocation.settings
    return wiring.run(lambda: _show(settings, task, as_json=as_json))


async def _show(settings: Settings, task: str, *, as_json: bool) -> int:
    async with wiring.dead_letters(settings) as letters:
        found = [item.letter for item in await letters.look(Filter(task_ids=frozenset([task])))]
        past = await letters.past(found)
    if not found:
        say(f"there is no dead letter of task {task!r}")
        return TROUBLE
    if as_json:
        data = [letter_data(letter, why) for letter, why in zip(found, past, strict=True)]
        print_json(data if len(data) > 1 else data[0])
    else:
        for letter, why in zip(found, past, strict=True):
            print_tree(letter_tree(letter, why))
    return OK


dlq.add_command(replay)


@dlq.command(
    examples=["reach dlq drop --reason expired --older-than 30d", "reach dlq drop --task-id order-17 --yes"]
)
@filter_options
@click.option("--limit", type=click.IntRange(1), help="So many at most, the oldest first.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@pass_invocation
def drop(invocation: Invocation, /, *, limit: int | None, yes: bool, as_json: bool, **options: Any) -> int:
    """Remove dead letters for good.

    It says how many are meant and asks first. Exit status 1: the answer was no, or not all that were meant are gone.
    """
    wanted = filter_from(options, SystemClock().utc_us())
    settings = invocation.settings
    return wiring.run(lambda: _drop(settings, wanted, limit, yes=yes, as_json=as_json))


async def _drop(settings: Settings, wanted: Filter, limit: int | None, *, yes: bool, as_json: bool) -> int:
    async with wiring.dead_letters(settings) as letters:
        found = await letters.look(wanted, limit)
        if found and not yes:
            _say_what([item.letter for item in found])
            if not await confirmed(f"Drop {_count(len(found))} for good?"):
                say("nothing was dropped")
                return TROUBLE
        dropped = await letters.remove(found)
    if as_json:
        print_json({"meant": len(found), "dropped": dropped})
    else:
        put(f"{len(dropped)} of {_count(len(found))} dropped")
    missing = wanted.task_ids - {item.letter.task_id for item in found}
    for task_id in sorted(missing):
        say(f"there is no dead letter of task {task_id!r}")
    return TROUBLE if missing or len(dropped) < len(found) else OK


def _say_what(letters: Sequence[DeadLetter]) -> None:
    for group in groups_of(letters):
        say(f"{group['count']:>6}  {group['error']}")


def _count(number: int) -> str:
    return f"{number} dead letter{'' if number == 1 else 's'}"


@dlq.command(
    examples=[
        "reach dlq export > dead-letters.jsonl",
        "reach dlq export --reason poison --output poison.jsonl",
    ]
)
@filter_options
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write there."
)
@pass_invocation
def export(invocation: Invocation, /, *, output: Path | None, **options: Any) -> int:
    """Write dead letters as JSON lines.

    They stay in the queue. Times are microseconds, UTC; a body that is not UTF-8 comes as body_base64 too.
    """
    wanted = filter_from(options, SystemClock().utc_us())
    settings = invocation.settings
    return wiring.run(lambda: _export(settings, wanted, output))


async def _export(settings: Settings, wanted: Filter, output: Path | None) -> int:
    try:
        with click.open_file(str(output or "-"), "wb") as file:
            async with wiring.dead_letters(settings) as letters:
                count = 0
                async for item in letters.walk(wanted):
                    file.write(json_text(letter_data(item.letter)).encode())
                    count += 1
    except* OSError as group:
        if output is None:
            raise
        raise BadInput(Problem(f"cannot be written: {group.exceptions[0]}", file=str(output))) from None
    say(f"{_count(count)} written")
    return OK
