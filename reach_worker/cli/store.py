"""``reach store``: how the store's file is, what is too old in it, and a copy of it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click

from reach_worker import wiring
from reach_worker.cli.command import ReachGroup, json_option
from reach_worker.cli.failures import OK, TROUBLE
from reach_worker.cli.human_times import local_second, took
from reach_worker.cli.invocation import Invocation, pass_invocation
from reach_worker.cli.output import Table, print_json, print_table, say
from reach_worker.cli.parameters import duration
from reach_worker.cli.progress import progress_bar
from reach_worker.clock import SystemClock
from reach_worker.errors import OutsideWorld, StoreUnavailable
from reach_worker.settings import Settings
from reach_worker.store import backup as copies
from reach_worker.store.pruner import Pruner
from reach_worker.store.spill import spill_of
from reach_worker.store.survey import BUSY_S, Survey, beyond, check, survey, waiting_beside
from reach_worker.store.vacuum import vacuum

DAY_S: Final = 86_400.0
SHARE: Final = 0.5
"""Of the time, that pruning by hand may take: a person waits for it, and so do the routers."""


@click.group(
    cls=ReachGroup,
    examples=["reach store stats", "reach store prune --older-than 30d", "reach store backup reach-copy.db"],
)
def store() -> None:
    """Look at the store's file, prune it, back it up.

    The file is store.path. All of it works while routers run.
    """


@store.command(examples=["reach store stats", "reach store stats --check", "reach store stats --json"])
@click.option("--check", "checked", is_flag=True, help="Read the whole file, and say what is damaged in it.")
@json_option
@pass_invocation
def stats(invocation: Invocation, *, checked: bool, as_json: bool) -> int:
    """Show how large the store is, what is in it, and what could not be written to it yet.

    Exit status 1: it is damaged, or rows wait in the spill file beside it. JSON has times in microseconds, UTC.
    """
    settings = invocation.settings
    return wiring.run(lambda: _stats(settings, checked=checked, as_json=as_json))


async def _stats(settings: Settings, *, checked: bool, as_json: bool) -> int:
    path, days = settings.store.path, settings.store.retention_days
    try:
        damage = await check(path) if checked else []
        found, old = await _look(path, days, damage)
    except OutsideWorld:
        await _tell_of_spill(path)
        raise
    if as_json:
        print_json(
            {
                "path": str(path),
                **(_plain(found) if found else {}),
                "retention_days": days,
                "beyond_retention": old,
                "check": {"ok": not damage, "problems": damage} if checked else None,
            }
        )
    else:
        _print(path, found, [f"{days} days; {_older(old)}"] if found else [], damage if checked else None)
    return TROUBLE if damage or (found and found.spilled_bytes) else OK


async def _look(path: Path, days: int, damage: Sequence[str]) -> tuple[Survey | None, int | None]:
    """What is in the store, and how many tasks are too old; of one that is known to be damaged, if it can be read."""
    now = SystemClock().utc_us()
    try:
        found = await survey(path)
        old = await beyond(path, now - round(days * DAY_S * 1e6), now, ["tasks"])
    except StoreUnavailable:
        if not damage:
            raise
        return None, None
    return found, old["tasks"]


async def _tell_of_spill(path: Path) -> None:
    rows, size = await waiting_beside(path)
    if rows:
        say(f"{rows} rows ({_size(size)}) wait in {spill_of(path)}: a router writes them into the next store")


def _plain(found: Survey) -> dict[str, Any]:
    return {**asdict(found), "path": str(found.path), "spill_file": str(spill_of(found.path))}


def _older(old: int | None) -> str:
    return (
        f"{old} tasks are older: a router or `reach store prune` removes them" if old else "nothing is older"
    )


def _print(path: Path, found: Survey | None, retention: list[str], damage: Sequence[str] | None) -> None:
    rows: list[tuple[str, str]] = []
    if found:
        spill = f"{found.spilled_rows} rows, {_size(found.spilled_bytes)}, wait in {spill_of(path)}"
        rows = [
            ("schema", str(found.schema)),
            ("file", f"{_size(found.file_bytes)}, of it {_size(found.free_bytes)} free inside"),
            ("log", f"{_size(found.wal_bytes)} in {path.name}-wal"),
            ("tasks", f"{found.ended} ended, {found.open} open"),
            ("oldest", "-" if found.oldest is None else local_second(found.oldest)),
            ("newest", "-" if found.newest is None else local_second(found.newest)),
            *(("retention", text) for text in retention),
            ("not written", spill if found.spilled_bytes else "nothing waits in the spill file"),
        ]
    if damage is not None:
        rows += [("check", text) for text in damage] or [("check", "the file is sound")]
    print_table(Table(("STORE", str(path)), rows))
    if found:
        click.echo()
        print_table(Table(("TABLE", "ROWS"), [(table, str(count)) for table, count in found.rows.items()]))
    if damage:
        say(
            "the store is damaged: move it away, with the files beside it that end with -wal and -shm, and a router "
            "makes a new one; or put a backup in its place. Until then tasks go on, and their rows wait"
        )


def _size(size: float) -> str:
    """Bytes as people read them."""
    for unit in ("bytes", "KB", "MB", "GB"):
        if size < 1000:  # noqa: PLR2004 - one step
            return f"{size:.3g} {unit}" if unit != "bytes" else f"{size:.0f} bytes"
        size /= 1000
    return f"{size:.3g} TB"


@store.command(
    examples=[
        "reach store prune --dry-run",
        "reach store prune --older-than 30d",
        "reach store prune --vacuum",
    ]
)
@click.option(
    "--older-than",
    type=duration,
    help="Remove tasks that ended longer ago: 30d, 12w; else store.retention_days.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@click.option(
    "--vacuum",
    "vacuumed",
    is_flag=True,
    help="Make the file smaller afterwards. No router can write meanwhile, which may take minutes.",
)
@json_option
@pass_invocation
def prune(
    invocation: Invocation, older_than: float | None, *, dry_run: bool, vacuumed: bool, as_json: bool
) -> int:
    """Remove what is too old from the reach log.

    Routers do it by themselves, every hour. Tasks that have not ended stay, whatever their age, and so do answers
    that are still remembered, the success statistics, and the newest manifest of each agent. The file keeps its size,
    and the room inside is used again, unless --vacuum is given.
    """
    settings = invocation.settings
    seconds = settings.store.retention_days * DAY_S if older_than is None else older_than
    if seconds < DAY_S:
        raise click.UsageError("--older-than: a day at least; late outcomes have to find what they belong to")
    if dry_run and vacuumed:
        raise click.UsageError("--dry-run changes nothing, so there is nothing to --vacuum")
    return wiring.run(
        lambda: _prune(settings.store.path, seconds, dry_run=dry_run, vacuumed=vacuumed, as_json=as_json)
    )


async def _prune(path: Path, seconds: float, *, dry_run: bool, vacuumed: bool, as_json: bool) -> int:
    clock = SystemClock()
    now = clock.utc_us()
    before = now - round(seconds * 1e6)
    gone = await beyond(path, before, now)
    if not dry_run:
        with progress_bar("pruned", gone["tasks"]) as show:
            gone = await Pruner(path, clock, SHARE, show, BUSY_S).prune(before)
        if vacuumed:
            await vacuum(path, BUSY_S)
    found = await survey(path)
    if as_json:
        rows = {"would_remove" if dry_run else "removed": dict(gone)}
        sizes = {"file_bytes": found.file_bytes, "free_bytes": found.free_bytes}
        print_json({"path": str(path), "before": before, **rows, **sizes})
    else:
        _print_gone(gone, seconds, dry_run=dry_run)
        say(f"the file has {_size(found.file_bytes)}, of it {_size(found.free_bytes)} free inside")
    return OK


def _print_gone(gone: Mapping[str, int], seconds: float, *, dry_run: bool) -> None:
    rows = [(table, str(count)) for table, count in gone.items() if count]
    if rows:
        print_table(Table(("TABLE", "WOULD GO" if dry_run else "REMOVED"), rows))
    else:
        say(f"nothing is older than {took(seconds)}")


@store.command(
    examples=["reach store backup /backups/reach-monday.db", "reach store backup latest.db --force --json"]
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace FILE if it is there.")
@json_option
@pass_invocation
def backup(invocation: Invocation, file: Path, *, force: bool, as_json: bool) -> int:
    """Copy the store into FILE, while routers write.

    The copy is of one moment, checked, and one file. To go back to it: stop the routers, move the store away with the
    files beside it that end with -wal and -shm, and copy FILE to its place.
    """
    path = invocation.settings.store.path
    return wiring.run(lambda: _backup(path, file, force=force, as_json=as_json))


async def _backup(path: Path, file: Path, *, force: bool, as_json: bool) -> int:
    with progress_bar("copied, percent", 100) as show:
        made = await copies.backup(
            path, file, replace=force, told=lambda copied, pages: show(100 * copied // max(1, pages))
        )
    if as_json:
        print_json({**asdict(made), "path": str(made.path), "of": str(path)})
    else:
        click.echo(
            f"{made.path}: {_size(made.bytes)}, {made.tasks} tasks, schema {made.schema}, checked and sound"
        )
    rows, _ = await waiting_beside(path)
    if rows:
        say(f"{rows} rows are not in it: they wait in {spill_of(path)} until the store takes them")
    return OK
