"""``reach tune``: settings that follow from the log's quantiles."""

from dataclasses import asdict

import click

from reach_worker import wiring
from reach_worker.cli.command import ReachCommand, json_option
from reach_worker.cli.failures import OK
from reach_worker.cli.invocation import Invocation, pass_invocation
from reach_worker.cli.output import Table, print_json, print_table, say
from reach_worker.cli.parameters import duration
from reach_worker.clock import SystemClock
from reach_worker.core.outcome import OutcomeClass
from reach_worker.core.tuning import Ended, Proposal, Quantiles, proposals, quantiles
from reach_worker.settings import Settings, load_fleet
from reach_worker.store import StoreReader

DAY_S = 86_400.0


@click.command(cls=ReachCommand, examples=["reach tune", "reach tune --since 30d --json"])
@click.option("--since", type=duration, default="7d", show_default=True, help="How far back the log is read.")
@json_option
@pass_invocation
def tune(invocation: Invocation, since: float, *, as_json: bool) -> int:
    """Propose time-outs and breaker thresholds from what the log says of each agent."""
    settings = invocation.settings
    return wiring.run(lambda: _tune(settings, since, as_json=as_json))


async def _tune(settings: Settings, since: float, *, as_json: bool) -> int:
    now_us = SystemClock().utc_us()
    async with StoreReader.open(settings.store.path) as store:
        found = await store.attempts(now_us - int(since * 1e6))
    ended = [
        Ended(agent, capability, OutcomeClass(outcome), None if ms is None else ms / 1000, at / 1e6)
        for agent, capability, outcome, ms, at in found
    ]
    table = quantiles(ended)
    days = (max(e.at for e in ended) - min(e.at for e in ended)) / DAY_S if ended else 0.0
    manifests = load_fleet(settings).manifests
    declared = {(m.id, c.id): c.timeout_ms for m in manifests for c in m.capabilities}
    breaker = wiring.breaker_policy(settings)
    found_out = proposals(
        table, days=days, declared_timeouts=declared, timeouts=settings.timeouts, breaker=breaker
    )
    if as_json:
        print_json({"quantiles": [asdict(q) for q in table], "proposals": [asdict(p) for p in found_out]})
    else:
        _tell(table, found_out)
    return OK


def _tell(table: list[Quantiles], found: list[Proposal]) -> None:
    if not table:
        say("the log holds no attempts of that time")
        return
    rows = [
        (
            q.agent_id,
            q.capability,
            str(q.attempts),
            _share(q.success),
            _share(q.rejections),
            _s(q.p50),
            _s(q.p95),
            _s(q.p99),
        )
        for q in table
    ]
    print_table(Table(("AGENT", "CAPABILITY", "ATTEMPTS", "SUCCESS", "REJECTED", "P50", "P95", "P99"), rows))
    if not found:
        click.echo("nothing to change: the settings fit what the log says, or it holds too little")
    for proposal in found:
        click.echo(f"{proposal.setting}: {proposal.now} → {proposal.proposed} ({proposal.why})")


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _s(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g} s"
