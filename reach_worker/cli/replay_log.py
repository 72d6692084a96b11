"""``reach replay-log``: what another policy would have done with the tasks of the log."""

from dataclasses import asdict
from pathlib import Path

import click

from reach_worker import wiring
from reach_worker.cli.command import ReachCommand, json_option
from reach_worker.cli.failures import OK, TROUBLE
from reach_worker.cli.invocation import Invocation, pass_invocation
from reach_worker.cli.output import Table, print_json, print_table, say
from reach_worker.cli.parameters import duration
from reach_worker.clock import SystemClock
from reach_worker.core.document import validate
from reach_worker.core.outcome import RULES, OutcomeClass, Success
from reach_worker.core.policy import RoutingPolicy
from reach_worker.core.what_if import THIN, Comparison, Logged, compare
from reach_worker.core.yaml_text import parse
from reach_worker.settings import Settings
from reach_worker.settings.files import read_text
from reach_worker.store import StoreReader


@click.command(
    cls=ReachCommand,
    examples=["reach replay-log --policy new.yaml", "reach replay-log --policy new.yaml --since 7d --json"],
)
@click.option(
    "--policy",
    "file",
    required=True,
    type=click.Path(path_type=Path),
    help="YAML with a routing section's fields.",
)
@click.option("--since", type=duration, default="7d", show_default=True, help="How far back the log is read.")
@json_option
@pass_invocation
def replay_log(invocation: Invocation, file: Path, since: float, *, as_json: bool) -> int:
    """Show what another policy would have chosen, and estimate its success.

    The estimate weighs every logged attempt by how likely the other policy was to make it (inverse probability). Where
    the two policies overlap too little it is not stated: then the log cannot tell.
    """
    policy = validate(RoutingPolicy, parse(read_text(file), file=str(file)))
    settings = invocation.settings
    return wiring.run(lambda: _replay(settings, policy, since, as_json=as_json))


async def _replay(settings: Settings, policy: RoutingPolicy, since: float, *, as_json: bool) -> int:
    now_us = SystemClock().utc_us()
    async with StoreReader.open(settings.store.path) as store:
        rows = [
            Logged(detail, _succeeded(outcome))
            async for detail, outcome in store.logged(now_us - int(since * 1e6), now_us + 1)
        ]
    result = compare(rows, policy)
    if as_json:
        print_json({"policy": policy.name, **asdict(result)})
    else:
        _tell(policy, result)
    return OK if result.comparable else TROUBLE


def _succeeded(outcome: str | None) -> bool | None:
    match None if outcome is None else RULES[OutcomeClass(outcome)].success:
        case Success.COUNTS_FOR:
            return True
        case Success.COUNTS_AGAINST:
            return False
        case _:
            return None


def _tell(policy: RoutingPolicy, result: Comparison) -> None:
    say(
        f"{result.decisions} decisions, {result.comparable} of them recorded with all that {policy.name} needs"
    )
    if not result.comparable:
        return
    share = result.differing / result.comparable
    click.echo(
        f"{policy.name} would have chosen another agent in {result.differing} of {result.comparable} ({share:.1%})"
    )
    if result.logged_rate is not None:
        click.echo(f"success of the logged attempts: {result.logged_rate:.1%} of {result.judged}")
    if result.estimate is not None:
        estimate = result.estimate
        click.echo(
            f"its estimated success: {estimate.rate:.1%} ± {estimate.error:.1%}, worth {estimate.effective:.0f} attempts"
        )
    else:
        click.echo(
            f"its success cannot be estimated: what the log tells of it is worth {result.effective:.0f} attempts, "
            f"{THIN:.0f} are needed"
        )
    rows = [
        (d.task_id, d.agent_id, f"{d.score:.3f}", d.other, f"{d.other_score:.3f}") for d in result.examples
    ]
    if rows:
        print_table(Table(("TASK", "WENT TO", "NEW SCORE", "WOULD GO TO", "NEW SCORE"), rows))
