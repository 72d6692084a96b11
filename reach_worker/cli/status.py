"""``reach status``: how every router is, what waits and why, and what the broker's queues hold."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import click

from reach_worker import wiring
from reach_worker.cli.command import ReachCommand, json_option
from reach_worker.cli.failures import OK, TROUBLE
from reach_worker.cli.human_times import local_second, took
from reach_worker.cli.invocation import Invocation, pass_invocation
from reach_worker.cli.output import Table, print_json, print_table, put
from reach_worker.cli.parameters import duration
from reach_worker.cli.status_asking import Queues, Seen, ask
from reach_worker.core.status import AgentNow, Report, Waits
from reach_worker.settings import Settings

_NONE: Final = "-"
LONG_S: Final = 60.0
"""From here on a wait is told first, seconds."""


@click.command(
    cls=ReachCommand,
    examples=["reach status", "reach status --json", "reach status --listen 3s --within 10s"],
)
@click.option(
    "--listen", "listen_s", type=duration, default="1s", show_default=True, help="How long to listen."
)
@click.option(
    "--within",
    "within_s",
    type=duration,
    default="5s",
    show_default=True,
    help="How long to wait for routers that were heard and have not answered yet.",
)
@json_option
@pass_invocation
def status(invocation: Invocation, listen_s: float, within_s: float, *, as_json: bool) -> int:
    """Show how every router is, what waits and why.

    Every router is asked over the broker: since when it runs, whether it takes tasks, the oldest wait of each capability
    with its reason, what is under way, breakers that are not closed, agents that are held back, its counts, and how its
    store is. Counts begin with the router's start. Of a lane only the depth is known, and for how long it has not been
    empty: looking at its first task would take it.

    Exit status 1: no router answers, one takes no tasks or gave no report, a store is away or has lost rows, or the
    broker takes no messages.
    """
    settings = invocation.settings
    return wiring.run(lambda: _status(settings, listen_s, within_s, as_json=as_json))


async def _status(settings: Settings, listen_s: float, within_s: float, *, as_json: bool) -> int:
    seen = await ask(settings, listen_s, within_s)
    if as_json:
        print_json(as_data(seen))
    else:
        show(seen)
    return TROUBLE if seen.wrong() else OK


def as_data(seen: Seen) -> dict[str, Any]:
    """Plain data."""
    said = seen.wrong()
    return {
        "ok": not said,
        "wrong": said,
        "routers": [asdict(report) for report in _reports(seen)],
        "silent": seen.silent,
        "queues": seen.queues.as_data(),
    }


def show(seen: Seen) -> None:
    """What is wrong, then short tables."""
    said = seen.wrong()
    reports = _reports(seen)
    for line in said or [_headline(reports)]:
        put(line)
    for table in (_routers(reports), _waits(reports, seen.queues), _agents(reports), _queues(seen.queues)):
        if table.rows:
            click.echo()
            print_table(table)
    for report in reports:
        click.echo()
        put(f"router {report.router} since its start: {_named(report.counts)}")
        put(f"store of router {report.router}: {_store(report)}")


def _headline(reports: Sequence[Report]) -> str:
    """Where nothing is wrong: what ends by itself and may still be why somebody asks."""
    open_now = sorted({each.agent for report in reports for each in report.agents if each.breaker == "open"})
    waits = ((_longest(each), each.capability) for report in reports for each in report.waits)
    seconds, capability = max(waits, default=(0.0, ""))
    told = [f"the breaker of {', '.join(open_now)} is open"] if open_now else []
    if seconds >= LONG_S:
        told.append(f"{capability} has waited for {took(seconds)}")
    return f"nothing is broken, but {'; '.join(told)}" if told else "all is well"


def _longest(waits: Waits) -> float:
    return max(waits.oldest_s or 0.0, waits.lane_s or 0.0)


def _reports(seen: Seen) -> list[Report]:
    return [seen.reports[router] for router in sorted(seen.reports)]


def _routers(reports: Sequence[Report]) -> Table:
    columns = ("ROUTER", "SINCE", "SESSION", "WAITING", "IN FLIGHT", "STORE", "TAKES TASKS")
    rows = [
        (
            each.router,
            local_second(each.since_us) if each.since_us else _NONE,
            f"{each.session}, for {_took(each.session_s)}",
            f"{each.waiting}/{each.window}",
            f"{each.in_flight}/{each.in_flight_limit}",
            "away" if each.store.get("away") else "there",
            f"no: {each.unready}" if each.unready else "yes",
        )
        for each in reports
    ]
    return Table(columns, rows, ["red" if each.unready or each.store.get("away") else "" for each in reports])


def _waits(reports: Sequence[Report], queues: Queues) -> Table:
    """The longest first; lanes that hold something and that no router spoke of, last."""
    columns = ("CAPABILITY", "ROUTER", "WAIT", "OLDEST", "IN LANE", "LANE NOT EMPTY", "WHY")
    found = [(report.router, waits) for report in reports for waits in report.waits]
    found.sort(key=lambda each: -_longest(each[1]))
    told = {waits.capability for _, waits in found}
    found += [(_NONE, Waits(each)) for each in sorted(queues.lanes) if each not in told]
    rows: list[Sequence[str]] = [
        (
            waits.capability,
            router,
            str(waits.count),
            _took(waits.oldest_s),
            str(queues.lanes.get(waits.capability, 0)),
            _took(waits.lane_s),
            waits.reason or _NONE,
        )
        for router, waits in found
    ]
    more = [(report.router, report.more_waits) for report in reports if report.more_waits]
    rows += [(f"and {count} more", router, *[_NONE] * 5) for router, count in more]
    return Table(columns, rows)


def _agents(reports: Sequence[Report]) -> Table:
    columns = ("AGENT", "ROUTER", "IN FLIGHT", "PRESENCE", "BREAKER", "HELD BACK")
    rows: list[Sequence[str]] = [
        (
            each.agent,
            report.router,
            f"{each.in_flight}/{each.slots}",
            each.presence or _NONE,
            _breaker(each),
            _held_back(each),
        )
        for report in reports
        for each in report.agents
    ]
    more = [(report.router, report.more_agents) for report in reports if report.more_agents]
    rows += [(f"and {count} more", router, *[_NONE] * 4) for router, count in more]
    return Table(columns, rows)


def _queues(queues: Queues) -> Table:
    named = {
        "intake": queues.intake,
        "returns": queues.returns,
        **{f"retry {took(rung / 1000)}": count for rung, count in queues.rungs.items() if count},
        "dlq": queues.dlq,
        "unmatched": queues.unmatched,
    }
    return Table(("QUEUE", "READY"), [(name, str(count)) for name, count in named.items()])


def _breaker(agent: AgentNow) -> str:
    left = "" if agent.breaker_s is None else f", {took(agent.breaker_s)} more"
    return f"{agent.breaker or _NONE}{left}"


def _held_back(agent: AgentNow) -> str:
    said = [] if agent.held_to is None else [f"slow: to {agent.held_to:.3g} a second"]
    said += [] if agent.rests_s is None else [f"rests for {took(agent.rests_s)} more"]
    return "; ".join(said) or _NONE


def _store(report: Report) -> str:
    if not report.store:
        return "it says nothing"
    return ", ".join(_store_words(report.store))


def _store_words(store: Mapping[str, object]) -> Iterator[str]:
    yield "away" if store.get("away") else "there"
    for name, value in store.items():
        if name not in ("away", "last_error"):
            yield f"{name.replace('_', ' ')} {value}"
    if store.get("last_error"):
        yield f"last error: {store['last_error']}"


def _named(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in counts.items()) or "nothing"


def _took(seconds: float | None) -> str:
    return _NONE if seconds is None else took(max(0.0, seconds))
