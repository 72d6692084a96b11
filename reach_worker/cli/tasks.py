"""``reach tasks``: what came last, and how it stands."""

from dataclasses import asdict
from typing import Any, Final

import click

from reach_worker import wiring
from reach_worker.cli.command import ReachCommand, json_option
from reach_worker.cli.failures import OK, TROUBLE
from reach_worker.cli.human_times import local_second
from reach_worker.cli.invocation import Invocation, pass_invocation
from reach_worker.cli.output import Table, print_json, print_table, say
from reach_worker.core.duplicates import TaskState
from reach_worker.settings import Settings
from reach_worker.store import StoreReader
from reach_worker.store.records import StoredTask

_STYLES: Final = {TaskState.DEAD_LETTER: "red", TaskState.UNMATCHED: "yellow", TaskState.SUCCEEDED: "green"}
_ERROR_SHOWN: Final = 100


@click.command(
    cls=ReachCommand,
    examples=["reach tasks", "reach tasks --state dead_letter --limit 5", "reach tasks --counts"],
)
@click.option(
    "--state", type=click.Choice([state.value for state in TaskState]), help="Only tasks in this state."
)
@click.option(
    "--limit", type=click.IntRange(1), default=20, show_default=True, help="So many, the newest first."
)
@click.option(
    "--counts", is_flag=True, help="Only how many there are in each state; status 1: one ended twice."
)
@json_option
@pass_invocation
def tasks(invocation: Invocation, state: str | None, limit: int, *, counts: bool, as_json: bool) -> int:
    """Show the tasks that came last.

    A task is here as soon as a router has given it to an agent or to its end. JSON has times in microseconds, UTC.
    """
    settings = invocation.settings
    if counts:
        return wiring.run(lambda: _count(settings, as_json=as_json))
    wanted = TaskState(state) if state else None
    return wiring.run(lambda: _list(settings, wanted, limit, as_json=as_json))


async def _list(settings: Settings, state: TaskState | None, limit: int, *, as_json: bool) -> int:
    async with StoreReader.open(settings.store.path) as store:
        found = await store.recent(limit, state)
    if as_json:
        print_json([_plain(task) for task in found])
    elif found:
        print_table(
            Table(
                ("TASK", "STATE", "CAPABILITY", "ATTEMPTS", "FIRST SEEN", "WHY"),
                [_row(task) for task in found],
                [_STYLES.get(task.state, "") for task in found],
            )
        )
    else:
        say("no tasks")
    return OK


def _plain(task: StoredTask) -> dict[str, Any]:
    return {name: value for name, value in asdict(task).items() if name not in ("answer", "accepted")}


def _row(task: StoredTask) -> tuple[str, ...]:
    why = f"{task.reason.value}: {task.error}" if task.reason else ""
    if task.state is TaskState.UNMATCHED:
        why = task.parked_reason or ""
    line = why.splitlines()[0] if why else ""
    shown = line if len(line) <= _ERROR_SHOWN else line[:_ERROR_SHOWN] + "…"
    return (
        task.task_id,
        task.state.value,
        task.capability,
        str(task.attempt),
        local_second(task.first_seen),
        shown,
    )


async def _count(settings: Settings, *, as_json: bool) -> int:
    async with StoreReader.open(settings.store.path) as store:
        found = await store.counts()
    if as_json:
        counts = {state.value: number for state, number in found.tasks.items()}
        print_json({"tasks": counts, "doubled_ends": found.doubled_ends})
    else:
        rows = [(state.value, str(number)) for state, number in found.tasks.items()]
        print_table(Table(("STATE", "TASKS"), rows))
        if found.doubled_ends:
            say(f"{found.doubled_ends} tasks have more than one end")
    return TROUBLE if found.doubled_ends else OK
