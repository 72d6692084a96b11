"""``reach doctor``: what is not as it should be, and what to do."""

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

import click

from reach_worker import wiring
from reach_worker.cli.command import ReachCommand, json_option
from reach_worker.cli.examining import Wish, examine
from reach_worker.cli.failures import OK, TROUBLE
from reach_worker.cli.invocation import Invocation, pass_invocation
from reach_worker.cli.output import Table, print_json, print_table, say
from reach_worker.cli.parameters import duration
from reach_worker.clock import SystemClock
from reach_worker.core.diagnosis import Finding, Severity
from reach_worker.settings import Settings

_ORDER: Final = (Severity.ERROR, Severity.WARNING, Severity.INFO, Severity.OK)
_STYLES: Final = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "", Severity.OK: "green"}


@click.command(
    cls=ReachCommand,
    examples=["reach doctor", 'reach doctor --ctl "sudo rabbitmqctl"', "reach doctor --json"],
)
@click.option(
    "--listen", "seconds", type=duration, default="1.5s", show_default=True, help="How long to listen."
)
@click.option(
    "--ctl",
    metavar="COMMAND",
    help="The broker's own tool, for its consumer timeout and policies; `none` asks none. "
    "rabbitmqctl where it is on the path.",
)
@json_option
@pass_invocation
def doctor(invocation: Invocation, seconds: float, ctl: str | None, as_json: bool) -> int:
    """Look at broker, queues, fleet, store and settings, and say what to do.

    Nothing is changed: queues are compared, never declared, and a store is not made. Exit status 1: there are errors.
    Warnings are only shown.
    """
    wish = Wish(seconds, None if ctl is None else _command(ctl))
    settings = invocation.settings
    return wiring.run(lambda: _doctor(settings, wish, as_json=as_json))


def _command(text: str) -> Sequence[str]:
    try:
        return [] if text == "none" else shlex.split(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is no command: {error}", param_hint="--ctl") from None


async def _doctor(settings: Settings, wish: Wish, *, as_json: bool) -> int:
    findings = sorted(
        await examine(settings, wish, SystemClock()), key=lambda each: _ORDER.index(each.severity)
    )
    ok = all(each.severity is not Severity.ERROR for each in findings)
    if as_json:
        print_json({"ok": ok, "findings": [asdict(each) for each in findings]})
    else:
        _print(findings)
    return OK if ok else TROUBLE


def _print(findings: Sequence[Finding]) -> None:
    rows = [(each.severity.value, each.where, _words(each)) for each in findings]
    print_table(
        Table(("", "WHERE", "WHAT, AND WHAT TO DO"), rows, [_STYLES[each.severity] for each in findings])
    )
    counts = [(severity, sum(each.severity is severity for each in findings)) for severity in _ORDER]
    say(", ".join(f"{count} {severity.value}" for severity, count in counts))


def _words(finding: Finding) -> str:
    return f"{finding.what} → {finding.advice}" if finding.advice else finding.what
