"""Publishing and looking, from the command line, with a router and agents that really run."""

import re

import orjson
import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from reach_worker.core.names import Names
from tests.system.processes import Done, Processes

pytestmark = [pytest.mark.broker, pytest.mark.system]


def text(value: str) -> str:
    return orjson.dumps({"text": value}).decode()


def publish(fleet: Processes, task_id: str, value: str = "hello", *more: str) -> Done:
    return fleet.reach("publish", "text.echo", text(value), "--task-id", task_id, "--wait", *more)


def test_a_task_goes_in_and_its_answer_comes_out(fleet: Processes) -> None:
    done = publish(fleet, "greeting", "你好")

    assert done.status == 0, done.err
    assert done.json() == {"text": "你好"}
    assert "task greeting succeeded: agent quick, attempt 1" in done.err


def test_the_payload_may_come_from_a_file_or_from_stdin(fleet: Processes) -> None:
    (fleet.folder / "payload.json").write_text(text("from a file"))

    from_file = fleet.reach("publish", "text.echo", "@payload.json", "--wait")
    from_stdin = fleet.reach("publish", "text.echo", "-", "--wait", stdin=text("from stdin"))

    assert from_file.json() == {"text": "from a file"}
    assert from_stdin.json() == {"text": "from stdin"}


def test_what_did_not_succeed_is_said_and_is_an_exit_status(fleet: Processes) -> None:
    refused = publish(fleet, "refused", "refuse")
    as_json = publish(fleet, "refused-too", "refuse", "--json")
    nobody = fleet.reach("publish", "text.ecko", text("x"), "--wait")

    assert refused.status == as_json.status == nobody.status == 1
    assert refused.out == "task refused dead_letter, bad_request: that is no text I know\n"
    assert as_json.json_lines()[0]["reason"] == "bad_request"
    assert "unmatched: no known agent has the capability 'text.ecko', did you mean 'text.echo'?" in nobody.out


def test_no_answer_in_time_is_no_success(fleet: Processes) -> None:
    done = fleet.reach(
        "publish", "text.hold", '{"seconds": 2}', "--task-id", "long", "--wait", "--timeout", "300ms"
    )

    assert done.status == 1
    assert done.out == "task long: no answer within 300 ms; it goes on, see: reach fetch long\n"


def test_many_from_a_file_each_with_its_answer(fleet: Processes) -> None:
    values = ["hello", "refuse", "reject", *(f"number {n}" for n in range(40))]
    lines = [
        orjson.dumps({"task_id": f"t-{n}", "capability": "text.echo", "payload": {"text": value}}).decode()
        for n, value in enumerate(values)
    ]
    (fleet.folder / "tasks.jsonl").write_text("\n".join(lines))

    done = fleet.reach("publish", "--from", "tasks.jsonl", "--wait", "--json")

    answers = {answer["task_id"]: answer for answer in done.json_lines()}
    assert done.status == 1
    assert set(answers) == {f"t-{n}" for n in range(len(values))}
    failed = {task_id for task_id, answer in answers.items() if answer["status"] != "succeeded"}
    assert failed == {"t-1", "t-2"}
    assert answers["t-5"]["result"] == {"text": "number 2"}
    assert f"{len(values) - 2} of {len(values)} tasks succeeded" in done.err


def test_explain_shows_every_decision_attempt_and_the_end(fleet: Processes) -> None:
    publish(fleet, "sad-story", "raise")

    done = fleet.reach("explain", "sad")

    assert done.status == 0, done.err
    assert done.out.startswith(
        "task sad-story: dead letter, attempts_exhausted: 4 attempts, the last: failed"
    )
    assert re.search(r"^ +✓ quick: score \d\.\d{3}, chosen$", done.out, re.MULTILINE)
    assert re.search(r"^ +· slow: score \d\.\d{3}$", done.out, re.MULTILINE)
    assert "gate excluded: failed at attempt 1" in done.out
    assert re.search(r"^ +cost +1\.000 × 0\.35 = 0\.350  \(raw 1\)$", done.out, re.MULTILINE)
    assert [line.strip() for line in done.out.splitlines() if line.startswith("  attempt")] == [
        "attempt 1 → quick",
        "attempt 2 → slow",
        "attempt 3 → quick",
        "attempt 4 → quick",
    ]
    assert "failed: RuntimeError: it broke at step 17" in done.out
    assert re.search(r"it ran [\d.]+ ms, instance \S+$", done.out, re.MULTILINE)
    assert re.search(r"^  end at \d{4}-\d\d-\d\dT[\d:.]+[+-]\d\d:\d\d: dead letter", done.out, re.MULTILINE)


def test_explain_as_json_has_the_whole_history(fleet: Processes) -> None:
    publish(fleet, "story")

    history = fleet.reach("explain", "story", "--json").json()

    (end,) = history["ends"]
    assert end["state"] == "succeeded"
    assert end["answer"]["result"] == {"text": "hello"}
    assert [outcome["outcome"] for outcome in history["outcomes"]] == ["succeeded"]
    assert history["decisions"][0]["decision"]["agent"] == "quick"


def test_explain_why_not_another_agent(fleet: Processes) -> None:
    publish(fleet, "one")

    slow = fleet.reach("explain", "one", "--why-not", "slow").out
    quick = fleet.reach("explain", "one", "--why-not", "quick").out
    nobody = fleet.reach("explain", "one", "--why-not", "quikc").out

    assert re.search(r"slow scored 0\.\d{3}, 0\.\d{3} less than quick \(cost -0\.175", slow)
    assert "quick was chosen" in quick
    assert "no agent 'quikc' is known, did you mean 'quick'?" in nobody


def test_explain_of_a_flow_shows_all_its_tasks(fleet: Processes) -> None:
    publish(fleet, "first", "hello", "--flow", "both")
    publish(fleet, "second", "refuse", "--flow", "both")

    done = fleet.reach("explain", "--flow", "both")
    nothing = fleet.reach("explain", "--flow", "bothh")

    heads = [line for line in done.out.splitlines() if line.startswith("task ")]
    assert heads == ["task first: succeeded", "task second: dead letter, bad_request: that is no text I know"]
    assert (nothing.status, nothing.err) == (1, "no task of the flow 'bothh' is in the store\n")


def test_explain_says_where_an_unknown_task_may_be_and_what_is_near(fleet: Processes) -> None:
    publish(fleet, "order-17")
    publish(fleet, "order-18")

    unknown = fleet.reach("explain", "order-71")
    several = fleet.reach("explain", "order-1")

    assert unknown.status == several.status == 1
    assert "no task 'order-71' is in the store" in unknown.err
    assert "router's window" in unknown.err
    assert "Near it: order-17, order-18" in unknown.err
    assert "several tasks begin with 'order-1': order-17, order-18" in several.err


def test_tasks_lists_the_newest_first_and_by_state(
    processes: Processes, names: Names, channel: BlockingChannel
) -> None:
    processes.agent("tests.system.small_agents:quick")
    router = processes.router()
    processes.reach("publish", "text.ecko", text("x"), "--task-id", "nobody", "--wait")
    channel.basic_publish(names.tasks, "any", b"{", pika.BasicProperties(message_id="bad"))
    router.wait_until(lambda: "bad" in processes.reach("tasks").out, "the bad one is in the store")

    everything = processes.reach("tasks").out.splitlines()
    dead = processes.reach("tasks", "--state", "dead_letter", "--json").json()
    counts = processes.reach("tasks", "--counts", "--json").json()

    assert [line.split()[:2] for line in everything] == [
        ["TASK", "STATE"],
        ["bad", "dead_letter"],
        ["nobody", "unmatched"],
    ]
    assert [task["task_id"] for task in dead] == ["bad"]
    assert counts["tasks"]["unmatched"] == counts["tasks"]["dead_letter"] == 1
    assert counts["doubled_ends"] == 0


def test_agents_shows_who_is_there_and_who_is_not(processes: Processes) -> None:
    processes.agent("tests.system.small_agents:quick")
    slow = processes.agent("tests.system.small_agents:slow")
    processes.router()
    publish(processes, "good")
    all_there = processes.reach("agents", "--listen", "1s")
    slow.kill()

    one_gone = processes.reach("agents", "--listen", "1s", "--json")

    assert all_there.status == 0, all_there.out
    assert re.search(
        r"^quick +active +1 +0/4 +0 +closed +text\.echo +100% +1\.0 ", all_there.out, re.MULTILINE
    )
    assert re.search(r"^slow +active +1 +0/2 +0 +closed +text\.echo +- +- +-$", all_there.out, re.MULTILINE)
    assert "routers: router-1\n" in all_there.out
    assert one_gone.status == 1
    states = {line["agent"]: line["state"] for line in one_gone.json()["agents"]}
    assert states == {"quick": "active", "slow": "silent"}


def test_topology_shows_the_queues_of_agents_that_a_router_met(fleet: Processes) -> None:
    shown = fleet.reach("topology", "show")

    assert shown.status == 0, shown.out
    assert re.search(r"\.agent\.quick +present +0 +[1-9]$", shown.out, re.MULTILINE)
    assert re.search(r"\.lane\.text\.hold +present +0 +0$", shown.out, re.MULTILINE)


def test_without_a_router_there_is_nobody_to_publish_to(processes: Processes, names: Names) -> None:
    published = processes.reach("publish", "text.echo", text("x"))
    looked = processes.reach("agents")

    assert published.status == looked.status == 1
    assert f"the broker has no queue '{names.intake}': start a router" in published.err
    assert f"the broker has no queue '{names.intake}': start a router" in looked.err
