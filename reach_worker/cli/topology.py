"""``reach topology``: the queues and exchanges, wanted and real."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import click

from reach_worker import wiring
from reach_worker.bus.topology import Topology, definitions
from reach_worker.cli.command import ReachGroup, json_option
from reach_worker.cli.failures import OK, TROUBLE
from reach_worker.cli.invocation import Invocation, pass_invocation
from reach_worker.cli.output import Table, print_json, print_table, say
from reach_worker.cli.roll_call import known_manifests
from reach_worker.errors import BrokerUnavailable
from reach_worker.settings import Settings, load_fleet

PRESENT, MISSING, UNKNOWN = "present", "missing", "unknown"
_STYLES: Final = {MISSING: "red", UNKNOWN: "dim"}


@click.group(
    cls=ReachGroup,
    examples=[
        "reach topology show",
        "reach topology declare",
        "reach topology export > definitions.json && rabbitmqctl import_definitions definitions.json",
    ],
)
def topology() -> None:
    """Show, declare or export queues and exchanges.

    What the router of these settings and the agents of these manifests need. Routers and agents declare by
    themselves what they need; this is for a broker where they may not, and for looking.
    """


@dataclass(frozen=True, slots=True)
class Seen:
    """A queue, and what the broker has of it. ``state``: present, missing, or unknown where no broker answers."""

    queue: str
    arguments: Mapping[str, Any]
    state: str
    messages: int | None = None
    consumers: int | None = None


@topology.command(
    examples=["reach topology show", "reach topology show --arguments", "reach topology show --json"]
)
@click.option("--arguments", is_flag=True, help="Also every argument of each queue; JSON has them always.")
@json_option
@pass_invocation
def show(invocation: Invocation, *, arguments: bool, as_json: bool) -> int:
    """Show exchanges and queues, and what the broker has of them.

    Also of agents without a manifest file here, if a router has met them. Without a broker that answers only what is
    wanted is shown. Exit status 1: no broker answers, or something is missing.
    """
    settings = invocation.settings
    return wiring.run(lambda: _show(settings, arguments=arguments, as_json=as_json))


async def _show(settings: Settings, *, arguments: bool, as_json: bool) -> int:
    known = await known_manifests(settings)
    wanted = wiring.known_topology(settings, list(known.values()))
    seen = await _look(settings, wanted)
    if as_json:
        print_json(_as_data(wanted, seen))
    else:
        _print(wanted, seen, arguments=arguments)
    return OK if all(each.state == PRESENT for each in seen) else TROUBLE


def _wanted(settings: Settings) -> Topology:
    return wiring.known_topology(settings, load_fleet(settings).manifests)


async def _look(settings: Settings, wanted: Topology) -> list[Seen]:
    try:
        async with wiring.visiting_bus(settings, "look") as bus:
            depths = {queue.name: await bus.depth(queue.name) for queue in wanted.queues}
    except* BrokerUnavailable as group:
        say(f"{group.exceptions[0]}; shown is only what is wanted")
        depths = {}
    found = []
    for queue in wanted.queues:
        depth = depths.get(queue.name)
        if depth is not None:
            found.append(Seen(queue.name, queue.arguments, PRESENT, *depth))
        else:
            found.append(Seen(queue.name, queue.arguments, MISSING if depths else UNKNOWN))
    return found


def _print(wanted: Topology, seen: list[Seen], *, arguments: bool) -> None:
    exchanges = [(exchange.name, exchange.kind, _words(exchange.arguments)) for exchange in wanted.exchanges]
    print_table(Table(("EXCHANGE", "TYPE", "ARGUMENTS"), exchanges))
    click.echo()
    bindings = [(each.exchange, each.routing_key or '""', each.queue) for each in wanted.bindings]
    print_table(Table(("FROM EXCHANGE", "ROUTING KEY", "TO QUEUE"), bindings))
    click.echo()
    columns = ("QUEUE", "STATE", "MESSAGES", "CONSUMERS", *(("ARGUMENTS",) if arguments else ()))
    rows = [
        (each.queue, each.state, _number(each.messages), _number(each.consumers), _words(each.arguments))
        for each in seen
    ]
    styles = [_STYLES.get(each.state, "") for each in seen]
    print_table(Table(columns, [row[: len(columns)] for row in rows], styles))


def _words(arguments: Mapping[str, Any]) -> str:
    shown = {name.removeprefix("x-"): value for name, value in arguments.items()}
    return " ".join(
        f"{name}={value!r}" if value == "" else f"{name}={value}" for name, value in shown.items()
    )


def _number(value: int | None) -> str:
    return "" if value is None else str(value)


def _as_data(wanted: Topology, seen: list[Seen]) -> dict[str, Any]:
    return {
        "exchanges": [
            {"name": each.name, "type": each.kind, "arguments": dict(each.arguments)}
            for each in wanted.exchanges
        ],
        "bindings": [
            {"exchange": each.exchange, "routing_key": each.routing_key, "queue": each.queue}
            for each in wanted.bindings
        ],
        "queues": [
            {
                "name": each.queue,
                "state": each.state,
                "messages": each.messages,
                "consumers": each.consumers,
                "arguments": dict(each.arguments),
            }
            for each in seen
        ],
    }


@topology.command(
    examples=["reach topology declare", "REACH_AMQP_URL=amqp://admin@broker/ reach topology declare"]
)
@json_option
@pass_invocation
def declare(invocation: Invocation, *, as_json: bool) -> int:
    """Declare exchanges and queues.

    What is there already stays as it is. Exit status 1: something of that name is there with other arguments; each one is
    named, and everything else is declared.
    """
    settings = invocation.settings
    return wiring.run(lambda: _declare(settings, as_json=as_json))


async def _declare(settings: Settings, *, as_json: bool) -> int:
    wanted = _wanted(settings)
    mismatches = await wiring.declare(settings, wanted)
    names = [*(each.name for each in wanted.exchanges), *(each.name for each in wanted.queues)]
    other = {mismatch.queue for mismatch in mismatches}
    declared = [name for name in names if name not in other]
    if as_json:
        print_json(
            {
                "declared": declared,
                "mismatches": [
                    {
                        "name": each.queue,
                        "argument": each.argument,
                        "expected": each.expected,
                        "found": each.found,
                    }
                    for each in mismatches
                ],
            }
        )
    else:
        click.echo(f"{len(declared)} of {len(names)} exchanges and queues are as they should be")
        for mismatch in mismatches:
            say(f"Error: {mismatch}")
    return TROUBLE if mismatches else OK


@topology.command(
    examples=["reach topology export > definitions.json", "reach topology export --vhost staging"]
)
@click.option(
    "--vhost", default="/", show_default=True, help="The virtual host that the definitions are for."
)
@pass_invocation
def export(invocation: Invocation, vhost: str) -> int:
    """Print the topology as RabbitMQ definitions, JSON.

    The broker takes them with `rabbitmqctl import_definitions`, or from its management page.
    """
    print_json(definitions(_wanted(invocation.settings), vhost))
    return OK
