"""A broker that is not there when processes start. (One that goes away later: test_conservation.)"""

from pathlib import Path

import pytest

from reach_worker.core.names import Names
from tests.bus.private_node import Node
from tests.system.caller import Caller
from tests.system.conftest import fresh_processes
from tests.system.crew import CREW, ONLY

pytestmark = [pytest.mark.broker, pytest.mark.system]


def test_processes_that_start_first_wait_and_then_work(node: Node, tmp_path: Path) -> None:
    names = Names("away")
    node.stop()
    try:
        with fresh_processes(node.url, names.prefix, tmp_path) as processes:
            router, agent = processes.start("router"), processes.start("agent", CREW["crew-1"])
            for each in (router, agent):
                each.wait_for("no broker at .* trying again")
            done = processes.reach("publish", ONLY, "{}")
            assert (done.status, "no broker at" in done.err) == (1, True)
            node.start()
            for each in (router, agent):
                each.wait_for("is up")
            with Caller(node.url, names.tasks) as caller:
                caller.publish({"one": {"capability": ONLY}})
                caller.until_answered(["one"])
            assert (agent.stop(), router.stop()) == (0, 0)
            assert "Traceback" not in router.log() + agent.log()
    finally:
        node.start()
