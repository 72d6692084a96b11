"""``reach dlq replay``: dead letters on their way again."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import click

from reach_worker import wiring
from reach_worker.cli.asking import edited
from reach_worker.cli.body_edits import Changes, of_the_same_task, set_out
from reach_worker.cli.command import ReachCommand, json_option
from reach_worker.cli.failures import OK, TROUBLE
from reach_worker.cli.invocation import Invocation, pass_invocation
from reach_worker.cli.letter_filters import filter_from, filter_options
from reach_worker.cli.output import print_json, put, say
from reach_worker.cli.parameters import assignment, pointer, read_file
from reach_worker.cli.progress import progress_bar
from reach_worker.clock import SystemClock
from reach_worker.core.dead_letter import DeadLetter, Filter
from reach_worker.core.replaying import HeldBack
from reach_worker.core.tags import fold
from reach_worker.errors import OutsideWorld
from reach_worker.services.dead_letters import DeadLetters
from reach_worker.services.replay_order import Edit, ReplayOrder, ReplayReport
from reach_worker.settings import Settings

EDITOR: Final = "editor"
SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class Wish:
    """How to replay, as the command line says it."""

    limit: int | None
    rate: float | None
    to_agent: str | None
    edit: str | None
    settings: tuple[tuple[str, Any], ...]
    removals: tuple[str, ...]
    from_start: bool
    force: bool
    dry_run: bool

    def order(self, wanted: Filter, invocation: Invocation) -> ReplayOrder:
        """The order. Raises ``click.UsageError`` where the options contradict each other."""
        return ReplayOrder(
            wanted,
            limit=self.limit,
            rate=self.rate,
            to_agent=None if self.to_agent is None else fold(self.to_agent),
            edit=self._edit(wanted, invocation.environ),
            force=self.force,
            dry_run=self.dry_run,
            max_bytes=invocation.settings.intake.max_body_bytes,
        )

    def _edit(self, wanted: Filter, environ: dict[str, str]) -> Edit | None:
        changes = Changes(self.settings, self.removals) if self.settings or self.removals else None
        if self.from_start:
            if self.edit is not None or changes is not None:
                raise click.UsageError(
                    "--from-start sends the task as it was received: it cannot be edited too"
                )
            return _as_received
        if self.edit is None:
            return None if changes is None else _changing(changes)
        if changes is not None:
            raise click.UsageError(
                "--edit replaces the whole body, --set and --unset change parts of it: use one"
            )
        if len(wanted.task_ids) != 1:
            raise click.UsageError("--edit is for one task: name it with --task-id (--set is for many)")
        return _editing(environ) if self.edit == EDITOR else _replacing(read_file(self.edit))


async def _as_received(letter: DeadLetter) -> bytes:
    return letter.received


def _changing(changes: Changes) -> Edit:
    async def change(letter: DeadLetter) -> bytes | HeldBack:
        return of_the_same_task(letter, changes.apply(letter.body))

    return change


def _replacing(body: bytes) -> Edit:
    """The first letter gets the body; should there be another one of that id, it stays."""
    bodies = [body]

    async def replace(letter: DeadLetter) -> bytes | HeldBack:
        if not bodies:
            return HeldBack("another one of the same task id got the edited body")
        return of_the_same_task(letter, bodies.pop())

    return replace


def _editing(environ: dict[str, str]) -> Edit:
    async def edit(letter: DeadLetter) -> bytes | HeldBack:
        result = await edited(set_out(letter.body), environ)
        if result is None:
            return HeldBack("it was not changed in the editor")
        return of_the_same_task(letter, result)

    return edit


@click.command(
    cls=ReachCommand,
    examples=[
        "reach dlq replay --reason attempts_exhausted --newer-than 2h --dry-run",
        "reach dlq replay --capability log.query --rate 5 --limit 100",
        "reach dlq replay --task-id order-17 --edit editor",
        "reach dlq replay --group 5c1f09ab --rate 20",
        'reach dlq replay --error "/limit" --set /payload/limit=10 --unset /payload/max',
    ],
)
@filter_options
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--limit", type=click.IntRange(1), help="Replay so many at most.")
@click.option(
    "--rate", type=click.FloatRange(0, min_open=True), metavar="N", help="So many a second at most."
)
@click.option("--to-agent", metavar="AGENT", help="Send them to this agent, and to no other.")
@click.option(
    "--edit", metavar=f"FILE|-|{EDITOR}", help="A new body for one task: from a file, stdin or $EDITOR."
)
@click.option(
    "--set", "settings", multiple=True, type=assignment, metavar="POINTER=JSON", help="Set this in each body."
)
@click.option(
    "--unset", "removals", multiple=True, type=pointer, metavar="POINTER", help="Take this out of each body."
)
@click.option(
    "--from-start",
    is_flag=True,
    help="Where agents handed them on: as received, not from the agent that failed.",
)
@click.option(
    "--force", is_flag=True, help="Also those that were replayed three times, or have succeeded since."
)
@json_option
@pass_invocation
def replay(invocation: Invocation, /, *, as_json: bool, **options: Any) -> int:
    """Send dead letters to the routers again.

    Without a filter all that are there when it begins, never one twice. Each is sent on, confirmed, before it is
    removed; one that a crash leaves behind may be replayed again, and does not run twice. It begins a new life: a fresh
    budget of attempts, the old history kept; one that agents handed on begins where it died. Held back, and kept, is one
    that is no task, was replayed three times already, or has gone on since: by the store its task has succeeded after
    all, or began anew.

    Exit status 1: some were held back or failed, the run ended early, or a task that was named is not there.
    """
    wanted = filter_from(options, SystemClock().utc_us())
    order = Wish(**options).order(wanted, invocation)
    settings = invocation.settings
    return wiring.run(lambda: _replay(settings, order, as_json=as_json))


async def _replay(settings: Settings, order: ReplayOrder, *, as_json: bool) -> int:
    async with wiring.dead_letters(settings) as letters:
        with progress_bar("looked at", await letters.count()) as show:
            report = await letters.replay(order, lambda so_far: show(so_far.seen))
        why = await _why_early(letters) if _ended_early(order, report) else None
    missing = _missing(order, report)
    if as_json:
        print_json({**asdict(report), "dry_run": order.dry_run, "missing": missing})
    else:
        _print(report, missing, dry_run=order.dry_run)
    if why is not None:
        say(f"Error: the run ended early: {why}")
    return TROUBLE if report.held_back or report.failed or missing or why else OK


def _missing(order: ReplayOrder, report: ReplayReport) -> list[str]:
    """The tasks that were named and are not there."""
    if order.reached(len(report.replayed)):
        return []
    found = {*report.replayed, *(task for task, _ in report.held_back), *(task for task, _ in report.failed)}
    return sorted(order.wanted.task_ids - found)


def _ended_early(order: ReplayOrder, report: ReplayReport) -> bool:
    """Fewer were seen than were there, and no limit explains it."""
    return report.seen < report.there and not order.reached(len(report.replayed))


async def _why_early(letters: DeadLetters) -> str:
    try:
        await letters.count()
    except OutsideWorld as error:
        return str(error)
    return "somebody else has taken some of them, or the connection was lost; run it again"


def _print(report: ReplayReport, missing: Sequence[str], *, dry_run: bool) -> None:
    done = "would be replayed" if dry_run else "replayed"
    put(
        f"looked at {report.seen} of {report.there}: {report.matched} are meant, {len(report.replayed)} {done}, "
        f"{len(report.held_back)} held back, {len(report.failed)} failed; {report.left} left"
    )
    if report.not_removed:
        put(
            f"{len(report.not_removed)} of the replayed are in the queue still: the connection ended before they were "
            "removed. Replay again: none of them runs twice"
        )
    for title, each in (("held back", report.held_back), ("failed", report.failed)):
        for task_id, why in each[:SHOWN]:
            put(f"{title} {task_id}: {why}")
        if len(each) > SHOWN:
            put(f"{title}: {len(each) - SHOWN} more, --json has them all")
    for task_id in missing:
        say(f"there is no dead letter of task {task_id!r}")
    if dry_run and report.replayed:
        more = " …" if len(report.replayed) > SHOWN else ""
        put(f"would be replayed: {', '.join(report.replayed[:SHOWN])}{more}")
