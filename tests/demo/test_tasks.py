import json
from collections import Counter
from importlib.resources import files
from typing import Any

import jsonschema_rs
import pytest
import yaml

from reach_worker.core.task import Task, decode_task
from reach_worker.demo.tasks import DemoTask, demo_tasks, repaired
from reach_worker.demo.work import JOBS
from reach_worker.demo.work.terms import CJK

TASKS = demo_tasks()
GOOD = [task for task in TASKS if task.expect == "succeeded"]
DEAD = {task.reason: task for task in TASKS if task.expect == "dead_letter"}
CAPABILITIES: dict[str, dict[str, Any]] = {
    capability["id"]: capability
    for entry in (files("reach_worker.demo") / "config" / "agents").iterdir()
    for capability in yaml.safe_load(entry.read_text(encoding="utf-8"))["capabilities"]
}


def body_of(task: DemoTask) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(task.body)
    return body


def fits(body: dict[str, Any]) -> bool:
    schema = CAPABILITIES[body["capability"]]["input_schema"]
    return jsonschema_rs.validator_for(schema).is_valid(body["payload"])


def test_how_many_of_what() -> None:
    kinds = Counter(body_of(task)["capability"].partition(".")[0] for task in GOOD)
    summaries = [task for task in GOOD if body_of(task)["capability"] == "text.summarize"]
    assert len(TASKS) == 64
    assert Counter(task.expect for task in TASKS) == {"succeeded": 61, "dead_letter": 2, "unmatched": 1}
    assert kinds["log"] >= 20
    assert len(summaries) >= 14
    assert {body_of(task)["capability"] for task in GOOD} == {*JOBS}


def test_every_task_has_its_own_id() -> None:
    assert len({task.name for task in TASKS}) == len(TASKS)
    assert all(body_of(task)["task_id"] == task.name for task in TASKS if task.reason != "undecodable")
    assert [task.name[:8] for task in TASKS] == [f"demo-{number:03d}" for number in range(1, len(TASKS) + 1)]


def test_chinese_is_well_represented() -> None:
    assert sum(1 for task in TASKS if any("\u4e00" <= c <= "\u9fff" for c in task.body.decode())) >= 8
    assert "\u4e00-\u9fff" in CJK


def test_the_tasks_are_the_same_every_time() -> None:
    assert demo_tasks() == TASKS


@pytest.mark.parametrize("task", GOOD, ids=lambda task: task.name)
def test_a_task_that_should_succeed_does(task: DemoTask) -> None:
    body = body_of(task)
    assert isinstance(decode_task(task.body, max_bytes=1_000_000), Task)
    assert fits(body)
    answer = JOBS[body["capability"]](body["payload"])
    jsonschema_rs.validator_for(CAPABILITIES[body["capability"]]["output_schema"]).validate(answer)
    assert json.loads(json.dumps(answer)) == answer


def test_the_dead_letters_are_one_of_each_kind() -> None:
    assert {*DEAD} == {"undecodable", "payload_refused"}
    with pytest.raises(json.JSONDecodeError):
        body_of(DEAD["undecodable"])
    assert not fits(body_of(DEAD["payload_refused"]))


def test_the_unmatched_task_asks_for_what_nobody_can_do() -> None:
    (task,) = (task for task in TASKS if task.expect == "unmatched")
    assert body_of(task)["capability"] not in CAPABILITIES
    assert task.reason is None


def test_the_refused_payload_can_be_repaired_and_then_works() -> None:
    refused = DEAD["payload_refused"]
    body = json.loads(repaired(refused))
    assert body["task_id"] == refused.name
    assert fits(body)
    assert JOBS[body["capability"]](body["payload"])["count"] == 52


@pytest.mark.parametrize("task", [GOOD[0], DEAD["undecodable"]], ids=lambda task: task.name)
def test_nothing_else_can_be_repaired(task: DemoTask) -> None:
    with pytest.raises(ValueError, match=f"{task.name} has no payload to correct"):
        repaired(task)
