"""From a failure to its repair, as a person does it: what died is mended and done, what nobody may take is assigned."""

import signal
from pathlib import Path

import orjson
import pytest

from tests.bus.private_node import private_node
from tests.system.processes import Processes

pytestmark = [pytest.mark.broker, pytest.mark.system]


def publish(processes: Processes, task_id: str, value: str, *more: str, capability: str = "text.echo") -> int:
    payload = orjson.dumps({"text": value}).decode()
    return processes.reach("publish", capability, payload, "--task-id", task_id, "--wait", *more).status


def until_state(processes: Processes, task_id: str, state: str) -> None:
    """Wait until the task is in that state, in its newest life."""

    def there() -> bool:
        done = processes.reach("explain", task_id)
        return done.out.startswith(f"task {task_id}: {state}")

    processes.running[-1].wait_until(there, f"{task_id} is {state}")


def test_a_dead_letter_is_mended_and_replayed(fleet: Processes) -> None:
    assert publish(fleet, "mend-me", "refuse") == 1
    assert fleet.reach("dlq", "list", "--task-id", "mend-me", "--json").json()[0]["reason"] == "bad_request"

    replayed = fleet.reach("dlq", "replay", "--task-id", "mend-me", "--set", '/payload/text="mended"')
    until_state(fleet, "mend-me", "succeeded")

    assert replayed.status == 0, replayed.out
    story = fleet.reach("explain", "mend-me").out
    assert "first life: dead letter, bad_request: that is no text I know" in story
    assert "life 2, begun by replay or publishing again: succeeded" in story
    assert fleet.reach("dlq", "list", "--task-id", "mend-me", "--json").json() == []


def test_a_task_that_fails_again_keeps_its_old_history(fleet: Processes) -> None:
    assert publish(fleet, "hopeless", "refuse") == 1
    fleet.reach("dlq", "replay", "--task-id", "hopeless")
    fleet.running[-1].wait_until(
        lambda: fleet.reach("dlq", "list", "--task-id", "hopeless", "--json").json() != [], "it died again"
    )

    (letter,) = fleet.reach("dlq", "list", "--task-id", "hopeless", "--json").json()

    assert (letter["replays"], letter["life"]) == (1, 1)
    assert [attempt["outcome"] for attempt in letter["attempts"]] == ["bad_request"]
    assert [attempt["outcome"] for attempt in letter["past_attempts"]] == ["bad_request"]
    assert "attempts before it was replayed" in fleet.reach("dlq", "show", "hopeless").out


def test_an_unmatched_task_is_assigned_and_done(fleet: Processes) -> None:
    assert publish(fleet, "whose", "hello", capability="text.ecko") == 1
    assert "no known agent has the capability 'text.ecko'" in fleet.reach("unmatched", "list").out

    assigned = fleet.reach("unmatched", "assign", "whose", "--to", "slow", "--capability", "text.echo")
    until_state(fleet, "whose", "succeeded")

    assert assigned.status == 0
    story = fleet.reach("explain", "whose", "--json").json()
    assert [dispatch["agent_id"] for dispatch in story["dispatches"]] == ["slow"]


def test_ctrl_c_at_the_question_drops_nothing(fleet: Processes) -> None:
    assert publish(fleet, "keep-me", "refuse") == 1
    asking = fleet.start_asking("dlq", "drop", "--task-id", "keep-me")
    asking.wait_for("for good")

    asking.signal(signal.SIGINT)

    assert asking.wait_end() == 130
    assert "Traceback" not in asking.log()
    assert len(fleet.reach("dlq", "list", "--task-id", "keep-me", "--json").json()) == 1


def test_a_broker_that_dies_takes_answers_along_and_this_is_said(
    processes: Processes, tmp_path: Path, broker_url: str
) -> None:
    assert broker_url  # where there is none to share, none is started here either
    with private_node(tmp_path / "node") as node:
        own = {"REACH_AMQP_URL": node.url}
        processes.agent("tests.system.small_agents:slow", **own)
        processes.router(**own)
        waiting = processes.start(
            "publish", "text.hold", '{"seconds": 5}', "--task-id", "held", "--wait", **own
        )
        waiting.wait_until(
            lambda: processes.reach("explain", "held").status == 0, "its task is with an agent"
        )

        node.kill()
        node.start()

        assert waiting.wait_end() == 1
        assert "Error: the connection was lost while the answers were on their way" in waiting.log()
        assert "Traceback" not in waiting.log()
