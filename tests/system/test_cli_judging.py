"""Asking the log: what another policy would have done, what the settings should be, what people said."""

import re

import pytest

from reach_worker.core.names import Names
from tests.system.processes import Processes
from tests.system.test_cli_tasks import publish

pytestmark = [pytest.mark.broker, pytest.mark.system]


def test_the_log_can_be_asked(processes: Processes, names: Names) -> None:
    del names
    processes.agent("tests.system.small_agents:quick")
    processes.agent("tests.system.small_agents:slow")
    processes.router()
    for number in range(3):
        publish(processes, f"t{number}")
    (processes.folder / "new.yaml").write_text("weights: {load: 1.0}\nscore_bonus: {slow: 0.5}\n")

    other = processes.reach("replay-log", "--policy", "new.yaml", "--json")
    in_words = processes.reach("replay-log", "--policy", "new.yaml")
    tuned = processes.reach("tune", "--json")
    wrong = processes.reach("replay-log", "--policy", "missing.yaml")

    assert other.status == in_words.status == tuned.status == 0, other.err
    found = other.json()
    assert (found["decisions"], found["comparable"], found["judged"]) == (3, 3, 3)
    assert found["estimate"] is None
    assert "its success cannot be estimated" in in_words.out
    assert [(row["agent_id"], row["attempts"]) for row in tuned.json()["quantiles"]] == [("quick", 3)]
    assert wrong.status == 2
    assert "missing.yaml" in wrong.err


def test_feedback_is_kept_and_counts(processes: Processes, names: Names) -> None:
    del names
    processes.agent("tests.system.small_agents:quick")
    processes.router()
    publish(processes, "judged")

    said = processes.reach("feedback", "judged", "wrong-agent=slow")
    unknown = processes.reach("feedback", "nobody-knows", "good")
    odd = processes.reach("feedback", "judged", "splendid")

    assert said.status == 0
    assert re.search(r"wrong-agent for quick on text\.echo$", said.err, re.MULTILINE)
    assert unknown.status == 1
    assert odd.status == 2
    assert "good, bad, or wrong-agent=AGENT" in odd.err
