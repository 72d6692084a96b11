"""One agent hands on to another, and calls it: the whole way, with processes of their own."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from reach_worker.core.names import Names
from tests.system.caller import Caller
from tests.system.conftest import fresh_prefix, fresh_processes
from tests.system.handing_agents import PLACES
from tests.system.processes import Processes, Running

pytestmark = pytest.mark.system


class Relay:
    """A router, ping and pong."""

    def __init__(self, processes: Processes, caller: Caller) -> None:
        self.processes = processes
        self.caller = caller
        self.router = processes.router()
        self.agents = {agent_id: self.agent(agent_id) for agent_id in PLACES}

    def agent(self, agent_id: str) -> Running:
        agent = self.processes.agent(PLACES[agent_id])
        instance = agent.wait_for(r"instance (\S+) is up")[1]
        self.router.wait_for(rf"{agent_id} instance {instance} is active")
        return agent

    def explained(self, task_id: str) -> str:
        return self.processes.reach("explain", task_id).out


@pytest.fixture(scope="module")
def relay(broker_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Relay]:
    folder: Path = tmp_path_factory.mktemp("relay")
    with (
        fresh_prefix(broker_url) as prefix,
        fresh_processes(broker_url, prefix, folder) as processes,
        Caller(broker_url, Names(prefix).tasks) as caller,
    ):
        yield Relay(processes, caller)


def test_who_it_is_handed_to_goes_on_and_the_caller_sees_one_answer(relay: Relay) -> None:
    payload = {"to": "relay.pong", "payload": {"n": 1}}
    relay.caller.publish({"handed": {"capability": "relay.ping", "payload": payload}})
    relay.caller.until_answered(["handed"])

    answer = relay.caller.final("handed")
    assert (answer["status"], answer["agent"], answer["chain"]) == ("succeeded", "pong", ["ping", "pong"])
    assert answer["result"] == {"by": "pong", "chain": ["ping"], "reason": "it says so"}
    told = relay.explained("handed")
    assert "handed on: ping → pong" in told
    assert "handoff: to whoever has relay.pong: it says so" in told


def test_a_circle_ends_as_a_dead_letter_that_explain_tells(relay: Relay) -> None:
    relay.caller.publish({"circle": {"capability": "relay.ping", "payload": {"round": True}}})
    relay.caller.until_answered(["circle"])

    answer = relay.caller.final("circle")
    assert (answer["status"], answer["reason"]) == ("dead_letter", "hop_limit")
    assert "comes back in a circle: ping → pong → ping" in answer["error"]
    told = relay.explained("circle")
    assert "dead letter, hop_limit" in told
    assert "attempt 2 → pong" in told
    shown = relay.processes.reach("dlq", "show", "circle").out
    assert "handed on or called for by ping" in shown
    assert "as its caller sent it" in shown
    done = relay.processes.reach("dlq", "replay", "--task-id", "circle", "--from-start", "--json").json()
    assert done["replayed"] == ["circle"]
    relay.caller.until(lambda: sum(answer["final"] for answer in relay.caller.answers["circle"]) == 2)
    assert "life 2" in relay.explained("circle")
    assert relay.explained("circle").count("attempt 1 → ping") == 2


def test_a_call_belongs_to_the_flow_and_is_shown_there(relay: Relay) -> None:
    payload = {"ask": "relay.pong", "payload": {"n": 1}}
    relay.caller.publish({"asked": {"capability": "relay.ping", "payload": payload}})
    relay.caller.until_answered(["asked"])

    answer = relay.caller.final("asked")
    assert answer["result"]["answer"] == {"by": "pong", "chain": ["ping"], "reason": None}
    assert "relay.pong for ping, succeeded" in relay.explained("asked")
    assert "for ping, flow asked" in relay.processes.reach("explain", "--flow", "asked").out


def test_an_agent_that_is_killed_over_a_call_makes_it_once(relay: Relay, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    payload = {"ask": "relay.pong", "payload": {"until": str(gate)}}
    relay.caller.publish({"killed": {"capability": "relay.ping", "payload": payload}})
    relay.router.wait_until(
        lambda: "relay.pong for ping, under way" in relay.explained("killed"), "the call is under way"
    )
    relay.agents["ping"].kill()
    relay.agents["ping"] = relay.agent("ping")
    published_again = "published again at"
    (called,) = re.findall(r"(\S+): relay.pong for ping", relay.explained("killed"))
    relay.router.wait_until(lambda: published_again in relay.explained(called), "it is called for again")
    gate.touch()
    relay.caller.until_answered(["killed"])

    assert relay.caller.final("killed")["result"]["answer"]["by"] == "pong"
    assert re.findall(r"(\S+): relay.pong for ping", relay.explained("killed")) == [called]
    assert relay.explained(called).count("attempt ") == 1
