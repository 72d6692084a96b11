"""Streams, races and fan-outs with real processes, as a caller in plain AMQP sees them, and an operator afterwards."""

import json
from typing import Any

import pytest

from reach_worker.core.names import Names
from tests.system.caller import Answer, Caller
from tests.system.processes import Processes, Running
from tests.system.talkers import STOPPED

pytestmark = [pytest.mark.broker, pytest.mark.system]


@pytest.fixture
def caller(broker_url: str, names: Names) -> Any:
    with Caller(broker_url, names.tasks) as caller:
        yield caller


def begin(processes: Processes, *talkers: str) -> list[Running]:
    running = [processes.agent(f"tests.system.talkers:{name}") for name in talkers]
    processes.router()
    return running


def talk(caller: Caller, task_id: str, parts: dict[str, list[Any]], **task: Any) -> Answer:
    """Publish one; its final answer."""
    caller.publish({task_id: {"capability": "text.talk", "payload": parts, **task}})
    caller.until_answered([task_id])
    return caller.final(task_id)


def said(caller: Caller, task_id: str) -> list[tuple[Any, ...]]:
    """What the caller heard before the end: who began, and who said what."""
    found: list[tuple[Any, ...]] = []
    for one in caller.answers[task_id]:
        if one["status"] == "started":
            found.append((one["agent"], one["attempt"]))
        elif one["status"] == "streaming":
            found.append((one["agent"], one["seq"], one["chunk"]))
    return found


def stopped(processes: Processes) -> list[str]:
    file = processes.folder / STOPPED
    return [line.split()[0] for line in file.read_text().splitlines()] if file.exists() else []


def explained(processes: Processes, task_id: str) -> str:
    return processes.reach("explain", task_id).out


def test_chunks_come_before_the_answer_and_a_second_attempt_says_that_it_is_one(
    processes: Processes, caller: Caller
) -> None:
    begin(processes, "a", "b")
    answer = talk(caller, "s1", {"a": ["one", "two", "!"], "b": ["other"]}, stream=True)

    assert answer["status"] == "succeeded"
    assert caller.answers["s1"][-1]["final"]
    assert said(caller, "s1") == [
        ("talker-a", 1),
        ("talker-a", 0, "one"),
        ("talker-a", 1, "two"),
        ("talker-b", 2),
        ("talker-b", 0, "other"),
    ]


def test_an_agent_that_dies_while_it_speaks(processes: Processes, caller: Caller) -> None:
    begin(processes, "a", "b")
    answer = talk(caller, "s2", {"a": ["one", 0.3, "+"], "b": ["two"]}, stream=True)

    assert (answer["status"], answer["agent"]) == ("succeeded", "talker-b")
    assert said(caller, "s2")[-2:] == [("talker-b", answer["attempt"]), ("talker-b", 0, "two")]


def test_the_first_chunk_wins_and_the_loser_is_stopped(processes: Processes, caller: Caller) -> None:
    begin(processes, "a", "b")
    answer = talk(
        caller, "r1", {"a": [0.3, "first", 1.0, "last"], "b": [1.0, "late", 30]}, mode="race", stream=True
    )

    assert (answer["agent"], answer["mode"]) == ("talker-a", "race")
    assert said(caller, "r1") == [("talker-a", 1), ("talker-a", 0, "first"), ("talker-a", 1, "last")]
    caller.until(lambda: stopped(processes) == ["b"])
    text = explained(processes, "r1")
    assert "race of talker-a, talker-b" in text
    assert "r1~0.1.talker-b: cancelled" in text
    assert "cost 0.25" in explained(processes, "r1~0.1.talker-b")


def test_a_faster_agent_that_fails_is_not_covered_up(processes: Processes, caller: Caller) -> None:
    begin(processes, "a", "b")
    answer = talk(caller, "r2", {"a": [0.5, "!"], "b": [2.0, "fine"]}, mode="race", stream=True)

    assert (answer["agent"], answer["attempt"]) == ("talker-b", 2)
    assert said(caller, "r2") == [("talker-b", 2), ("talker-b", 0, "fine")]
    assert stopped(processes) == ["b"]
    text = explained(processes, "r2")
    assert "r2~0.1.talker-a: cancelled, attempts_exhausted: RuntimeError: a broke" in text
    assert "r2~0.2.talker-b: succeeded" in text


def test_a_fan_out_with_one_dead_agent(processes: Processes, caller: Caller) -> None:
    *_, dead = begin(processes, "a", "b", "c")
    whole = talk(caller, "f1", {"a": [0.2]}, mode="fanout")
    assert whole["result"] == {f"talker-{name}": {"by": name} for name in "abc"}
    assert (whole["missing"], whole["failed"]) == ([], [])

    dead.kill()
    answer = talk(caller, "f2", {"a": [0.2]}, mode="fanout", deadline_ms=6000)
    assert answer["status"] == "succeeded"
    assert answer["result"] == {"talker-a": {"by": "a"}, "talker-b": {"by": "b"}}
    told = [
        (one["agent"], one.get("why") or one.get("error")) for one in (*answer["missing"], *answer["failed"])
    ]
    assert [agent for agent, _ in told] == ["talker-c"]
    assert told[0][1]


def test_the_shell_asks_several_agents(processes: Processes) -> None:
    begin(processes, "a", "b")

    def result(*options: str) -> Any:
        done = processes.reach("publish", "text.talk", "{}", "--wait", "--json", *options)
        assert done.status == 0
        return json.loads(done.out)["result"]

    both = {f"talker-{name}": {"by": name} for name in "ab"}
    assert result("--mode", "fanout") == both
    (first,) = result("--mode", "fanout", "--first-n", "1").items()
    assert first in both.items()
    assert result("--mode", "race") in both.values()
    for wrong, why in {
        ("--aggregate", "vote"): "'aggregate' and 'first_n' belong to mode 'fanout', not 'single'",
        ("--mode", "race", "--side-effects"): "a task with side effects goes to one agent only",
        ("--mode", "fanout", "--stream"): "a fan-out does not stream",
    }.items():
        done = processes.reach("publish", "text.talk", "{}", *wrong)
        assert (done.status, why in done.err) == (2, True), done.err


def test_a_caller_takes_his_task_back_while_it_runs(
    processes: Processes, caller: Caller, names: Names, broker_url: str
) -> None:
    begin(processes, "a")
    caller.publish({"c1": {"capability": "text.talk", "payload": {"a": ["begun", 30]}, "stream": True}})
    caller.until(lambda: "c1" in caller.answers and len(said(caller, "c1")) == 2)
    with Caller(broker_url, names.events) as other:
        other.send((b'{"task_id": "c1"}', {}), key="cancel-task")
        caller.until(lambda: stopped(processes) == ["a"], limit=5)
        caller.until_answered(["c1"])
        (reply,) = other.take_until(other.mailbox, 1)

    assert caller.final("c1")["status"] == "cancelled"
    assert json.loads(reply.body) == {"task_id": "c1", "cancelled": True, "state": "running"}
    assert "its caller took it back" in explained(processes, "c1")
