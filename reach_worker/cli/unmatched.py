"""``reach unmatched``: tasks that no agent may take, for a person to assign."""

from typing import Any

import click

from reach_worker import wiring
from reach_worker.cli.command import ReachGroup, json_option
from reach_worker.cli.failures import OK, TROUBLE
from reach_worker.cli.invocation import Invocation, pass_invocation
from reach_worker.cli.letters import first_line, letter_data, moment
from reach_worker.cli.output import Table, print_json, print_table, put, say
from reach_worker.core.dead_letter import DeadLetter, Filter
from reach_worker.core.tags import fold
from reach_worker.settings import Settings


@click.group(
    cls=ReachGroup,
    examples=["reach unmatched list", "reach unmatched assign order-17 --to log-a --capability log.query"],
)
def unmatched() -> None:
    """Look at tasks that no agent may take, assign them.

    Such a task waits with its whole decision until a person chooses an agent for it.
    """


@unmatched.command("list", examples=["reach unmatched list", "reach unmatched list --json"])
@click.option("--capability", help="Only those that ask for this capability.")
@click.option("--limit", type=click.IntRange(1), help="So many at most, the oldest first.")
@json_option
@pass_invocation
def list_(invocation: Invocation, capability: str | None, limit: int | None, *, as_json: bool) -> int:
    """List the tasks that wait for a person, oldest first.

    JSON has times in microseconds, UTC.
    """
    wanted = Filter(capability=None if capability is None else fold(capability))
    settings = invocation.settings
    return wiring.run(lambda: _list(settings, wanted, limit, as_json=as_json))


async def _list(settings: Settings, wanted: Filter, limit: int | None, *, as_json: bool) -> int:
    async with wiring.dead_letters(settings, unmatched=True) as letters:
        found = [item.letter for item in await letters.look(wanted, limit)]
    if as_json:
        print_json([_plain(letter) for letter in found])
    elif not found:
        say("no unmatched tasks")
    else:
        rows = [_row(letter) for letter in found]
        print_table(Table(("TASK", "CAPABILITY", "CALLER", "FIRST SEEN", "WHY"), rows))
    return OK


def _plain(letter: DeadLetter) -> dict[str, Any]:
    """What a dead letter's data holds, without what only the dead have."""
    dead = ("reason", "died_at", "is_outcome", "error")
    data = {name: value for name, value in letter_data(letter).items() if name not in dead}
    return {**data, "why": letter.error}


def _row(letter: DeadLetter) -> tuple[str, ...]:
    envelope = letter.envelope
    return (
        letter.task_id,
        envelope.capability or "-",
        envelope.caller,
        moment(envelope.first_seen),
        first_line(letter.error),
    )


@unmatched.command(
    examples=[
        "reach unmatched assign order-17 --to log-a",
        "reach unmatched assign order-17 --capability log.query",
    ]
)
@click.argument("task")
@click.option("--to", "to_agent", metavar="AGENT", help="The agent that shall have it, and no other.")
@click.option("--capability", help="The capability it is a task for, in place of its own or its intent.")
@pass_invocation
def assign(invocation: Invocation, task: str, to_agent: str | None, capability: str | None) -> int:
    """Send a task to the routers again, for an agent or a capability of your choice.

    The gates still hold: an agent that may not have it leaves it unmatched, and `reach explain` says why.
    """
    if to_agent is None and capability is None:
        raise click.UsageError("choose an agent with --to, a capability with --capability, or both")
    settings = invocation.settings
    return wiring.run(lambda: _assign(settings, task, to_agent, capability))


async def _assign(settings: Settings, task: str, to_agent: str | None, capability: str | None) -> int:
    async with wiring.dead_letters(settings, unmatched=True) as letters:
        held_back = await letters.assign(
            task,
            to_agent=None if to_agent is None else fold(to_agent),
            capability=None if capability is None else fold(capability),
            max_bytes=settings.intake.max_body_bytes,
        )
    if held_back is not None:
        say(f"task {task} stays: {held_back.why}")
        return TROUBLE
    put(f"task {task} is with the routers again; see: reach explain {task}")
    return OK
