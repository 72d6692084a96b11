"""``reach topology export``: what a broker's own tools read."""

import orjson
import pytest

from tests.cli.conftest import Call

pytestmark = pytest.mark.usefixtures("config")


def test_the_definitions_hold_what_routers_and_agents_need(call: Call) -> None:
    done = call("topology", "export")

    definitions = orjson.loads(done.stdout)
    queues = {queue["name"]: queue for queue in definitions["queues"]}
    assert (done.exit_code, done.stderr) == (0, "")
    assert {
        "reach.v1.intake",
        "reach.v1.dlq",
        "reach.v1.outcomes.router-7",
        "reach.v1.agent.cheap",
        "reach.v1.agent.dear",
        "reach.v1.lane.text.echo",
    } <= set(queues)
    assert queues["reach.v1.intake"]["arguments"]["x-queue-type"] == "quorum"
    assert all(queue["vhost"] == "/" and queue["durable"] for queue in queues.values())
    assert {exchange["name"] for exchange in definitions["exchanges"]} == {
        "reach.v1.tasks",
        "reach.v1.events",
        "reach.v1.lost",
    }


def test_the_virtual_host_is_chosen(call: Call) -> None:
    definitions = orjson.loads(call("topology", "export", "--vhost", "staging").stdout)

    assert {each["vhost"] for part in definitions.values() for each in part} == {"staging"}
