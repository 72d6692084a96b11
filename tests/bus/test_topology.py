import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reach_worker.bus import topology
from reach_worker.bus.topology import Topology
from reach_worker.core.names import Names
from reach_worker.errors import BadInput, TopologyMismatch
from tests.bus.conftest import MakeBus
from tests.bus.private_node import Node
from tests.bus.wire import Wire

BILLION = 1_000_000_000
RUNGS = (250, 500, 1_000, 2_000, 4_000, 8_000, 15_000, 30_000, 60_000, 300_000, 900_000, 1_800_000)


def quorum(limit: int, dead_letters_to: str | None = None, **more: Any) -> dict[str, Any]:
    """A queue's arguments, written out as the design has them."""
    written = {"x-queue-type": "quorum", "x-delivery-limit": limit, "x-overflow": "reject-publish", **more}
    if dead_letters_to is not None:
        written["x-dead-letter-exchange"] = ""
        written["x-dead-letter-routing-key"] = dead_letters_to
        written["x-dead-letter-strategy"] = "at-least-once"
    return written


DESIGNED = {
    "p.intake": quorum(20, "p.dlq"),
    "p.returns": quorum(20, "p.dlq"),
    "p.lane.c": quorum(BILLION, "p.returns"),
    "p.agent.a": quorum(20, "p.returns"),
    **{f"p.retry.{rung}": quorum(BILLION, "p.returns", **{"x-message-ttl": rung}) for rung in RUNGS},
    "p.outcomes.r": quorum(1000, "p.dlq", **{"x-single-active-consumer": True}),
    "p.unmatched": quorum(BILLION),
    "p.dlq": quorum(BILLION),
}
BOUND = {("p.lost", "p.dlq", ""), ("p.tasks", "p.intake", "#")}
EXCHANGES = {
    "p.tasks": ("topic", {"alternate-exchange": "p.lost"}),
    "p.lost": ("fanout", {}),
    "p.events": ("topic", {}),
}


def all_of(names: Names) -> Topology:
    return topology.complete(names, router_ids=["r"], agent_ids=["a"], capabilities=["c"])


# ---- As data


def test_every_argument_is_as_designed() -> None:
    declared = all_of(Names("p"))
    assert {queue.name: dict(queue.arguments) for queue in declared.queues} == DESIGNED
    assert all(queue.durable and not queue.exclusive for queue in declared.queues)
    assert {e.name: (e.kind, dict(e.arguments)) for e in declared.exchanges} == EXCHANGES
    assert {(b.exchange, b.queue, b.routing_key) for b in declared.bindings} == BOUND


def test_a_dead_letter_queue_is_declared_before_what_needs_it() -> None:
    """At-least-once dead-lettering that misses its target may deliver three minutes late."""
    order = [queue.name for queue in all_of(Names("p")).queues]
    for queue in all_of(Names("p")).queues:
        target = queue.arguments.get("x-dead-letter-routing-key")
        assert target is None or order.index(target) < order.index(queue.name)


def test_a_queue_for_what_is_found_at_run_time_is_the_same() -> None:
    declared = {queue.name: queue for queue in all_of(Names("p")).queues}
    for name in ("p.lane.c", "p.agent.a", "p.outcomes.r"):
        assert topology.by_name(Names("p"), name) == declared[name]


@pytest.mark.parametrize("name", ["p.intake", "p.lane.", "q.agent.a", "p.retry.7", "agents"])
def test_nothing_else_is_declared_on_demand(name: str) -> None:
    with pytest.raises(ValueError, match="no queue that is declared on demand"):
        topology.by_name(Names("p"), name)


def test_a_name_that_amqp_does_not_take_is_bad_input() -> None:
    with pytest.raises(BadInput, match="longer than the 255 bytes"):
        topology.complete(Names("p"), router_ids=[], agent_ids=[], capabilities=["c" * 250])


# ---- On a broker


@pytest.fixture
def vhost(node: Node, prefix: str) -> Iterator[str]:
    """A virtual host with nothing in it."""
    node.ctl("add_vhost", prefix)
    node.ctl("set_permissions", "--vhost", prefix, "guest", ".*", ".*", ".*")
    yield prefix
    node.ctl("delete_vhost", prefix)


def found_queues(node: Node, vhost: str) -> dict[str, dict[str, Any]]:
    """Every durable queue's arguments, as the broker has them."""
    rows = node.table("list_queues", "--vhost", vhost, "name", "durable", "exclusive", "arguments")
    assert all(row["durable"] and not row["exclusive"] for row in rows)
    return {row["name"]: {name: value for name, _, value in row["arguments"]} for row in rows}


def assert_as_designed(node: Node, vhost: str) -> None:
    assert found_queues(node, vhost) == DESIGNED
    exchanges = node.table("list_exchanges", "--vhost", vhost, "name", "type", "durable", "arguments")
    ours = {row["name"]: row for row in exchanges if row["name"].startswith("p.")}
    assert {
        name: (row["type"], {key: value for key, _, value in row["arguments"]}) for name, row in ours.items()
    } == EXCHANGES
    assert all(row["durable"] for row in ours.values())
    bindings = node.table("list_bindings", "--vhost", vhost, "source_name", "destination_name", "routing_key")
    assert {
        (row["source_name"], row["destination_name"], row["routing_key"])
        for row in bindings
        if row["source_name"]
    } == BOUND


@pytest.mark.broker
@pytest.mark.system
async def test_declared_twice_it_is_on_the_broker_as_designed(
    node: Node, vhost: str, make_bus: MakeBus
) -> None:
    for _ in range(2):
        async with make_bus(f"{node.url}{vhost}", wanted=all_of(Names("p"))).running():
            pass
    assert_as_designed(node, vhost)


@pytest.mark.broker
@pytest.mark.system
async def test_exported_definitions_import_and_are_what_we_declare(
    node: Node, vhost: str, make_bus: MakeBus, tmp_path: Path
) -> None:
    exported = tmp_path / "definitions.json"
    exported.write_text(json.dumps(topology.definitions(all_of(Names("p")), vhost)))
    node.ctl("import_definitions", str(exported))
    assert_as_designed(node, vhost)
    async with make_bus(f"{node.url}{vhost}", wanted=all_of(Names("p"))).running() as bus:
        assert bus.ready


FOREIGN = {
    "a classic queue": ({}, "x-dead-letter-exchange", "''", "none"),
    "another limit": (quorum(5, "{}.dlq"), "x-delivery-limit", "20", "5"),
    "no dead letters": (quorum(20), "x-dead-letter-exchange", "''", "none"),
    "another way out": (quorum(20, "{}.elsewhere"), "x-dead-letter-routing-key", "{}.dlq", "{}.elsewhere"),
    "a bound": (quorum(20, "{}.dlq", **{"x-max-length": 10}), "x-max-length", "none", "10"),
}


@pytest.mark.broker
@pytest.mark.parametrize(("arguments", "argument", "expected", "found"), FOREIGN.values(), ids=FOREIGN)
async def test_a_foreign_queue_of_our_name_is_told_with_argument_and_both_values(
    wire: Wire,
    names: Names,
    make_bus: MakeBus,
    arguments: dict[str, Any],
    argument: str,
    expected: str,
    found: str,
) -> None:
    here = {
        key: value.format(names.prefix) if isinstance(value, str) else value
        for key, value in arguments.items()
    }
    await wire.queue(names.intake, here)
    bus = make_bus(wanted=all_of(names))
    with pytest.raises(TopologyMismatch) as caught:
        async with bus.running():
            pass
    assert (caught.value.queue, caught.value.argument) == (names.intake, argument)
    assert expected.format(names.prefix) in str(caught.value.expected)
    assert found.format(names.prefix) in str(caught.value.found)
    assert all(word in str(caught.value) for word in (names.intake, argument, "broker.prefix"))


@pytest.mark.broker
async def test_a_foreign_exchange_of_our_name_is_told_too(
    wire: Wire, names: Names, make_bus: MakeBus
) -> None:
    await wire.channel.exchange_declare(names.tasks, exchange_type="direct", durable=True)
    with pytest.raises(TopologyMismatch) as caught:
        async with make_bus(wanted=all_of(names)).running():
            pass
    assert (caught.value.queue, caught.value.argument) == (names.tasks, "type")
    assert ("topic" in str(caught.value.expected), "direct" in str(caught.value.found)) == (True, True)
